"""vLLM's own Triton experts on CUDA, called as the serving engine calls them, without an engine.

Boundary: permute to topk_weight_and_reduce, as registered for the kind. Times come from the profiler (CUPTI), the same
instrument as serving; device events around the pass are recorded beside them as a cross-check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pynvml
import torch
import vllm
from torch.profiler import ProfilerActivity, profile, record_function
from vllm.model_executor.layers.fused_moe import override_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FUSED_MOE_UNQUANTIZED_CONFIG,
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts

from moegauge import errors
from moegauge.adapters.devices import cuda
from moegauge.adapters.runners.dense_mlp import DenseMlp
from moegauge.adapters.runners.kernel_config import Config, KernelConfig
from moegauge.adapters.runners.prepared import KeptPrepared
from moegauge.adapters.runners.profiled_pass import profiled
from moegauge.adapters.runners.torch_moe import Inputs, MoeWeights, check_output
from moegauge.adapters.runners.triton_choice import TritonChoice
from moegauge.adapters.runners.work import (
    Checked,
    ModelSpec,
    ProfiledTimes,
    RunCondition,
    Together,
    Work,
    alone,
    bytes_between_uses,
    check_cache_claim,
    check_served_order,
)
from moegauge.evidence.digest import record_digest
from moegauge.kernels.scopes import ScopeTags
from moegauge.records.measurement import LaunchMode

TAG = "measured"


class VllmTritonMoeRunner:
    """Runs ``TritonExperts.apply`` on normally distributed weights and hidden states."""

    name = "vllm_triton_moe"
    kernel_kind = "vllm_triton_moe"
    backend = "vllm TritonExperts"
    works_at_once = 4096
    block_shape: tuple[int, int] | None = None

    def __init__(self, model: ModelSpec, kernel_config: KernelConfig | None = None) -> None:
        if not torch.cuda.is_available():
            raise errors.MisuseError(
                where=f"runner {self.name}",
                expected="a CUDA device",
                found="none",
                remedy="Run it on a GPU machine.",
            )
        self.weights = self.drawn_weights(model)
        shape = model.shape
        config = FusedMoEConfig(
            num_experts=shape.num_experts,
            experts_per_token=shape.top_k,
            hidden_dim=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_local_experts=model.num_local_experts,
            num_logical_experts=shape.num_experts,
            activation=MoEActivation.SILU,
            device="cuda",
            routing_method=RoutingMethodType.Renormalize,
            moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
            in_dtype=self.weights.dtype,
        )
        formats = self.formats()
        self.experts = [TritonExperts(config, one) for one in formats]
        self.choice = TritonChoice(
            kernel_config,
            w13=tuple(self.weights.w13[0].size()),
            w2=tuple(self.weights.w2[0].size()),
            top_k=shape.top_k,
            dtype=formats[0].config_name(self.weights.dtype),
            block_shape=self.block_shape,
        )
        self._turn = 0
        self._shared: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._flush: cuda.CacheFlush | None = None
        self._outputs: dict[int, torch.Tensor] = {}
        self._prepared = KeptPrepared[list[Callable[[], torch.Tensor]]]()
        self._graphs = KeptPrepared[list[tuple[int, torch.cuda.CUDAGraph]]]()

    def drawn_weights(self, model: ModelSpec) -> MoeWeights:
        """Weights on the device, in the format of the kind."""
        return MoeWeights(model, "cuda")

    def formats(self) -> list[Any]:
        """vLLM's description of the weights' format: one for all sets, or one a set where it holds their scales."""
        return [FUSED_MOE_UNQUANTIZED_CONFIG]

    def as_taken(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden states as the experts take them, with their scales; part of the timed call."""
        return hidden_states, None

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        """Device, versions, profiler, and the cache state; one that is not achieved is refused."""
        in_graphs = {"in_order", "served_order", "rotated"}
        if condition.launch_mode == LaunchMode.GRAPH and condition.cache_state not in in_graphs:
            raise errors.MisuseError(
                where="--cache-state",
                expected="in_order, served_order or rotated in graphs",
                found=condition.cache_state,
                remedy="Measure warm and cold eagerly.",
            )
        touched = bytes_between_uses(self.weights.model, works)
        if condition.cache_state == "cold":
            self._flush = self._flush or cuda.CacheFlush()
            touched = self._flush.num_bytes
        if condition.cache_state == "served_order":
            check_served_order(self.weights.model, works)
        check_cache_claim(condition.cache_state, touched_bytes=touched, cache_bytes=cuda.last_level_cache_bytes())
        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        pynvml.nvmlShutdown()
        asked = {} if condition.co_running is None else {"co_running": f"dense MLP of width {condition.co_running}"}
        if self.choice.kernel_config is not None:
            asked["kernel_config"] = self.choice.kernel_config.digest
        return asked | {
            "profiler": "kineto",
            "device_model": cuda.model_name(),
            "torch": str(torch.__version__),
            "vllm": vllm.__version__,
            "cuda_driver": str(driver),
            "cuda_runtime": str(torch._C._cuda_getCompiledVersion()),
            "cache_state": condition.cache_state,
            **self.weights.origin,
        }

    def kernel_config_digest(self, work: Work) -> str:
        """Digest of the Triton configuration vLLM takes for the work's rows."""
        rows = len(work.topk_ids)
        return record_digest(self.choice.given(rows) or self.choice.found(rows))

    def surroundings(self) -> dict[str, str]:
        """Device UUID, clocks, power, temperature, throttle reasons."""
        return cuda.surroundings()

    def check(self, work: Work, *, draw: int = 0) -> Checked:
        """Compare one call, on a poisoned output, with float64."""
        given = self.weights.inputs(work, draw)
        return check_output(self.call_of(work, given, poison=True)(), given, self.weights, work, draw)

    def run_pass(self, works: Sequence[Work], condition: RunCondition, together: Together = alone) -> ProfiledTimes:
        """Run every work once under the profiler; ranks meet around each call, or around the graph of an iteration."""
        if condition.launch_mode == LaunchMode.GRAPH:
            graphs = self._captured(works, condition)
            one_of = {work.iteration: work for work in works}
            replay = lambda: self._replay(graphs, lambda iteration: together(one_of[iteration]))  # noqa: E731
            return profiled(replay, ScopeTags(frozenset({TAG}), frozenset()))
        calls = self._ready(works, condition)
        body = lambda: self.eager(works, calls, condition, together)  # noqa: E731
        return profiled(body, ScopeTags(frozenset(), frozenset({TAG})))

    def eager(
        self,
        works: Sequence[Work],
        calls: Sequence[Callable[[], torch.Tensor]],
        condition: RunCondition,
        together: Together,
    ) -> None:
        """Make each call under its annotation, in the cache state that was asked for."""
        for work, call in zip(works, calls, strict=True):
            if condition.cache_state == "cold" and self._flush is not None:
                self._flush()
            elif condition.cache_state == "warm":
                call()
            with cuda.idle_around(together(work)), record_function(f"{TAG} L{work.layer} I{work.iteration}"):
                call()

    def _replay(
        self,
        graphs: Sequence[tuple[int, torch.cuda.CUDAGraph]],
        step_of: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        for iteration, graph in graphs:
            with cuda.idle_around(step_of(iteration)), record_function(f"{TAG} I{iteration}"):
                graph.replay()

    def _ready(self, works: Sequence[Work], condition: RunCondition) -> list[Callable[[], torch.Tensor]]:
        """Calls with their inputs on the device; run once, so that compilation is over before anything is timed."""
        return self._prepared.of(works, condition, lambda: self._made_ready(works, condition))

    def _made_ready(self, works: Sequence[Work], condition: RunCondition) -> list[Callable[[], torch.Tensor]]:
        rotate = condition.cache_state == "rotated"
        calls = [self.call_of(work, self.weights.inputs(work), rotate=rotate) for work in works]
        if condition.co_running is not None:
            beside = DenseMlp(condition.co_running, self.weights)
            calls = [beside.along(call, len(work.topk_ids)) for call, work in zip(calls, works, strict=True)]
        for call in calls:
            call()
        torch.cuda.synchronize()
        self.warm_profiler()
        return calls

    def _captured(self, works: Sequence[Work], condition: RunCondition) -> list[tuple[int, torch.cuda.CUDAGraph]]:
        """One graph an iteration, each replayed once untimed."""
        return self._graphs.of(works, condition, lambda: self._recorded(works, condition))

    def _recorded(self, works: Sequence[Work], condition: RunCondition) -> list[tuple[int, torch.cuda.CUDAGraph]]:
        calls = self._ready(works, condition)
        graphs: list[tuple[int, torch.cuda.CUDAGraph]] = []
        for iteration in sorted({work.iteration for work in works}):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for work, call in zip(works, calls, strict=True):
                    if work.iteration == iteration:
                        call()
            graphs.append((iteration, graph))
        self._replay(graphs, lambda _: nullcontext())
        torch.cuda.synchronize()
        return graphs

    def warm_profiler(self) -> None:
        """A process's first profiler session can lose kernels; spend it on nothing."""
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            torch.ones(1, device="cuda").add_(1)
            torch.cuda.synchronize()

    def call_of(
        self,
        work: Work,
        given: Inputs,
        *,
        config: Config | None = None,
        rotate: bool = False,
        poison: bool = False,
    ) -> Callable[[], torch.Tensor]:
        """What runs a work once.

        Args:
            work, given: what it runs on. config: configuration of the caller's; None for the runner's own choice.
            rotate: take the next set of weights. poison: fill the output with NaN first.
        """
        index = self.weights.set_of(work.layer)
        if rotate:
            index = self._turn
            self._turn = (self._turn + 1) % self.weights.model.num_weight_sets
        w13, w2, experts = self.weights.w13[index], self.weights.w2[index], self.experts[index % len(self.experts)]
        shape, dtype = self.weights.model.shape, self.weights.dtype
        rows, top_k = work.topk_ids.shape
        width = max(2 * shape.intermediate_size, shape.hidden_size)
        workspaces = self._workspaces(rows * top_k * width, dtype)
        out = self._outputs.setdefault(rows, torch.empty_like(given.hidden_states))
        if poison:
            out.fill_(float("nan"))
        expert_map = None if work.expert_map is None else torch.from_numpy(work.expert_map.copy()).to(out.device)
        taken = config or self.choice.given(rows)

        def call() -> torch.Tensor:
            hidden_states, scales = self.as_taken(given.hidden_states)
            with override_config(taken):
                experts.apply(
                    output=out,
                    hidden_states=hidden_states,
                    w1=w13,
                    w2=w2,
                    topk_weights=given.topk_weights,
                    topk_ids=given.topk_ids,
                    activation=MoEActivation.SILU,
                    global_num_experts=shape.num_experts,
                    expert_map=expert_map,
                    a1q_scale=scales,
                    a2_scale=None,
                    workspace13=workspaces[0],
                    workspace2=workspaces[1],
                    expert_tokens_meta=None,
                    apply_router_weight_on_input=False,
                )
            return out

        return call

    def _workspaces(self, numel: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Two workspaces shared by all calls of a size (powers of two), as the engine shares its own."""
        size = 1 << (numel - 1).bit_length()
        if size not in self._shared:
            one, other = (torch.empty(size, dtype=dtype, device=self.weights.device) for _ in range(2))
            self._shared[size] = (one, other)
        return self._shared[size]
