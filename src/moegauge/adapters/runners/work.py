"""What a runner is asked to measure, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.kernels.scopes import ScopeTags
from moegauge.kernels.trace import Trace
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode

CACHE_STATES = {
    "in_order": "every layer in serving order, each with its own weights, which the others evict",
    "served_order": "every layer in serving order, each with its own weights; no claim about what stays in the cache",
    "warm": "the same call once before, untimed",
    "cold": "a buffer larger than the last-level cache written before each call",
    "rotated": "copies of the weights in turn, together larger than the last-level cache",
}

NUMERIC_FORMATS = ("bfloat16", "float32")
"""Types that plain torch runs in and that its checks have a bound for."""

_WEIGHT_BYTES = {"bfloat16": 2, "float32": 4, "fp8_w8a8_block": 1}
"""Bytes of one weight; the scales of a block format, 4 bytes in 16 KiB, are left out."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One rank invocation to run.

    Attributes:
        iteration, layer, rank: which.
        topk_ids: int32 [executed_rows, top_k]. topk_weights: float32, same shape; None takes 1 / top_k.
        expert_map: int32 [num_experts] or None.
    """

    iteration: int
    layer: int
    rank: int
    topk_ids: NDArray[np.int32]
    topk_weights: NDArray[np.float32] | None
    expert_map: NDArray[np.int32] | None


Together = Callable[[Work], AbstractContextManager[None]]
"""Entered right before a work is timed and left right after. Of ranks that run together, none goes on before all are
there: neither into the timed part, nor out of it."""


def alone(_: Work) -> AbstractContextManager[None]:
    """A rank that waits for no other."""
    return nullcontext()


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Weights to allocate.

    Attributes:
        shape: dimensions. num_local_experts: experts on this rank. numeric_format: ml_dtypes name, or fp8_w8a8_block.
        layers: layer numbers. num_weight_sets: distinct sets of weights; layer i uses set i mod that.
        seed: of weights and hidden states (both normally distributed, never zeros).
    """

    shape: ModelShape
    num_local_experts: int
    numeric_format: str
    layers: tuple[int, ...]
    num_weight_sets: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class RunCondition:
    """How to run.

    Attributes:
        launch_mode: one launch a kernel, or whole iterations as one graph. cache_state: see CACHE_STATES.
        co_running: width of a dense MLP (as a shared expert is) that runs beside each invocation on a second stream;
            None for none.
    """

    launch_mode: LaunchMode
    cache_state: str
    co_running: int | None = None


@dataclass(frozen=True)
class ClockTimes:
    """Times taken with a clock around each call: ns by work."""

    ns: tuple[int, ...]
    device: int


@dataclass(frozen=True)
class ProfiledTimes:
    """Times taken by the profiler: a trace whose annotations name each work, and device events around all of it."""

    trace: Trace
    tags: ScopeTags
    event_ns: int


@dataclass(frozen=True)
class Checked:
    """A runner's output against the float64 reference.

    Attributes:
        relative_error: of the Frobenius norm. bound: the largest that passes.
        changed_inputs: names of inputs that no longer are what was drawn; a call must leave its inputs alone.
    """

    relative_error: float
    bound: float
    changed_inputs: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the output may be timed."""
        return self.relative_error <= self.bound and not self.changed_inputs


def bytes_between_uses(model: ModelSpec, works: Sequence[Work]) -> int:
    """Fewest bytes of expert weights that a pass touches between two uses of one weight set.

    Works run in order, so that is the active experts of the layers of one iteration; the smallest iteration counts.
    With fewer weight sets than layers a set comes round sooner, by that factor.

    Args:
        model: the weights. works: of one pass.
    """
    expert_bytes = 3 * model.shape.intermediate_size * model.shape.hidden_size * _WEIGHT_BYTES[model.numeric_format]
    touched: dict[int, int] = {}
    for work in works:
        active = np.unique(work.topk_ids[work.topk_ids >= 0])
        if work.expert_map is not None:
            active = active[work.expert_map[active] >= 0]
        touched[work.iteration] = touched.get(work.iteration, 0) + len(active) * expert_bytes
    layers = max(len({work.layer for work in works}), 1)
    return min(touched.values(), default=0) * min(model.num_weight_sets, layers) // layers


def check_served_order(model: ModelSpec, works: Sequence[Work]) -> None:
    """Refuse ``served_order`` for less than every layer, each with weights of its own, in every iteration.

    Raises:
        MisuseError
    """
    places = [(work.iteration, work.layer) for work in works]
    layers = {iteration: [layer for other, layer in places if other == iteration] for iteration, _ in places}
    partial = [iteration for iteration, found in layers.items() if sorted(found) != sorted(model.layers)]
    if partial or model.num_weight_sets < len(model.layers) or places != sorted(places):
        own = f"{model.num_weight_sets} weight sets for {len(model.layers)} layers"
        raise errors.MisuseError(
            where="--cache-state served_order",
            expected="every MoE layer of each iteration, in order, each with weights of its own",
            found=f"iteration {partial[0]}: layers {sorted(layers[partial[0]])}" if partial else own,
            remedy="Leave --layers and --weight-sets out, or choose another cache state.",
        )


def check_cache_claim(state: str, *, touched_bytes: int, cache_bytes: int | None) -> None:
    """Refuse a cache state that the bytes touched between two uses of a weight cannot have achieved.

    Args:
        state: claimed. touched_bytes: from :func:`bytes_between_uses`, or of the flush buffer for ``cold``.
        cache_bytes: last-level cache of the device, None where unknown.

    Raises:
        MisuseError
    """
    if state not in CACHE_STATES:
        raise errors.MisuseError(
            where="--cache-state", expected=", ".join(CACHE_STATES), found=state, remedy="Choose one of them."
        )
    if state not in {"warm", "served_order"} and (cache_bytes is None or touched_bytes <= cache_bytes):
        raise errors.MisuseError(
            where=f"--cache-state {state}",
            expected=f"more bytes touched between two uses than the last-level cache holds ({cache_bytes})",
            found=f"{touched_bytes} bytes: in truth that is warm",
            remedy="Measure more layers or weight sets, or say --cache-state warm or cold.",
        )


class Runner(Protocol):
    """One kernel kind on one device."""

    name: str
    kernel_kind: str
    backend: str
    works_at_once: int
    """How many works one call of run_pass takes at most (whole iterations may exceed it); what is written together."""

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        """Conditions that hold for all works: device, versions, profiler, cache state.

        Raises:
            MisuseError: the condition cannot be achieved, so nothing may be measured under it.
        """

    def kernel_config_digest(self, work: Work) -> str | None:
        """Digest of the kernel configuration chosen for a work; None where the kind has none."""

    def surroundings(self) -> dict[str, str]:
        """Device identity, clocks, power, temperature and throttle reasons right now."""

    def check(self, work: Work, *, draw: int = 0) -> Checked:
        """Run once and compare with the float64 reference.

        Args:
            work: what to run. draw: which hidden states; 0 are those that are timed. Any other number gives states no
                call has seen before, so that a remembered output cannot pass.
        """

    def run_pass(
        self, works: Sequence[Work], condition: RunCondition, together: Together = alone
    ) -> ClockTimes | ProfiledTimes:
        """Run every work once, in order, and return the times.

        Args:
            works: what to run. condition: how. together: entered around each timed call, with its work; where a whole
                iteration is one call (a graph), with any work of it.
        """
