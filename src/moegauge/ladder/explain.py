"""Name the cause: one condition changed at a time, each effect with its interval, and what remains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from moegauge.ladder.alignment import Alignment
from moegauge.records.explanation import Effect, Explanation, PaddedRows
from moegauge.timing.uncertainty import MIN_PASSES, mean_interval

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Changed:
    """The exact inputs measured with one condition changed from the base."""

    condition: str
    base: str
    changed_to: str
    work: Alignment


def explain(base: Alignment, changed: Sequence[Changed], padded: PaddedRows | None) -> Explanation | None:
    """Split isolated minus served into effects and a residual.

    Args:
        base: the alignment that rung 2 uses. changed: what was measured with one condition changed.
        padded: what padded rows cost, if that was measured.

    Returns:
        None where no invocation is covered under the base and under every changed condition.
    """
    chosen = base.covered.copy()
    for one in changed:
        chosen &= one.work.covered
    if not chosen.any():
        return None
    left = int(base.left_ns[chosen].sum())
    right = base.right_mean_ns(chosen)
    effects = tuple(_effect(base, one, chosen, right - left) for one in changed)
    weights = [(base, Fraction(1 - len(changed))), *((one.work, Fraction(1)) for one in changed)]
    return Explanation(
        num_invocations=int(chosen.sum()),
        num_captured_invocations=len(base.iteration),
        left_ns=left,
        right_ns=right,
        diff_ns=right - left,
        effects=effects,
        residual_ns=right - left - sum(effect.effect_ns for effect in effects),
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
    effect = base.right_mean_ns(chosen) - one.work.right_mean_ns(chosen)
    return Effect(
        condition=one.condition,
        base=one.base,
        changed_to=one.changed_to,
        effect_ns=effect,
        share_ratio=effect / difference if difference else None,
        interval_ns=_interval([(base, Fraction(1)), (one.work, Fraction(-1))], chosen, taken=0),
    )


def _interval(
    weighted: Sequence[tuple[Alignment, Fraction]], chosen: BoolArray, *, taken: int
) -> tuple[int, int] | None:
    """Interval of a weighted sum of measured totals minus ``taken``, each measurement resampled on its own.

    Parts that both sides share (the same rows under the same passes) cancel before anything is resampled.
    """
    totals: dict[tuple[int, ...], Int64Array] = {}
    factors: dict[tuple[int, ...], Fraction] = {}
    for work, factor in weighted:
        for stratum in work.chosen_strata(chosen):
            key = (*stratum.pass_ids, 0, *stratum.members[chosen[stratum.members]].tolist())
            totals[key] = stratum.totals(chosen)
            factors[key] = factors.get(key, Fraction(0)) + factor
    parts = [int(factor) * totals[key] for key, factor in factors.items() if factor]
    if not parts:
        return (-taken, -taken)
    if min(len(part) for part in parts) < MIN_PASSES:
        return None
    ((low, high),) = mean_interval([part[:, None] for part in parts])
    return round(low) - taken, round(high) - taken
