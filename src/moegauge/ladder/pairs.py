"""One comparison: totals of what both sides cover, the judgement, and everything that is not covered."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.evidence.digest import record_digest
from moegauge.ladder.alignment import Alignment
from moegauge.ladder.conditions import differing, unverified
from moegauge.ladder.judgement import CANCELLATION, UNVERIFIED_CONDITIONS, Question, judge
from moegauge.ladder.sides import TwoSides
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

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class RungInput:
    """What one rung is computed from.

    Attributes:
        sides: both sides. conditions: recorded on them. label: representation that feeds the right side.
        launch_mode_recorded: whether every covered invocation has a launch mode on both sides.
    """

    sides: TwoSides
    conditions: tuple[ConditionRow, ...]
    label: InputLabel
    launch_mode_recorded: bool


@dataclass(frozen=True)
class Context:
    """What all rungs share.

    Attributes:
        settings: tolerances and selection. links: evidence. num_ranks: of an invocation.
        rank_identity: what ties corresponding ranks.
    """

    settings: Settings
    links: Links
    num_ranks: int
    rank_identity: str


@dataclass(frozen=True)
class Scope:
    """What a pair covers: the captured invocations in question, those compared, and whether it is the whole capture."""

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


def _totals(rung: RungInput, chosen: BoolArray, invocation_tolerance: float) -> _Totals | None:
    sides, work = rung.sides, rung.sides.work
    if not chosen.any() or not work.chosen_strata(chosen):
        return None
    left = sides.left_each_ns[chosen]
    each = work.right_each_ns()[chosen] - left
    return _Totals(
        left_ns=sides.left_ns(chosen),
        right_ns=work.right_mean_ns(chosen),
        interval=sides.interval(chosen),
        num_passes=sides.num_passes(chosen),
        each_ns=each,
        num_beyond=int((np.abs(each) > invocation_tolerance * left).sum()),
    )


def _judged(rung: RungInput, scope: Scope, totals: _Totals) -> tuple[Status, Reason]:
    differs = differing(rung.conditions)
    other_mode = int((rung.sides.launch_mode_differs & scope.chosen).sum())
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
            num_kernel_sets_differ=int((rung.sides.kernels_differ & scope.chosen).sum()),
            num_unmatched=left_out + len(_loose_kernels(rung.sides, scope)),
        )
    )


def _nothing_compared(sides: TwoSides, scope: Scope) -> tuple[Status, Reason, int | None]:
    """Status, reason and the left side's lower bound where no unit is complete on both sides."""
    codes = sorted({sides.why[index] for index in np.flatnonzero(scope.captured & ~scope.chosen)} - {""})
    known = scope.captured & sides.left_known
    bound = int(sides.left_each_ns[known].sum()) if known.any() else None
    what = "; ".join(f"{code}{sides.work.missing_ranks_text * (code == 'RANK_MISSING')}" for code in codes)
    text = f"nothing to compare: {what or 'nothing captured'}" + (f"; left is at least {bound} ns" if bound else "")
    return Status.UNAVAILABLE, reason(codes[0] if codes else "NOTHING_CAPTURED", text), bound


def _decided(rung: RungInput, scope: Scope, totals: _Totals, *, cancels: bool) -> tuple[Status, Reason, list[str]]:
    """Status, reason and flags of a pair with totals."""
    status, why = _judged(rung, scope, totals)
    flags = []
    missing = unverified(rung.conditions, {"launch_mode": not rung.launch_mode_recorded})
    if missing:
        flags.append(UNVERIFIED_CONDITIONS)
        why = Reason(code=why.code, sentence=f"{why.sentence}; not verified: {', '.join(missing)}")
    keys = rung.sides.work.iteration if scope.whole_capture else rung.sides.work.layer
    if cancels and rung.sides.is_cancellation(scope.chosen, keys, tolerance=scope.tolerance):
        flags.append(CANCELLATION)
    return status, why, flags


