"""Plain torch on any device: the reference, and a runner of its own kernel kind.

Boundary: permute (index), experts (two matrix products), activation (SiLU and multiply), unpermute and
topk_weight_and_reduce (weighted sum). Router and communication are outside.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from moegauge import errors
from moegauge.adapters.devices.cpu import (
    CacheFlush,
    host_surroundings,
    last_level_cache_bytes,
    memory_bytes,
    model_name,
)
from moegauge.adapters.devices.places import numbers_text
from moegauge.adapters.runners.moe_forward import InFloat64, local_ids, moe_forward
from moegauge.adapters.runners.work import (
    Checked,
    ClockTimes,
    ModelSpec,
    RunCondition,
    Together,
    Work,
    alone,
    bytes_between_uses,
    check_cache_claim,
    check_served_order,
)
from moegauge.records.measurement import LaunchMode

BOUND = {"bfloat16": 2e-2, "float32": 1e-5}
"""Largest relative error of an output against float64, by numeric format (bf16 rounds every intermediate)."""


@dataclass(frozen=True)
class Inputs:
    """What a call is given: hidden states [rows, hidden], ids int32 and weights float32 [rows, top_k]."""

    hidden_states: torch.Tensor
    topk_ids: torch.Tensor
    topk_weights: torch.Tensor


class MoeWeights:
    """Normally distributed weights and hidden states, seeded; a set for each of ``num_weight_sets`` layers.

    w13 [experts, 2 * intermediate, hidden] has variance 1 / hidden; w2 [experts, hidden, intermediate] has
    1 / intermediate.

    Raises:
        MemoryError: more than the host has, where it is the device; Linux would promise it and kill the process later.
    """

    def __init__(self, model: ModelSpec, device: str) -> None:
        self.model = model
        self.dtype = self.drawn_type()
        self.device = device
        self._reference: tuple[object, torch.Tensor] | None = None
        shape, experts = model.shape, model.num_local_experts
        num_bytes = 3 * experts * shape.intermediate_size * shape.hidden_size * self.dtype.itemsize
        if device == "cpu" and num_bytes * model.num_weight_sets > memory_bytes():
            raise MemoryError(
                f"{num_bytes * model.num_weight_sets} bytes of weights on a host with {memory_bytes()} bytes of memory"
            )
        generator = torch.Generator(device=device).manual_seed(model.seed)

        def normal(*size: int, fan_in: int) -> torch.Tensor:
            tensor = torch.empty(size, dtype=self.dtype, device=device)
            return self.kept(tensor.normal_(0.0, fan_in**-0.5, generator=generator))

        self.w13 = [
            normal(experts, 2 * shape.intermediate_size, shape.hidden_size, fan_in=shape.hidden_size)
            for _ in range(model.num_weight_sets)
        ]
        self.w2 = [
            normal(experts, shape.hidden_size, shape.intermediate_size, fan_in=shape.intermediate_size)
            for _ in range(model.num_weight_sets)
        ]
        self._layer_set = {layer: index % model.num_weight_sets for index, layer in enumerate(model.layers)}
        self._hidden: dict[int, torch.Tensor] = {}

    def drawn_type(self) -> torch.dtype:
        """Type that weights and hidden states are drawn in."""
        return getattr(torch, self.model.numeric_format)

    def kept(self, drawn: torch.Tensor) -> torch.Tensor:
        """What is kept of matrices as they were drawn: first every w13, then every w2."""
        return drawn

    @property
    def bound(self) -> float:
        """Largest relative error of an output that passes."""
        return BOUND[self.model.numeric_format]

    @property
    def origin(self) -> dict[str, str]:
        """Where weights and hidden states came from, as a row records it."""
        drawn = f"random-normal seed {self.model.seed}"
        return {"weights": f"{drawn}, {self.model.num_weight_sets} sets", "activations": drawn}

    def of_layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(w13, w2) of a layer."""
        index = self.set_of(layer)
        return self.w13[index], self.w2[index]

    def set_of(self, layer: int) -> int:
        """Index of the set that a layer uses."""
        return self._layer_set[layer]

    @property
    def num_bytes(self) -> int:
        """Bytes of all sets together."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.w13, *self.w2))

    def drawn(self, rows: int, draw: int = 0) -> torch.Tensor:
        """Normally distributed hidden states [rows, hidden_size]; the same number of rows and draw give the same."""
        seed = self.model.seed + 1 + rows  # 32 bits: torch's host generator takes no more
        if draw:
            seed = zlib.crc32(f"hidden states, seed {self.model.seed}, rows {rows}, draw {draw}".encode())
        generator = torch.Generator(device=self.device).manual_seed(seed)
        tensor = torch.empty((rows, self.model.shape.hidden_size), dtype=self.dtype, device=self.device)
        return tensor.normal_(generator=generator)

    def hidden(self, rows: int) -> torch.Tensor:
        """The first draw, one tensor for every timed call of as many rows."""
        if rows not in self._hidden:
            self._hidden[rows] = self.drawn(rows)
        return self._hidden[rows]

    def inputs(self, work: Work, draw: int = 0) -> Inputs:
        """Inputs of a call: the tensor that every timed call shares (draw 0), or new hidden states."""
        rows = len(work.topk_ids)
        return Inputs(self.drawn(rows, draw) if draw else self.hidden(rows), *self.routing(work))

    def changed(self, given: Inputs, work: Work, draw: int) -> tuple[str, ...]:
        """Names of inputs that are no longer what was drawn, those of the timed calls included."""
        rows = len(work.topk_ids)
        ids, topk_weights = self.routing(work)
        pairs = {
            "hidden_states": (given.hidden_states, self.drawn(rows, draw)),
            "timed hidden_states": (self.hidden(rows), self.drawn(rows)),
            "topk_ids": (given.topk_ids, ids),
            "topk_weights": (given.topk_weights, topk_weights),
        }
        return tuple(name for name, (now, before) in pairs.items() if not torch.equal(now, before))

    def reference(self, work: Work, draw: int) -> torch.Tensor:
        """A work's output in float64 on the host, [rows, hidden], from inputs drawn anew; the last one is kept."""
        fields = (work.topk_ids, work.topk_weights, work.expert_map)
        key = (work.layer, draw, tuple(None if one is None else one.tobytes() for one in fields))
        if self._reference is None or self._reference[0] != key:
            ids, topk_weights = self.routing(work)
            local, shares = local_ids(ids, work).cpu(), topk_weights.cpu().double()
            hidden = self.drawn(len(ids), draw).cpu().double()
            self._reference = key, self.in_float64(hidden, self.set_of(work.layer), local, shares)
        return self._reference[1]

    def in_float64(self, hidden: torch.Tensor, index: int, ids: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """What the kernel computes with the weights of a set, in float64. See :func:`moe_forward`."""
        return moe_forward(hidden, InFloat64(self.w13[index]), InFloat64(self.w2[index]), ids, shares)

    def routing(self, work: Work) -> tuple[torch.Tensor, torch.Tensor]:
        """(topk_ids int32, topk_weights float32) of a work on the device."""
        ids = torch.from_numpy(work.topk_ids.copy()).to(self.device)
        if work.topk_weights is None:
            weights = torch.full(ids.shape, 1.0 / ids.shape[1], dtype=torch.float32, device=self.device)
        else:
            weights = torch.from_numpy(work.topk_weights.copy()).to(self.device)
        return ids, weights


def check_output(output: torch.Tensor, given: Inputs, weights: MoeWeights, work: Work, draw: int) -> Checked:
    """Compare an output with the same computation in float64 on the host, from inputs drawn anew.

    Args:
        output: [rows, hidden]. given: what the call was given. weights, work, draw: from which it is all drawn again.
    """
    reference = weights.reference(work, draw)
    scale = reference.norm().item() or 1.0
    same_shape = output.shape == reference.shape
    error = (output.cpu().double() - reference).norm().item() if same_shape else math.inf
    return Checked(error / scale, weights.bound, weights.changed(given, work, draw))


class TorchMoeRunner:
    """Times a call on the host with a monotonic clock; the call is :func:`moe_forward`."""

    name = "torch_moe"
    kernel_kind = "torch_moe"
    backend = "torch"
    works_at_once = 16

    def __init__(self, model: ModelSpec) -> None:
        if model.numeric_format not in BOUND:
            raise errors.MisuseError(
                where=self.name,
                expected=f"numeric format {' or '.join(BOUND)}",
                found=model.numeric_format,
                remedy="Choose another runner.",
            )
        self.weights = MoeWeights(model, "cpu")
        self._flush: CacheFlush | None = None

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        """Device, versions, and the cache state; a graph or a cache state that is not achieved is refused."""
        if condition.launch_mode != LaunchMode.EAGER or condition.co_running is not None:
            beside = "" if condition.co_running is None else f", a co-running MLP of width {condition.co_running}"
            raise errors.MisuseError(
                where=self.name,
                expected="launch mode eager and nothing beside the kernel",
                found=f"launch mode {condition.launch_mode}{beside}",
                remedy="The host has no graphs and no streams: say --launch-mode eager, without --co-running.",
            )
        touched = bytes_between_uses(self.weights.model, works)
        if condition.cache_state == "cold":
            self._flush = self._flush or CacheFlush()
            touched = self._flush.num_bytes
        if condition.cache_state == "served_order":
            check_served_order(self.weights.model, works)
        check_cache_claim(condition.cache_state, touched_bytes=touched, cache_bytes=last_level_cache_bytes())
        return {
            "profiler": "none (monotonic clock)",
            "device_model": model_name(),
            "torch": str(torch.__version__),
            "threads": str(torch.get_num_threads()),
            "cache_state": condition.cache_state,
            **self.weights.origin,
        }

    def kernel_config_digest(self, work: Work) -> str | None:
        """Plain torch has no configuration of its own."""
        return None

    def surroundings(self) -> dict[str, str]:
        """Load, threads and the cores they may use; clocks are not readable here and therefore absent."""
        found = host_surroundings(threads=torch.get_num_threads())
        return found | ({"cores": numbers_text(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else {})

    def check(self, work: Work, *, draw: int = 0) -> Checked:
        """Compare one call with float64."""
        given = self.weights.inputs(work, draw)
        return check_output(self._call(work, given)(), given, self.weights, work, draw)

    def run_pass(self, works: Sequence[Work], condition: RunCondition, together: Together = alone) -> ClockTimes:
        """Time each work once; ranks meet before and after each call."""
        calls = ((work, self._call(work, self.weights.inputs(work))) for work in works)
        ns = tuple(self._timed(call, condition.cache_state, together(work)) for work, call in calls)
        return ClockTimes(ns, device=0)

    def _call(self, work: Work, given: Inputs) -> Callable[[], torch.Tensor]:
        w13, w2 = self.weights.of_layer(work.layer)
        local = local_ids(given.topk_ids, work)
        return lambda: moe_forward(given.hidden_states, w13, w2, local, given.topk_weights)

    def _timed(self, call: Callable[[], torch.Tensor], cache_state: str, step: AbstractContextManager[None]) -> int:
        if cache_state == "warm":
            call()
        elif cache_state == "cold":
            self._flush = self._flush or CacheFlush()
            self._flush()
        with step:
            begin = time.perf_counter_ns()
            call()
            end = time.perf_counter_ns()
        return end - begin
