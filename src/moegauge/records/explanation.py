"""How much of a difference a changed condition explains. Part of a ladder report."""

from __future__ import annotations

import msgspec

from moegauge.records.decision import Reason


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of an explanation."""


class Effect(_Plain, frozen=True, kw_only=True):
    """One condition changed, everything else held.

    Attributes:
        condition, base, changed_to: which, from what, to what.
        effect_ns: base measurement minus changed measurement: what of isolated minus served this condition accounts
            for, if serving had it; None where that was not measured.
        share_ratio: effect over the difference; None where there is no effect, or the difference is 0.
        interval_ns: 95 % interval of the effect; None where there is no effect, or with too few passes.
        unavailable: why there is no effect, and what to run; None where there is one.
    """

    condition: str
    base: str
    changed_to: str
    effect_ns: int | None
    share_ratio: float | None
    interval_ns: tuple[int, int] | None
    unavailable: Reason | None


class PaddedRows(_Plain, frozen=True, kw_only=True):
    """What the padded rows of graph iterations cost, from the same invocations measured without them.

    Attributes:
        num_invocations: padded invocations measured both ways.
        padded_rows, executed_rows: over those. rows_ratio: their quotient.
        with_ns, without_ns: isolated time with and without the padded rows. time_ratio: share that goes away.
        interval_ratio: 95 % interval of time_ratio; None with too few passes.
    """

    num_invocations: int
    padded_rows: int
    executed_rows: int
    rows_ratio: float
    with_ns: int
    without_ns: int
    time_ratio: float
    interval_ratio: tuple[float, float] | None


class Explanation(_Plain, frozen=True, kw_only=True):
    """Effects of conditions on rung 2 over the whole capture; effects and residual add up to the difference.

    Attributes:
        num_invocations: compared: covered under the base and under every changed condition that was measured.
        num_captured_invocations: of the capture.
        left_ns, right_ns: served and isolated time of those. diff_ns: right minus left.
        effects: by name of the condition.
        residual_ns: difference minus the sum of effects: what none of them explains. interval_ns: of the residual.
        padded_rows: None where nothing was measured without padding.
    """

    num_invocations: int
    num_captured_invocations: int
    left_ns: int
    right_ns: int
    diff_ns: int
    effects: tuple[Effect, ...]
    residual_ns: int
    residual_interval_ns: tuple[int, int] | None
    padded_rows: PaddedRows | None
