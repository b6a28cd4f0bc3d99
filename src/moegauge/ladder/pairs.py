"""One comparison: totals of what both sides cover, the judgement, and everything that is not covered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.evidence.digest import record_digest
from moegauge.kernels.trace import NONE
from moegauge.ladder.alignment import Alignment
from moegauge.ladder.conditions import differing, unverified
from moegauge.ladder.judgement import (
    CANCELLATION,
    UNVERIFIED_CONDITIONS,
    Question,
    is_cancellation,
    judge,
    relative_interval,
)
from moegauge.records.comparison import (
    ConditionRow,
    InputLabel,
    Links,
    Pair,
    RankPair,
    Selection,
    Settings,
    Sides,
    Unmatched,
)
from moegauge.records.decision import Reason, Status, reason
from moegauge.records.measurement import Origin
from moegauge.timing.reduction import total_by

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class LadderInput:
    """Everything a ladder is computed from.

    Attributes:
        work: the aligned sides. settings: tolerances and selection. conditions: both sides.
        launch_mode_recorded: whether both sides record the launch mode of every covered invocation.
        links: evidence. num_ranks: of an invocation. rank_identity: what ties corresponding ranks.
    """

    work: Alignment
    settings: Settings
    conditions: tuple[ConditionRow, ...]
    launch_mode_recorded: bool
    links: Links
    num_ranks: int
    rank_identity: str


@dataclass(frozen=True)
class Scope:
    """What a pair covers: the captured invocations in question, those compared, and which unit cancels."""

    captured: BoolArray
    chosen: BoolArray
    selection: Selection
    tolerance: float
    whole_capture: bool


@dataclass(frozen=True)
class _Totals:
    """Times of the invocations that are complete on both sides."""

    left_ns: int
    right_ns: int
    interval: tuple[float, float] | None
    num_passes: int
    each_ns: Int64Array
    num_beyond: int


def _totals(ladder: LadderInput, chosen: BoolArray) -> _Totals | None:
    work = ladder.work
    strata = work.chosen_strata(chosen)
    if not strata:
        return None
    left_ns = int(work.left_ns[chosen].sum())
    each = work.right_each_ns()[chosen] - work.left_ns[chosen]
    beyond = np.abs(each) > ladder.settings.invocation_tolerance_ratio * work.left_ns[chosen]
    return _Totals(
        left_ns=left_ns,
        right_ns=work.right_mean_ns(chosen),
        interval=relative_interval(left_ns, [stratum.totals(chosen) for stratum in strata]),
        num_passes=min(len(stratum.pass_ids) for stratum in strata),
        each_ns=each,
        num_beyond=int(beyond.sum()),
    )


def _judged(ladder: LadderInput, scope: Scope, totals: _Totals) -> tuple[Status, Reason]:
    work = ladder.work
    differs = differing(ladder.conditions)
    other_mode = int((work.launch_mode_differs & scope.chosen).sum())
    if other_mode:
        differs.append(f"launch_mode ({other_mode} invocations)")
    left_out = int((scope.captured & ~scope.chosen).sum())
    return judge(
        Question(
            left_ns=totals.left_ns,
            right_ns=totals.right_ns,
            interval=totals.interval,
            num_passes=totals.num_passes,
            tolerance=scope.tolerance,
            differing=differs,
            num_kernel_sets_differ=int((work.kernels_differ & scope.chosen).sum()),
            num_unmatched=left_out + len(work.left_unmatched_kernels) * scope.whole_capture,
        )
    )


def _nothing_compared(work: Alignment, scope: Scope) -> tuple[Status, Reason, int | None]:
    """Status, reason and the left side's lower bound where no unit is complete on both sides."""
    codes = sorted({work.why[index] for index in np.flatnonzero(scope.captured & ~scope.chosen)} - {""})
    known = scope.captured & work.left_known
    bound = int(work.left_ns[known].sum()) if known.any() else None
    what = "; ".join(f"{code}{work.missing_ranks_text * (code == 'RANK_MISSING')}" for code in codes)
    text = f"nothing to compare: {what or 'nothing captured'}" + (f"; left is at least {bound} ns" if bound else "")
    return Status.UNAVAILABLE, reason(codes[0] if codes else "NOTHING_CAPTURED", text), bound


