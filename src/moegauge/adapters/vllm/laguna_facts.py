"""What the contract of laguna_m8 asks about a call, read from vLLM 0.25.1 or 0.32.0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.platforms import current_platform

from moegauge.adapters.vllm.expert_rows import gives_rows
from moegauge.lanes.laguna_m8.contract import ContractBroken
from moegauge.lanes.laguna_m8.facts import Call, Environment, Platform, TensorFacts
from moegauge.lanes.laguna_m8.tensors import CANDIDATE_TENSORS, TENSORS

Stage = Literal["prefill", "decode"]


def architecture(config: Any) -> str:
    """Class of the served model, as its configuration names it."""
    return str(config.model_config.architecture)


def check_engine(config: Any) -> None:
    """Refuse an engine in which no call could ever be treated, before its model is loaded.

    Raises:
        ContractBroken: the selector is on and the engine compiles, replays graphs or loads adapters.
    """
    compilation = config.compilation_config
    execution = {"compilation mode": compilation.mode, "graphs": compilation.cudagraph_mode}
    found = ", ".join(f"{name} {getattr(value, 'name', value)}" for name, value in execution.items())
    if any(getattr(value, "name", value) not in {"NONE", None, 0} for value in execution.values()):
        raise _refused("eager", "an engine that runs eagerly (enforce_eager)", found)
    if config.lora_config is not None:
        raise _refused("no-lora", "an engine without adapters", "LoRA is enabled")


def _refused(predicate: str, expected: str, found: str) -> ContractBroken:
    return ContractBroken(predicate, where="vLLM's settings", expected=expected, found=found)


def environment(*, kernel_present: bool, combined_output: bool) -> Environment:
    """What holds for this process."""
    return Environment(
        platform=_platform(),
        selectors=dict(os.environ),
        features={},
        aot_compile=os.environ.get("VLLM_USE_AOT_COMPILE", "0") not in {"", "0"},
        kernel_present=kernel_present,
        combined_output=combined_output,
    )


def _platform() -> Platform:
    names: tuple[Platform, ...] = ("cpu", "cuda", "xpu")
    for name in names:
        if getattr(current_platform, f"is_{name}")():
            return name
    raise _refused("platform", "cpu, cuda or xpu", str(current_platform.device_type))


def plain_layer(runner: Any) -> bool:
    """Whether nothing of a layer lies outside what the treated path does: it has a place to say so, and no more."""
    return (
        runner.shared_experts is not None
        and runner.gate is None
        and runner.shared_expert_gate is None
        and runner.routed_input_transform is None
        and not runner.is_monolithic
        and not hasattr(runner.router, "zero_expert_output")
        and gives_rows(runner.routed_experts)
    )


def stage_of(num_tokens: int) -> Stage:
    """Decode where the attention's own metadata says that every sequence has one token, and all rows are tokens.

    Prompts, mixed batches, drafted tokens and vLLM's own trial runs are all "prefill" here: what is not known to be
    decode keeps the incumbent.
    """
    metadata = get_forward_context().attn_metadata if is_forward_context_available() else None
    if not isinstance(metadata, Mapping) or not metadata:
        return "prefill"
    first = next(iter(metadata.values()))
    one_each = getattr(first, "max_query_len", None) == 1
    return "decode" if one_each and getattr(first, "num_actual_tokens", None) == num_tokens else "prefill"


def _execution() -> Literal["eager", "graph", "compiled"]:
    if torch.compiler.is_compiling():
        return "compiled"
    replayed = is_forward_context_available() and get_forward_context().cudagraph_runtime_mode.name != "NONE"
    captured = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return "graph" if replayed or captured else "eager"


def call_of(
    runner: Any, config: Any, hidden_states: Tensor, tensors: Mapping[str, TensorFacts | None], *, stage: Stage
) -> Call:
    """One call of a target's layer. ``tensors``: rows, weights, shared and out."""
    moe, shared = runner.moe_config, runner.shared_experts
    parallel = config.parallel_config
    order = None if shared is None else shared._determine_shared_experts_order(hidden_states).name
    return Call(
        architecture=architecture(config),
        role="target",
        stage=stage,
        execution=_execution(),
        lora=config.lora_config is not None,
        num_tokens=int(hidden_states.shape[0]),
        hidden_size=int(hidden_states.shape[1]),
        top_k=int(moe.experts_per_token),
        verifier_marker=None,
        num_experts=int(moe.num_experts),
        num_local_experts=int(moe.num_local_experts),
        num_shared_experts=0 if shared is None else 1,
        tp_size=int(moe.tp_size),
        ep_size=int(moe.ep_size),
        dp_size=int(moe.dp_size),
        pp_size=int(parallel.pipeline_parallel_size),
        routed_scale=runner.routed_scaling_factor,
        routed_output_transform=runner.routed_output_transform is not None,
        routed_output_reduced=bool(runner._fused_output_is_reduced),
        sequence_parallel=bool(moe.is_sequence_parallel),
        dual_batch_overlap=bool(runner.enable_dbo),
        final_all_reduce_skipped=bool(moe.skip_final_all_reduce),
        shared_stream=order != "NO_OVERLAP",
        rows_weighted=bool(runner.routed_experts.apply_router_weight_on_input),
        route_map=False,
        shared_reads=0,
        **tensors,
    )


def as_wanted(platform: Platform) -> dict[str, TensorFacts | None]:
    """Tensors that break nothing, for the question whether anything else does, asked before there are any."""
    found: dict[str, TensorFacts | None] = {}
    for number, name in enumerate(CANDIDATE_TENSORS, start=1):
        dtype, shape = TENSORS[name]
        where = number << 32
        device = "cpu" if platform == "cpu" else f"{platform}:0"
        found[name] = TensorFacts(
            dtype=dtype, shape=shape, contiguous=True, device=device, address=where, num_bytes=1 << 20
        )
    return found
