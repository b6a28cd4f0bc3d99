"""A simulated recording: bundles and replay traces built in a folder, with every number chosen by the test.

The kernels carry the names real traces carry. Times are given in ns and written as decimal microseconds, as Kineto
does. Whatever a test wants to be wrong it changes in the plain dictionaries before they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "align": "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*)",
    "align_small": "void vllm::moe::moe_align_block_size_small_batch_expert_kernel<int, 256>(int const*, int*)",
    "sort": "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int const*, int*, int*)",
    "fill": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >",
    "map_compare": "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Tensor&)>",
    "map_index": "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<>>",
    "gemm": "fused_moe_kernel",
    "act": "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162>(c10::BFloat16*)",
    "sum": "void vllm::moe::moe_sum_vec_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*)",
    "norm": "void vllm::rms_norm_kernel<c10::BFloat16, 8, 3, true>(c10::BFloat16*)",
    "router": "void vllm::moe::topkGating<8, 128, 4, 16, 32, int>(float const*)",
    "finalize": "memcpy32_post",
}

BASE_NS = 5_108_314_524_917_962
"""Where simulated time begins; large enough that a double cannot hold it."""


def us(ns: int) -> Decimal:
    """Decimal microseconds of integer ns."""
    return Decimal(ns) / 1000


_DECIMAL = re.compile(r'"decimal:([0-9.-]+)"')


def exact_json(value: Any) -> bytes:
    """JSON in which every Decimal stands with all its digits (a float would round them)."""
    text = json.dumps(value, default=lambda number: f"decimal:{number:f}" + ".0" * ("." not in f"{number:f}"))
    return _DECIMAL.sub(r"\1", text).encode()


@dataclass
class TraceBuilder:
    """Builds the events of one process's Kineto trace."""

    pid: int = 700
    device: int = 0
    rank: int = 0
    world_size: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    next_correlation: int = 100
    head: dict[str, Any] = field(default_factory=dict)

    def kernel(
        self,
        name: str,
        start_ns: int,
        dur_ns: int,
        *,
        stream: int = 7,
        correlation: int | None = None,
        cat: str = "kernel",
    ) -> dict[str, Any]:
        """Add a device operation; without a correlation it has no launch call."""
        args = {"device": self.device, "stream": stream}
        if correlation is not None:
            args["correlation"] = correlation
        return self._add(cat, name, self.device, stream, start_ns, dur_ns, args)

    def launch(self, start_ns: int, *, name: str = "cudaLaunchKernel", external_id: int | None = None) -> int:
        """Add a launch call and return its correlation."""
        self.next_correlation += 1
        args = {"correlation": self.next_correlation}
        if external_id is not None:
            args["External id"] = external_id
        self._add("cuda_runtime", name, self.pid, self.pid, start_ns, 10, args)
        return self.next_correlation

    def host_scope(self, name: str, start_ns: int, dur_ns: int) -> dict[str, Any]:
        """Add a host annotation."""
        return self._add("user_annotation", name, self.pid, self.pid, start_ns, dur_ns, {"External id": 1})

    def device_scope(self, name: str, start_ns: int, dur_ns: int, *, stream: int = 7) -> dict[str, Any]:
        """Add a device annotation."""
        return self._add("gpu_user_annotation", name, self.device, stream, start_ns, dur_ns, {"External id": 1})

    def _add(
        self, cat: str, name: str, pid: int, tid: int, start_ns: int, dur_ns: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        event = {
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(start_ns), "dur": us(dur_ns),
            "args": args,
        }  # fmt: skip
        self.events.append(event)
        return event

    def data(self) -> bytes:
        """The trace as JSON bytes with exact decimals."""
        file = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": self.device, "name": "Simulated GPU"}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world_size},
            "cuda_driver_version": 13000,
            **self.head,
            "traceEvents": self.events,
        }
        return exact_json(file)


RoleTime = Callable[[int, int, int, str], int]
"""(iteration, layer, rank, role) -> ns."""


def steady_time(iteration: int, layer: int, rank: int, role: str) -> int:
    """Role times that differ everywhere, so that no two sums agree by chance."""
    base = {"gemm": 20_000, "act": 3_000, "sum": 2_000}.get(role, 1_000)
    return base + 101 * layer + 1_009 * iteration + 13 * rank


