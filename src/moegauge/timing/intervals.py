"""Half-open intervals in integer ns: the only busy union of the package, with span, gaps and co-running time.

A group is whatever is measured as one: an invocation on one rank, say. Intervals of one group must come from one
device; devices are never merged. The order of the input does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_OFFSET_LIMIT = 1 << 62


@dataclass(frozen=True)
class Occupancy:
    """Reduction of intervals by group; each field is int64 [num_groups].

    Attributes:
        busy_ns: length of the union.
        sum_ns: sum of the durations (never compared; a name of its own so that it is not mistaken for busy).
        start_ns, end_ns: first start and last end.
        num_intervals: how many intervals the group has; 0 means that all other fields are 0 and mean nothing.
    """

    busy_ns: Int64Array
    sum_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    num_intervals: Int64Array

    @property
    def span_ns(self) -> Int64Array:
        """Last end minus first start."""
        return self.end_ns - self.start_ns

    @property
    def gap_ns(self) -> Int64Array:
        """Time inside the span in which the group did not run."""
        return self.span_ns - self.busy_ns


def occupancy(group: Int64Array, start_ns: Int64Array, end_ns: Int64Array, *, num_groups: int) -> Occupancy:
    """Reduce intervals by group: the busy union, and beside it sum, span and count.

    Args:
        group: int64 [n], group index 0..num_groups-1 of each interval.
        start_ns, end_ns: int64 [n]; half-open [start, end).
        num_groups: number of groups; groups without an interval read as num_intervals 0.

    Raises:
        ValueError: an interval ends before it starts.
    """
    if (end_ns < start_ns).any():
        raise ValueError("an interval ends before it starts")
    zeros = np.zeros(num_groups, dtype=np.int64)
    if len(group) == 0:
        return Occupancy(zeros, zeros, zeros, zeros, zeros)
    order = np.lexsort((start_ns, group))
    group, start, end = group[order], start_ns[order], end_ns[order]
    heads = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    present = group[heads]
    out = {name: zeros.copy() for name in ("busy", "sum", "start", "end", "num")}
    out["start"][present] = start[heads]
    out["end"][present] = np.maximum.reduceat(end, heads)
    out["num"][present] = np.diff(np.r_[heads, len(group)])
    out["sum"][present] = np.add.reduceat(end - start, heads)
    out["busy"][present] = np.add.reduceat(_fresh_time(heads, start, end), heads)
    return Occupancy(out["busy"], out["sum"], out["start"], out["end"], out["num"])


def busy_union(start_ns: Int64Array, end_ns: Int64Array) -> int:
    """Length of the union of half-open intervals of one device.

    Args:
        start_ns, end_ns: int64 [n], any order.
    """
    return int(occupancy(np.zeros(len(start_ns), dtype=np.int64), start_ns, end_ns, num_groups=1).busy_ns[0])


def union_segments(start_ns: Int64Array, end_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The union as disjoint, ascending segments (touching intervals join)."""
    if len(start_ns) == 0:
        return start_ns.astype(np.int64), end_ns.astype(np.int64)
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], np.maximum.accumulate(end_ns[order])
    heads = np.flatnonzero(np.r_[True, start[1:] > end[:-1]])
    return start[heads], end[np.r_[heads[1:] - 1, len(end) - 1]]


def covered_within(
    start_ns: Int64Array, end_ns: Int64Array, window_start_ns: Int64Array, window_end_ns: Int64Array
) -> Int64Array:
    """How much of each window the union of the intervals covers; int64 [num_windows].

    Args:
        start_ns, end_ns: int64 [n], the intervals.
        window_start_ns, window_end_ns: int64 [m], the windows.
    """
    if len(start_ns) == 0:
        return np.zeros(len(window_start_ns), dtype=np.int64)
    start, end = union_segments(start_ns, end_ns)
    before = np.r_[0, np.cumsum(end - start)].astype(np.int64)

    def covered_until(moment: Int64Array) -> Int64Array:
        index = np.searchsorted(start, moment, side="right")
        last = np.maximum(index - 1, 0)
        overshoot = np.maximum(end[last] - moment, 0)
        return np.asarray(before[index] - np.where(index > 0, overshoot, 0), dtype=np.int64)

    return covered_until(window_end_ns) - covered_until(window_start_ns)


def _fresh_time(heads: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """Time each interval adds to the union of those before it in its group (sorted by group, then start)."""
    counts = np.diff(np.r_[heads, len(start)])
    base = np.repeat(start[heads], counts)
    relative_start, relative_end = start - base, end - base
    stride = int(relative_end.max()) + 1
    groups_at_once = max(1, _OFFSET_LIMIT // stride)
    fresh = np.empty(len(start), dtype=np.int64)
    bounds = np.r_[heads, len(start)]
    for first in range(0, len(heads), groups_at_once):
        last = min(first + groups_at_once, len(heads))
        rows = slice(int(bounds[first]), int(bounds[last]))
        shift = np.repeat(np.arange(last - first, dtype=np.int64) * stride, counts[first:last])
        reach = np.maximum.accumulate(relative_end[rows] + shift)
        seen = np.maximum(np.r_[np.int64(0), reach[:-1]], shift)
        fresh[rows] = np.maximum(relative_end[rows] + shift - np.maximum(relative_start[rows] + shift, seen), 0)
    return fresh