def pair_of(ladder: LadderInput, scope: Scope, *, cancels: bool) -> Pair:
    """Compare the two sides over a scope.

    Args:
        ladder: both sides. scope: what is compared. cancels: whether its units are checked for cancellation.
    """
    work = ladder.work
    totals = _totals(ladder, scope.chosen)
    bound = None
    if totals is None:
        status, why, bound = _nothing_compared(work, scope)
    else:
        status, why = _judged(ladder, scope, totals)
    missing = unverified(ladder.conditions, {"launch_mode": not ladder.launch_mode_recorded})
    flags = [UNVERIFIED_CONDITIONS] * bool(missing and totals)
    if cancels and totals and _cancellation(work, scope):
        flags.append(CANCELLATION)
    if missing and totals:
        why = Reason(code=why.code, sentence=f"{why.sentence}; not verified: {', '.join(missing)}")
    kernels = work.left_unmatched_kernels if scope.whole_capture else ()
    spare = work.right_unmatched if scope.whole_capture else ()
    left_captured = int(work.left_ns[scope.captured & work.left_known].sum())
    diff = totals.right_ns - totals.left_ns if totals else None
    return Pair(
        status=status,
        reason=why,
        flags=tuple(flags),
        left_ns=totals.left_ns if totals else None,
        right_ns=totals.right_ns if totals else None,
        diff_ns=diff,
        abs_diff_ns=None if diff is None else abs(diff),
        relative_ratio=diff / totals.left_ns if totals and diff is not None and totals.left_ns else None,
        interval_ratio=totals.interval if totals else None,
        num_passes=totals.num_passes if totals else None,
        num_iterations=len(np.unique(work.iteration[scope.chosen])),
        num_invocations=int(scope.chosen.sum()),
        num_captured_invocations=Sides(
            left=int(scope.captured.sum()), right=int(scope.chosen.sum()) + sum(entry.num for entry in spare)
        ),
        captured_ns=Sides(
            left=left_captured + sum(entry.ns or 0 for entry in kernels),
            right=(totals.right_ns if totals else 0) + sum(entry.ns or 0 for entry in spare),
        ),
        lower_bound_ns=Sides(left=bound, right=None),
        unmatched=(*_left_out(work, scope.captured & ~scope.chosen), *kernels, *spare),
        sum_abs_layer_diff_ns=int(np.abs(totals.each_ns).sum()) if totals else None,
        num_beyond_invocation_tolerance=totals.num_beyond if totals else None,
        origin=Origin.MEASURED,
        tolerance_ratio=scope.tolerance,
        selection=scope.selection,
        corresponding_ranks=_rank_pairs(ladder, scope.chosen) if totals else None,
        input=_input_label(work, scope.chosen),
        links=ladder.links,
    )


def _input_label(work: Alignment, chosen: BoolArray) -> InputLabel:
    digest = record_digest([work.match[index] for index in np.flatnonzero(chosen)])
    return InputLabel(type="exact", window=None, sampler=None, version=None, seed=None, digest=digest)


def _left_out(work: Alignment, left_out: BoolArray) -> list[Unmatched]:
    """Captured invocations a pair does not cover, one entry a reason."""
    found = []
    codes = [work.why[index] or "NOT_ALL_MATCHED" for index in range(len(work.why))]
    for code in sorted({codes[index] for index in np.flatnonzero(left_out)}):
        mask = left_out & np.array([one == code for one in codes], dtype=bool)
        timed = mask & work.left_known
        numbers = np.unique(work.iteration[mask])
        listed = ", ".join(map(str, numbers[:8])) + (f", ... ({len(numbers)} in all)" if len(numbers) > 8 else "")
        found.append(
            Unmatched(
                side="left",
                what=f"invocations of iterations {listed}" + work.missing_ranks_text * (code == "RANK_MISSING"),
                why=code,
                num=int(mask.sum()),
                ns=int(work.left_ns[timed].sum()) if timed.any() else None,
            )
        )
    return found


def _cancellation(work: Alignment, scope: Scope) -> bool:
    """Units of a capture-wide total are its iterations; of one iteration, its layers."""
    keys = work.iteration if scope.whole_capture else work.layer
    units, index = np.unique(keys[scope.chosen], return_inverse=True)
    unit_of = np.full(len(keys), NONE, dtype=np.int64)
    unit_of[scope.chosen] = index
    left = total_by(index.astype(np.int64), work.left_ns[scope.chosen], num_groups=len(units))
    samples = []
    for stratum in work.chosen_strata(scope.chosen):
        mine = scope.chosen[stratum.members]
        samples.append((unit_of[stratum.members[mine]], stratum.samples[:, mine]))
    return is_cancellation(left, samples, tolerance=scope.tolerance)


def _rank_pairs(ladder: LadderInput, chosen: BoolArray) -> tuple[RankPair, ...] | None:
    """Totals of corresponding ranks over the chosen invocations; None where there is one rank."""
    if ladder.num_ranks == 1:
        return None
    work = ladder.work
    keys = pl.DataFrame({"iteration": work.iteration[chosen], "layer": work.layer[chosen]})
    rows = work.rank_rows.with_columns(pl.col("iteration", "layer").cast(pl.Int64)).join(
        keys, on=["iteration", "layer"]
    )
    sums = rows.group_by("rank").agg(pl.col("left_ns").sum(), pl.col("right_ns").sum()).sort("rank")
    return tuple(
        RankPair(
            rank=rank,
            identity=ladder.rank_identity,
            left_ns=left,
            right_ns=right,
            diff_ns=right - left,
            relative_ratio=(right - left) / left if left else None,
        )
        for rank, left, right in sums.iter_rows()
    )