@dataclass
class Recording:
    """A simulated serving run of a small model, eager unless a step says graph.

    Attributes:
        steps: as in meta.json (iter, tokens, padded, reqs, graph, ...).
        layers: MoE layers. num_experts, top_k: of the model. ranks: world size. expert_parallel: split the experts.
        time: ns of each role. gap_ns: between kernels of an invocation.
        launch_rows: write launch calls.
    """

    steps: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"iter": 0, "tokens": 6, "padded": 6, "reqs": 2, "graph": False},
            {"iter": 1, "tokens": 3, "padded": 4, "reqs": 3, "graph": True},
            {"iter": 2, "tokens": 1, "padded": 1, "reqs": 1, "graph": True},
        ]
    )
    layers: tuple[int, ...] = (0, 1, 2)
    num_experts: int = 8
    top_k: int = 2
    ranks: int = 1
    expert_parallel: bool = False
    time: RoleTime = steady_time
    gap_ns: int = 500
    launch_rows: bool = True
    seed: int = 0

    def meta(self) -> dict[str, Any]:
        """meta.json."""
        config = {
            "architectures": ["SimulatedMoeForCausalLM"], "hidden_size": 64, "moe_intermediate_size": 32,
            "num_experts": self.num_experts, "num_experts_per_tok": self.top_k, "torch_dtype": "bfloat16",
        }  # fmt: skip
        meta: dict[str, Any] = {"config": config, "steps": self.steps, "torch": "2.11.0", "vllm": "0.25.1"}
        return meta | ({"ranks": self.ranks} if self.ranks > 1 else {})

    def topk_ids(self, iteration: int, layer: int, rows: int) -> np.ndarray[Any, np.dtype[np.int16]]:
        """Routed ids of one invocation: seeded, distinct within a token."""
        generator = np.random.default_rng((self.seed, iteration, layer))
        order = np.argsort(generator.random((rows, self.num_experts)), axis=1)
        return order[:, : self.top_k].astype(np.int16)

    def expert_map(self, rank: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Contiguous share of the experts."""
        share = self.num_experts // self.ranks
        found = np.full(self.num_experts, -1, dtype=np.int32)
        found[rank * share : (rank + 1) * share] = np.arange(share)
        return found

    def routing(self, rank: int) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays of routing.npz."""
        rows = [(s["iter"], layer, s["padded"]) for s in self.steps for layer in self.layers]
        ids = [self.topk_ids(*row) for row in rows]
        arrays: dict[str, np.ndarray[Any, Any]] = {
            "meta": np.array(rows, dtype=np.int32),
            "ids": np.concatenate(ids),
            "weights": np.full((sum(len(i) for i in ids), self.top_k), 0.5, dtype=np.float16),
        }
        return arrays | ({"expert_map": self.expert_map(rank)} if self.expert_parallel else {})

    def roles(self, rows: int) -> list[str]:
        """The kernel sequence of an invocation of so many rows."""
        if self.expert_parallel:
            prefix = ["align_small" if rows * self.top_k < 1024 and self.num_experts <= 64 else "align"]
            prefix += [] if prefix == ["align_small"] else ["sort"]
            prefix += ["map_compare", "map_index"]
        elif rows * self.top_k * 4 <= self.num_experts:
            prefix = ["fill"]
        elif rows * self.top_k < 1024 and self.num_experts <= 64:
            prefix = ["align_small"]
        else:
            prefix = ["align", "sort"]
        return [*prefix, "gemm", "act", "gemm", "sum"]

    def serving(self, rank: int) -> TraceBuilder:
        """The serving trace of a rank."""
        trace = TraceBuilder(pid=700 + rank, device=rank, rank=rank, world_size=self.ranks)
        now = BASE_NS
        for step in self.steps:
            now = self._iteration(trace, step, rank, now) + 50_000
        return trace

    def _iteration(self, trace: TraceBuilder, step: dict[str, Any], rank: int, now: int) -> int:
        iteration, graph = step["iter"], bool(step.get("graph"))
        begin = now
        correlation = trace.launch(now + 5, name="cudaGraphLaunch") if graph and self.launch_rows else None
        for layer in self.layers:
            now += 1_000
            trace.kernel(NAMES["router"], now, 900, correlation=self._launch(trace, begin, correlation))
            now += 2_000
            start = now
            for role in self.roles(step["padded"]):
                length = self.time(iteration, layer, rank, role)
                host = begin + 10 * (layer + 1) if not graph else begin
                trace.kernel(NAMES[role], now, length, correlation=self._launch(trace, host + 1, correlation))
                now += length + self.gap_ns
            if not graph:
                trace.host_scope(f"moe L{layer} I{iteration}", begin + 10 * (layer + 1), 9)
                trace.device_scope(f"moe L{layer} I{iteration}", start, now - self.gap_ns - start)
            trace.kernel(NAMES["finalize"], now, 700, correlation=self._launch(trace, begin, correlation))
            now += 1_000
        trace.host_scope(f"iteration I{iteration}", begin, 10 * (len(self.layers) + max(self.layers) + 2))
        trace.device_scope(f"iteration I{iteration}", begin, now - begin)
        return now

    def _launch(self, trace: TraceBuilder, host_ns: int, correlation: int | None) -> int | None:
        if not self.launch_rows:
            return None
        return correlation if correlation is not None else trace.launch(host_ns)

    def replay(self, rank: int = 0, *, tag: str = "exact", scale: float = 1.0, offset_ns: int = 0) -> TraceBuilder:
        """An eager replay of every invocation, each role's time scaled."""
        trace = TraceBuilder(pid=700 + rank, device=rank, rank=rank, world_size=self.ranks)
        now = BASE_NS + 10**9 + offset_ns
        for step in self.steps:
            for layer in self.layers:
                name, begin = f"{tag} L{layer} I{step['iter']}", now
                trace.host_scope(name, begin, 9)
                for role in self.roles(step["padded"]):
                    length = round(self.time(step["iter"], layer, rank, role) * scale)
                    trace.kernel(NAMES[role], now, length, correlation=self._launch(trace, begin + 1, None))
                    now += length + self.gap_ns
                trace.device_scope(name, begin, now - self.gap_ns - begin)
                now += 10_000
        return trace

    def graph_replay(self, rank: int = 0, *, scale: float = 1.0, offset_ns: int = 0) -> TraceBuilder:
        """A replay of the graph iterations, each as one graph launch."""
        trace = TraceBuilder(pid=700 + rank, device=rank, rank=rank, world_size=self.ranks)
        now = BASE_NS + 2 * 10**9 + offset_ns
        for step in self.steps:
            if not step.get("graph"):
                continue
            begin = now
            correlation = trace.launch(begin + 1, name="cudaGraphLaunch")
            for layer in self.layers:
                for role in self.roles(step["padded"]):
                    length = round(self.time(step["iter"], layer, rank, role) * scale)
                    trace.kernel(NAMES[role], now, length, correlation=correlation)
                    now += length + self.gap_ns
            trace.host_scope(f"graph I{step['iter']}", begin, 9)
            trace.device_scope(f"graph I{step['iter']}", begin, now - self.gap_ns - begin)
            now += 10_000
        return trace

    def write(self, folder: Path, *, ranks: Iterable[int] | None = None) -> Path:
        """Write the bundle and return its folder."""
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text(json.dumps(self.meta()))
        for rank in range(self.ranks) if ranks is None else ranks:
            prefix = f"rank{rank}." if self.ranks > 1 else ""
            np.savez_compressed(folder / f"{prefix}routing.npz", **self.routing(rank))
            (folder / f"{prefix}serving_trace.json").write_bytes(self.serving(rank).data())
        return folder

    def busy_ns(self, iteration: int, layer: int, rank: int = 0) -> int:
        """Busy union of an invocation: its kernels do not overlap."""
        rows = next(step["padded"] for step in self.steps if step["iter"] == iteration)
        return sum(self.time(iteration, layer, rank, role) for role in self.roles(rows))

    def total_ns(self, rank: int = 0) -> int:
        """Busy time of every invocation of a rank."""
        return sum(self.busy_ns(step["iter"], layer, rank) for step in self.steps for layer in self.layers)