def pair_of(context: Context, rung: RungInput, scope: Scope, *, cancels: bool) -> Pair:
    """Compare the two sides over a scope.

    Args:
        context: shared by all rungs. rung: both sides. scope: what is compared.
        cancels: whether its units are checked for cancellation.
    """
    sides, work = rung.sides, rung.sides.work
    totals = _totals(rung, scope.chosen, context.settings.invocation_tolerance_ratio)
    bound: int | None = None
    flags: list[str] = []
    if totals is None:
        status, why, bound = _nothing_compared(sides, scope)
    else:
        status, why, flags = _decided(rung, scope, totals, cancels=cancels)
    kernels = _loose_kernels(sides, scope)
    spare = (*_right_left_out(work, scope), *work.right_unmatched) if scope.whole_capture else ()
    left_captured = sides.left_ns(scope.captured & sides.left_known)
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
        unmatched=(*_left_out(sides, scope.captured & ~scope.chosen), *kernels, *spare),
        sum_abs_layer_diff_ns=int(np.abs(totals.each_ns).sum()) if totals else None,
        num_beyond_invocation_tolerance=totals.num_beyond if totals else None,
        origin=Origin.MEASURED,
        tolerance_ratio=scope.tolerance,
        selection=scope.selection,
        corresponding_ranks=_rank_pairs(context, sides, scope.chosen) if totals else None,
        input=_labelled(rung, scope.chosen),
        links=context.links,
    )


def _loose_kernels(sides: TwoSides, scope: Scope) -> tuple[Unmatched, ...]:
    """Served kernels that belong to no invocation; they stand against a total of the whole capture only."""
    return sides.work.left_unmatched_kernels if scope.whole_capture and sides.base is None else ()


def _right_left_out(work: Alignment, scope: Scope) -> tuple[Unmatched, ...]:
    """Measured invocations that are complete but not compared, since their iteration is not."""
    left_out = work.covered & scope.captured & ~scope.chosen
    if not left_out.any():
        return ()
    what, num = "measured invocations of iterations that are not complete", int(left_out.sum())
    return (Unmatched(side="right", what=what, why="NOT_ALL_MATCHED", num=num, ns=work.right_mean_ns(left_out)),)


def _labelled(rung: RungInput, chosen: BoolArray) -> InputLabel:
    """The label of the right side's input with the digest of the chosen invocations' inputs."""
    matches = rung.sides.work.match
    return msgspec.structs.replace(rung.label, digest=record_digest([matches[i] for i in np.flatnonzero(chosen)]))


def _left_out(sides: TwoSides, left_out: BoolArray) -> list[Unmatched]:
    """Captured invocations a pair does not cover, one entry a reason."""
    found = []
    work = sides.work
    codes = [code or "NOT_ALL_MATCHED" for code in sides.why]
    for code in sorted({codes[index] for index in np.flatnonzero(left_out)}):
        mask = left_out & np.array([one == code for one in codes], dtype=bool)
        timed = mask & sides.left_known
        numbers = np.unique(work.iteration[mask])
        listed = ", ".join(map(str, numbers[:8])) + (f", ... ({len(numbers)} in all)" if len(numbers) > 8 else "")
        found.append(
            Unmatched(
                side="left",
                what=f"invocations of iterations {listed}" + work.missing_ranks_text * (code == "RANK_MISSING"),
                why=code,
                num=int(mask.sum()),
                ns=int(sides.left_each_ns[timed].sum()) if timed.any() else None,
            )
        )
    return found


def _rank_pairs(context: Context, sides: TwoSides, chosen: BoolArray) -> tuple[RankPair, ...] | None:
    """Totals of corresponding ranks over the chosen invocations; None where there is one rank."""
    if context.num_ranks == 1:
        return None
    place = ["iteration", "layer"]
    keys = pl.DataFrame({"iteration": sides.work.iteration[chosen], "layer": sides.work.layer[chosen]})
    keys = keys.with_columns(pl.col(place).cast(pl.Int32))
    rows = sides.work.rank_rows.join(keys, on=place)
    if sides.base is not None:
        left = sides.base.rank_rows.select(*place, "rank", pl.col("right_ns").alias("left_ns"))
        rows = rows.drop("left_ns").join(left, on=[*place, "rank"])
    sums = rows.group_by("rank").agg(pl.col("left_ns").sum(), pl.col("right_ns").sum()).sort("rank")
    return tuple(
        RankPair(
            rank=rank,
            identity=context.rank_identity,
            left_ns=left,
            right_ns=right,
            diff_ns=right - left,
            relative_ratio=(right - left) / left if left else None,
        )
        for rank, left, right in sums.select("rank", "left_ns", "right_ns").iter_rows()
    )
