"""Lane laguna_m8 in vLLM: a MoE runner that takes the lane's arm at eight tokens, and vLLM's own path everywhere else.

Registered in place of ``MoERunner`` while a Laguna model is loaded with a selector on, and never otherwise. A treated
call computes the same shared output, routes and rows for both arms. Then the candidate finalizes in one launch and says
that its output includes the shared one; the incumbent pair gathers, says that it does not, and the combine follows as
its second launch. The final reduction is vLLM's.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExpertsOrder

from moegauge import errors
from moegauge.adapters.lanes.laguna_m8.tensor_facts import facts as facts_of
from moegauge.adapters.vllm import laguna_facts
from moegauge.adapters.vllm.expert_rows import unweighted_rows
from moegauge.adapters.vllm.laguna_m8_settings import ARM, ARMS
from moegauge.lanes.laguna_m8.contract import INCUMBENT, TREATMENT, ContractBroken, Dispatch, select
from moegauge.lanes.laguna_m8.facts import Environment, TensorFacts
from moegauge.lanes.laguna_m8.predicates import ARCHITECTURE

REPLACED = "MoERunner"


@dataclass(frozen=True)
class Routed:
    """What a dispatch gave, BF16 [8, 3072], and whether the shared output is in it already."""

    states: Tensor
    output_includes_shared: bool


@dataclass
class LaneLayer:
    """The lane's side of one layer of the target model.

    Attributes:
        config: vLLM's. environment: of the contract. arm: one of ARMS. kernels: module with moe_gather, scale_add and
            gather_finalize.
        calls: number by (stage, tokens, dispatch). launches: number by kernel.
        shared_reads: how often the shared output was read.
    """

    config: Any
    environment: Environment
    arm: str
    kernels: Any
    calls: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)
    shared_reads: int = 0

    def dispatch(self, runner: Any, hidden_states: Tensor) -> Dispatch:
        """Arm of a call, asked before anything of the layer runs.

        Raises:
            ContractBroken: a predicate of the contract does not hold.
        """
        stage = laguna_facts.stage_of(int(hidden_states.shape[0]))
        wanted = laguna_facts.as_wanted(self.environment.platform)
        call = laguna_facts.call_of(runner, self.config, hidden_states, wanted, stage=stage)
        chosen = select(call, self.environment)
        self.calls[stage, call.num_tokens, chosen.value] += 1
        return chosen

    def check_tensors(self, runner: Any, hidden_states: Tensor, tensors: dict[str, Tensor]) -> None:
        """The whole contract once more, with the tensors that are there now, before a kernel of the lane is launched.

        Raises:
            ContractBroken
        """
        facts: dict[str, TensorFacts | None] = {name: facts_of(one) for name, one in tensors.items()}
        call = laguna_facts.call_of(runner, self.config, hidden_states, facts, stage="decode")
        if select(call, self.environment) is not TREATMENT:
            raise ContractBroken(
                "scope", where="laguna_m8 in vLLM", expected="the call that was dispatched", found="another one"
            )

    def routed(self, rows: Tensor, weights: Tensor, shared: Tensor, out: Tensor) -> Routed:
        """One launch of the arm: the candidate takes the shared output in, the incumbent's gather does not."""
        if self.arm == "candidate":
            self.kernels.gather_finalize(out, rows, weights, shared)
            self.launches["gather_finalize"] += 1
            return Routed(out, output_includes_shared=True)
        gathered = torch.empty_like(out)
        self.kernels.moe_gather(gathered, rows, weights)
        self.launches["moe_gather"] += 1
        return Routed(gathered, output_includes_shared=False)

    def combined(self, routed: Routed, shared: Tensor, out: Tensor) -> Tensor:
        """The ordinary combine of the pair; nothing where the dispatch said that it is done."""
        if routed.output_includes_shared:
            return routed.states
        self.kernels.scale_add(out, shared, routed.states)
        self.launches["scale_add"] += 1
        return out


