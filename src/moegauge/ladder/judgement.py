"""From two totals to a status. Every rule of the verdict stands here once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge.records.decision import Reason, Status, reason
from moegauge.timing.uncertainty import MIN_PASSES, mean_interval, significant

Int64Array = NDArray[np.int64]

UNVERIFIED_CONDITIONS = "UNVERIFIED_CONDITIONS"
CANCELLATION = "CANCELLATION"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a pair is judged by.

    Attributes:
        left_ns, right_ns: the totals. interval: (low, high) of the relative difference, None with too few passes.
        num_passes: fewest passes of any part. tolerance: of |relative|.
        differing: recorded conditions that differ (launch mode included). num_kernel_sets_differ: invocations.
        num_unmatched: captured invocations on the left that no comparison covers.
    """

    left_ns: int
    right_ns: int
    interval: tuple[float, float] | None
    num_passes: int
    tolerance: float
    differing: Sequence[str]
    num_kernel_sets_differ: int
    num_unmatched: int


def judge(question: Question) -> tuple[Status, Reason]:
    """Apply the rules in order; the first that applies decides."""
    if question.left_ns == 0:
        return Status.UNAVAILABLE, reason(
            "LEFT_IS_ZERO", "the left time is 0 ns, so the relative difference is undefined"
        )
    point = (question.right_ns - question.left_ns) / question.left_ns
    if question.interval is None:
        passes = f"{question.num_passes} of {MIN_PASSES} passes measured"
        text = f"{passes}; the point estimate is {point:+.3%}, without an interval"
        return Status.INCONCLUSIVE, reason("TOO_FEW_PASSES", text)
    low, high = question.interval
    span = f"{point:+.3%} [{low:+.3%}, {high:+.3%}]"
    if question.differing:
        text = f"{span}, but {', '.join(question.differing)} differs between the sides"
        return Status.INCONCLUSIVE, reason("CONDITION_DIFFERS", text)
    if question.num_kernel_sets_differ:
        text = f"{span}, but {question.num_kernel_sets_differ} invocations ran other kernels on the two sides"
        return Status.INCONCLUSIVE, reason("KERNEL_SET_DIFFERS", text)
    if low > question.tolerance or high < -question.tolerance:
        return Status.DIVERGED, reason("BEYOND_TOLERANCE", f"{span} lies outside ±{question.tolerance:.1%}")
    if low < -question.tolerance or high > question.tolerance:
        return Status.INCONCLUSIVE, reason(
            "STRADDLES_TOLERANCE", f"{span} contains a bound of ±{question.tolerance:.1%}"
        )
    if question.num_unmatched:
        text = f"{span} over what is covered, but {question.num_unmatched} captured invocations have no counterpart"
        return Status.INCONCLUSIVE, reason("NOT_ALL_MATCHED", text)
    return Status.MATCH, reason("WITHIN_TOLERANCE", f"{span} lies inside ±{question.tolerance:.1%}")


def relative_interval(
    left_ns: int, right: Sequence[Int64Array], left: Sequence[Int64Array] | None = None
) -> tuple[float, float] | None:
    """Interval of the relative difference of a total, or None with too few passes or a left of 0.

    Args:
        left_ns: the left total (its mean where it was measured).
        right: for each stratum int64 [num_passes], the right total pass by pass.
        left: the same for a left side that was measured too; None where it was served.
    """
    totals = [*right, *(-one for one in left or ())]
    if left_ns == 0 or not totals or min(len(stratum) for stratum in totals) < MIN_PASSES:
        return None
    ((low, high),) = mean_interval([stratum[:, None] for stratum in totals])
    taken = left_ns if left is None else 0
    return (low - taken) / left_ns, (high - taken) / left_ns


@dataclass(frozen=True)
class Units:
    """The units a total is made of.

    Attributes:
        left_ns: int64 [num_units], left time of each.
        subtract_left: whether the difference is samples minus left_ns; False where the samples already hold both
            sides (the left one negative).
        samples: for each stratum (int64 [n], its units; int64 [num_passes, n], its time of each pass).
    """

    left_ns: Int64Array
    subtract_left: bool
    samples: Sequence[tuple[Int64Array, Int64Array]]


def is_cancellation(units: Units, *, tolerance: float) -> bool:
    """Whether agreement of a total is cancellation between its units.

    Units (layers of an iteration, iterations of a capture) whose own interval excludes 0 are significant. Flagged:
    the sum of their |d| exceeds the tolerance, |sum of all d| does not, and the smaller of the positive and the
    negative significant sums exceeds half the tolerance. Significance is judged for all units together, so that noise
    alone hardly ever does that.

    Args:
        units: the units. tolerance: of |relative| of the total.
    """
    total, size = int(units.left_ns.sum()), len(units.left_ns)
    if total == 0 or not units.samples or min(len(table) for _, table in units.samples) < MIN_PASSES:
        return False
    spread = [_spread(index, table, size) for index, table in units.samples]
    taken = units.left_ns if units.subtract_left else np.zeros(size, dtype=np.int64)
    difference = np.sum([table.mean(axis=0) for table in spread], axis=0) - taken
    counted = np.where(significant(difference, spread), difference, 0.0)
    positive, negative = counted[counted > 0].sum(), -counted[counted < 0].sum()
    return bool(
        positive + negative > tolerance * total
        and abs(difference.sum()) <= tolerance * total
        and min(positive, negative) > tolerance * total / 2
    )


def _spread(units: Int64Array, table: Int64Array, size: int) -> Int64Array:
    """Columns of a stratum added into all units. [num_passes, size]"""
    out = np.zeros((len(table), size), dtype=np.int64)
    np.add.at(out.T, units, table.T)
    return out
