"""From ranks to an invocation, from layers to an iteration. One implementation for both sides of every rung."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class CriticalRank:
    """The rank with the largest busy union of each invocation.

    Attributes:
        busy_ns: int64 [num_invocations], its time.
        rank: int64 [num_invocations], its number (the lowest on a tie; -1 where no rank was recorded).
        num_ranks: int64 [num_invocations], recorded ranks. Fewer than declared makes ``busy_ns`` a lower bound.
    """

    busy_ns: Int64Array
    rank: Int64Array
    num_ranks: Int64Array


def critical_rank(
    invocation: Int64Array, rank: Int64Array, busy_ns: Int64Array, *, num_invocations: int
) -> CriticalRank:
    """Reduce rank rows to one row an invocation.

    Args:
        invocation: int64 [n], invocation index 0..num_invocations-1 of each rank row.
        rank: int64 [n].
        busy_ns: int64 [n], 0 for a rank that was declared to have no tokens.
        num_invocations: number of invocations.

    Raises:
        ValueError: a rank stands twice in one invocation.
    """
    order = np.lexsort((rank, -busy_ns, invocation))
    invocation, rank, busy_ns = invocation[order], rank[order], busy_ns[order]
    pairs = np.unique(np.stack([invocation, rank]), axis=1)
    if pairs.shape[1] != len(invocation):
        raise ValueError("a rank stands twice in one invocation")
    heads = np.flatnonzero(np.r_[True, invocation[1:] != invocation[:-1]]) if len(invocation) else np.zeros(0, int)
    present = invocation[heads]
    time = np.zeros(num_invocations, dtype=np.int64)
    number = np.full(num_invocations, -1, dtype=np.int64)
    time[present] = busy_ns[heads]
    number[present] = rank[heads]
    return CriticalRank(time, number, np.bincount(invocation, minlength=num_invocations).astype(np.int64))


def total_by(group: Int64Array, ns: Int64Array, *, num_groups: int) -> Int64Array:
    """Sum of integer ns by group; exact (no float in between)."""
    out = np.zeros(num_groups, dtype=np.int64)
    np.add.at(out, group, ns)
    return out


def lower_median_index(ns: Int64Array) -> int:
    """Index of the lower median; the lowest index on a tie.

    Raises:
        ValueError: nothing to take a median of.
    """
    if len(ns) == 0:
        raise ValueError("the median of nothing")
    value = np.sort(ns)[(len(ns) - 1) // 2]
    return int(np.flatnonzero(ns == value)[0])