class LagunaM8Runner(MoERunner):  # type: ignore[misc]
    """vLLM's runner; its ``lane`` is set for layers of a loaded target model alone, never for a draft's."""

    lane: LaneLayer | None = None

    def forward(self, hidden_states: Tensor, router_logits: Tensor, *rest: Any, **named: Any) -> Tensor:
        """The literal incumbent, or the lane's arm.

        Raises:
            ContractBroken: a call of the lane's scope breaks a predicate; nothing was launched.
        """
        lane = self.lane
        if lane is None or lane.dispatch(self, hidden_states) is INCUMBENT:
            return super().forward(hidden_states, router_logits, *rest, **named)
        if any(value is not None for value in (*rest, *named.values())):
            raise ContractBroken(
                "combined-output", where=self.layer_name, expected="hidden states and logits alone", found="more"
            )
        return self._maybe_reduce_final_output(self._treated(lane, hidden_states, router_logits), None)

    def _treated(self, lane: LaneLayer, hidden_states: Tensor, router_logits: Tensor) -> Tensor:
        self.routed_experts._ensure_moe_quant_config_init()
        self._maybe_apply_shared_experts(hidden_states, SharedExpertsOrder.NO_OVERLAP)
        weights, ids = self.router.select_experts(
            hidden_states=hidden_states,
            router_logits=router_logits,
            topk_indices_dtype=self._quant_method.topk_indices_dtype,
        )
        rows = unweighted_rows(self.routed_experts, hidden_states, ids)
        shared = self._shared_experts.output  # reading clears it: this is the only place
        lane.shared_reads += 1
        out = torch.empty_like(hidden_states)
        lane.check_tensors(self, hidden_states, {"rows": rows, "weights": weights, "shared": shared, "out": out})
        return lane.combined(lane.routed(rows, weights, shared, out), shared, out)


def prepare(config: Any) -> bool:
    """Register the runner before a Laguna model is loaded; False for any other model, which is left alone.

    Raises:
        ContractBroken: no call of this engine could be treated.
        MisuseError: another runner stands in MoERunner's place, or the arm is not one.
    """
    if laguna_facts.architecture(config) != ARCHITECTURE:
        return False
    laguna_facts.check_engine(config)
    if os.environ.get(ARM, ARMS[0]) not in ARMS:
        raise errors.MisuseError(
            where=ARM, expected=" or ".join(ARMS), found=repr(os.environ[ARM][:40]), remedy="Set it so, or unset it."
        )
    other = op_registry_oot.get(REPLACED)
    if other is None:
        MoERunner.register_oot(name=REPLACED)(LagunaM8Runner)
    elif other is not LagunaM8Runner:
        raise errors.MisuseError(
            where="vLLM's register of out-of-tree layers",
            expected=f"no other class in place of {REPLACED}",
            found=f"{other.__module__}.{other.__qualname__}",
            remedy="Switch that plugin off (VLLM_PLUGINS), or the selector of laguna_m8.",
        )
    return True


def attach(model: Any, config: Any) -> dict[str, LaneLayer]:
    """Give the lane to every MoE layer of a loaded target; by layer name.

    Raises:
        Incomplete: the model has no layer that was made by the lane's runner.
    """
    inner = model.unwrap() if hasattr(model, "unwrap") else model
    runners = [module for module in inner.modules() if isinstance(module, LagunaM8Runner)]
    if not runners:
        raise errors.Incomplete(
            where="the loaded model",
            expected=f"MoE layers of {LagunaM8Runner.__name__}",
            found="none",
            remedy="This vLLM does not make its MoE layers through register_oot; use 0.25.1 or 0.32.0.",
        )
    kernels = _kernels(runners[0])
    arm = os.environ.get(ARM, ARMS[0])
    layers = {}
    for runner in runners:
        present = all(hasattr(kernels, name) for name in ("moe_gather", "scale_add", "gather_finalize"))
        around = laguna_facts.environment(kernel_present=present, combined_output=laguna_facts.plain_layer(runner))
        layers[runner.layer_name] = runner.lane = LaneLayer(config=config, environment=around, arm=arm, kernels=kernels)
    return layers


def _kernels(runner: Any) -> Any:
    on_host = next(runner.parameters()).device.type == "cpu"
    return import_module(f"moegauge.adapters.lanes.laguna_m8.{'host' if on_host else 'launch'}")


def counts(layers: dict[str, LaneLayer]) -> dict[str, dict[str, Any]]:
    """Calls and launches of each layer so far, as plain values."""
    return {
        name: {
            "calls": [[*key, number] for key, number in sorted(lane.calls.items())],
            "launches": dict(lane.launches),
            "shared_reads": lane.shared_reads,
        }
        for name, lane in layers.items()
    }
