"""Name the cause: one condition changed at a time, each effect with its interval, and what remains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from moegauge.ladder.alignment import Alignment
from moegauge.records.decision import Reason
from moegauge.records.explanation import Effect, Explanation, PaddedRows
from moegauge.timing.uncertainty import MIN_PASSES, mean_interval

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Changed:
    """The exact inputs measured with one condition changed from the base; or why they were not."""

    condition: str
    base: str
    changed_to: str
    work: Alignment | Reason


def explain(base: Alignment, changed: Sequence[Changed], padded: PaddedRows | None) -> Explanation | None:
    """Split isolated minus served into effects and a residual.

    Args:
        base: the alignment that rung 2 uses. changed: what was measured with one condition changed.
        padded: what padded rows cost, if that was measured.

    Returns:
        None where no invocation is covered under the base and under every changed condition that was measured.
    """
    works = [one.work for one in changed if isinstance(one.work, Alignment)]
    chosen = base.covered.copy()
    for work in works:
        chosen &= work.covered
    if not chosen.any():
        return None
    left = int(base.left_ns[chosen].sum())
    right = base.right_mean_ns(chosen)
    effects = tuple(_effect(base, one, chosen, right - left) for one in changed)
    weights = [(base, Fraction(1 - len(works))), *((work, Fraction(1)) for work in works)]
    return Explanation(
        num_invocations=int(chosen.sum()),
        num_captured_invocations=len(base.iteration),
        left_ns=left,
        right_ns=right,
        diff_ns=right - left,
        effects=effects,
        residual_ns=right - left - sum(effect.effect_ns or 0 for effect in effects),
        residual_interval_ns=_interval(weights, chosen, taken=left),
        padded_rows=padded,
    )


def padded_cost(
    base: Alignment, unpadded: Alignment, executed_rows: Int64Array, logical_rows: Int64Array
) -> PaddedRows | None:
    """What padded rows cost in rows and in time.

    Args:
        base: exact inputs with their padded rows. unpadded: the same invocations without them.
        executed_rows, logical_rows: int64 [n], rows of each invocation (of its critical rank's kernel).

    Returns:
        None where no padded invocation was measured both ways.
    """
    chosen = base.covered & unpadded.covered & (executed_rows > logical_rows)
    if not chosen.any():
        return None
    executed, logical = int(executed_rows[chosen].sum()), int(logical_rows[chosen].sum())
    with_ns, without_ns = base.right_mean_ns(chosen), unpadded.right_mean_ns(chosen)
    interval = _interval([(base, Fraction(1)), (unpadded, Fraction(-1))], chosen, taken=0)
    return PaddedRows(
        num_invocations=int(chosen.sum()),
        padded_rows=executed - logical,
        executed_rows=executed,
        rows_ratio=(executed - logical) / executed,
        with_ns=with_ns,
        without_ns=without_ns,
        time_ratio=(with_ns - without_ns) / with_ns,
        interval_ratio=None if interval is None else (interval[0] / with_ns, interval[1] / with_ns),
    )


def _effect(base: Alignment, one: Changed, chosen: BoolArray, difference: int) -> Effect:
    words = {"condition": one.condition, "base": one.base, "changed_to": one.changed_to}
    if isinstance(one.work, Reason):
        return Effect(**words, effect_ns=None, share_ratio=None, interval_ns=None, unavailable=one.work)
    effect = base.right_mean_ns(chosen) - one.work.right_mean_ns(chosen)
    return Effect(
        **words,
        effect_ns=effect,
        share_ratio=effect / difference if difference else None,
        interval_ns=_interval([(base, Fraction(1)), (one.work, Fraction(-1))], chosen, taken=0),
        unavailable=None,
    )


def _interval(
    weighted: Sequence[tuple[Alignment, Fraction]], chosen: BoolArray, *, taken: int
) -> tuple[int, int] | None:
    """Interval of a weighted sum of measured totals minus ``taken``, each measurement resampled on its own.

    A pass may stand in several of the alignments, with the same rows; its weights are added up before anything is
    resampled, so that what is shared cancels. Passes that stand in the same alignments are resampled together.
    """
    groups = [(weight * len(totals), totals) for weight, totals in _weighted_passes(weighted, chosen) if weight]
    if not groups:
        return (-taken, -taken)
    if min(len(totals) for _, totals in groups) < MIN_PASSES:
        return None
    common = lcm(*(weight.denominator for weight, _ in groups))
    ((low, high),) = mean_interval([int(weight * common) * np.array(totals)[:, None] for weight, totals in groups])
    return round(low / common) - taken, round(high / common) - taken


def _weighted_passes(
    weighted: Sequence[tuple[Alignment, Fraction]], chosen: BoolArray
) -> list[tuple[Fraction, list[int]]]:
    """(weight of each pass, totals of the passes) of every group of passes that stand in the same strata.

    A pass is known by its number, its rows and its total: ranks measured one at a time have pairs of passes, which are
    numbered alike in every alignment.
    """
    weights: dict[tuple[int, bytes, int], Fraction] = {}
    strata: dict[tuple[int, bytes, int], tuple[tuple[int, int], ...]] = {}
    for number, (work, factor) in enumerate((work, factor) for work, factor in weighted if factor):
        for index, stratum in enumerate(work.chosen_strata(chosen)):
            members = stratum.members[chosen[stratum.members]].tobytes()
            for pass_id, total in zip(stratum.pass_ids, stratum.totals(chosen).tolist(), strict=True):
                one = (pass_id, members, total)
                weights[one] = weights.get(one, Fraction(0)) + factor / len(stratum.pass_ids)
                strata[one] = (*strata.get(one, ()), (number, index))
    groups: dict[tuple[tuple[int, int], ...], list[tuple[int, bytes, int]]] = {}
    for one, where in strata.items():
        groups.setdefault(where, []).append(one)
    return [(weights[ones[0]], [total for *_, total in ones]) for ones in groups.values()]
