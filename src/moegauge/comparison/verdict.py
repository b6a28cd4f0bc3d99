"""The verdict of a comparison: exactness first, then time. Everything follows from the raw observations.

The time of an arm is the median of its calls. A block's ratio is head's served-weighted time over base's; a drift that
is linear in time cancels in A-B-B-A. The interval is that of the mean over blocks (timing/uncertainty.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from moegauge.records.decision import Reason, Status, reason
from moegauge.records.kernel_compare import (
    BitsObservation,
    CompareBlock,
    Exactness,
    Loss,
    Options,
    Raw,
    Result,
    SideBits,
    StratumTime,
    TimeRatio,
)
from moegauge.timing.uncertainty import MIN_PASSES, mean_interval

_BILLION = 1_000_000_000
"""Ratios are resampled as whole billionths, since the interval is one of integers."""

Float64Array = NDArray[np.float64]
_Judged = tuple[Status, Reason]


def exactness(raw: Raw, options: Options) -> Exactness:
    """The classes of exactness over all compared invocations."""
    bound = options.bound_ratio
    return Exactness(
        bit_exact=all(one.mismatch is None for one in raw.bits),
        base_repeatable=_every(raw.bits, lambda one: one.base, _repeats),
        head_repeatable=_every(raw.bits, lambda one: one.head, _repeats),
        base_batch_invariant=_every(raw.bits, lambda one: one.base, _invariant),
        head_batch_invariant=_every(raw.bits, lambda one: one.head, _invariant),
        within_bound=None
        if bound is None
        else all(one.head.error_ratio is not None and one.head.error_ratio <= bound for one in raw.bits),
    )


def _every(
    bits: Sequence[BitsObservation], side: Callable[[BitsObservation], SideBits], holds: Callable[[SideBits], bool]
) -> bool:
    return all(holds(side(one)) for one in bits)


def _repeats(side: SideBits) -> bool:
    return side.output_digest == side.again_digest


def _invariant(side: SideBits) -> bool:
    return side.in_batch_digest == side.alone_digest


def exactness_failure(raw: Raw, options: Options) -> _Judged | None:
    """Why head may not be timed against base; None where it may."""
    found = exactness(raw, options)
    if not raw.invocations:
        return Status.INCONCLUSIVE, reason("NOTHING_CAPTURED", "No served invocation was compared.")
    changed = sorted({name for one in raw.bits for name in one.changed_inputs})
    if changed:
        return Status.DIVERGED, reason("INPUT_CHANGED", f"A side changed {', '.join(changed)}.")
    if found.within_bound is None:
        return _bits_failure(raw, found)
    if not found.within_bound:
        return Status.DIVERGED, reason(
            "BEYOND_ERROR_BOUND", f"Head's error against float64 exceeds the declared bound {options.bound_ratio}."
        )
    return None


def _bits_failure(raw: Raw, found: Exactness) -> _Judged | None:
    """Without a declared bound, nothing but equal bits passes."""
    if not found.base_repeatable:
        return Status.INCONCLUSIVE, reason(
            "BASE_NOT_REPEATABLE", "Base gives other words on the same input, so no words can equal its own."
        )
    if not found.head_repeatable:
        return Status.DIVERGED, reason("HEAD_NOT_REPEATABLE", "Head gives other words on the same input.")
    if not found.bit_exact:
        num = sum(one.mismatch is not None for one in raw.bits)
        return Status.DIVERGED, reason(
            "WORDS_DIFFER", f"Head's words differ from base's in {num} of {len(raw.bits)} invocations."
        )
    if found.base_batch_invariant and not found.head_batch_invariant:
        return Status.DIVERGED, reason(
            "BATCH_INVARIANCE_LOST", "Head gives a token other words alone than in its batch; base does not."
        )
    return None


def judged(raw: Raw, options: Options) -> Result:
    """The result that follows from what was observed.

    Args:
        raw: observations. options: what was decided before them.
    """
    classes = exactness(raw, options)
    failed = exactness_failure(raw, options)
    if failed is None and len(raw.blocks) < MIN_PASSES:
        failed = Status.INCONCLUSIVE, reason("TOO_FEW_PASSES", f"{len(raw.blocks)} blocks; {MIN_PASSES} are needed.")
    if failed is not None:
        return Result(status=failed[0], reason=failed[1], exactness=classes, time=None, strata=(), losses=())
    base, head = _times(raw.blocks)
    weights = _weights(raw)
    everything = np.ones(len(weights), dtype=bool)
    time = _time_ratio(base, head, weights, everything)
    status, why = _not_worse(time, options)
    return Result(
        status=status,
        reason=why,
        exactness=classes,
        time=time,
        strata=_strata(raw, base, head, weights),
        losses=_losses(base, head),
    )


def _times(blocks: Sequence[Sequence[CompareBlock]]) -> tuple[Float64Array, Float64Array]:
    """Time of base and of head, [num_blocks, num_invocations]: both arms of each added up."""

    def table(first: str, second: str) -> Float64Array:
        return np.array([[median(getattr(b, first)) + median(getattr(b, second)) for b in block] for block in blocks])

    return table("a1_ns", "a2_ns"), table("b1_ns", "b2_ns")


def _weights(raw: Raw) -> Float64Array:
    """How many served invocations each compared one stands for."""
    served = {one.name: one.num_served for one in raw.served}
    names = [one.stratum for one in raw.invocations]
    return np.array([served[name] / names.count(name) for name in names])


def _time_ratio(base: Float64Array, head: Float64Array, weights: Float64Array, members: NDArray[np.bool_]) -> TimeRatio:
    ratios = (head[:, members] @ weights[members]) / (base[:, members] @ weights[members])
    whole = np.rint(ratios * _BILLION).astype(np.int64)
    ((low, high),) = mean_interval([whole[:, None]])
    return TimeRatio(
        ratio=float(whole.mean()) / _BILLION,
        low_ratio=low / _BILLION,
        high_ratio=high / _BILLION,
        num_wins=int((ratios < 1).sum()),
        num_blocks=len(ratios),
    )


def _not_worse(time: TimeRatio, options: Options) -> _Judged:
    limit = 1 + options.margin_ratio
    text = f"head takes {time.ratio:.4f} of base's time, {options.level:.0%} interval {time.low_ratio:.4f} to "
    text += f"{time.high_ratio:.4f}; not worse means at most {limit:.4f}"
    if time.high_ratio <= limit:
        return Status.MATCH, reason("HEAD_NOT_WORSE", f"Served-weighted, {text}.")
    if time.low_ratio > limit:
        return Status.DIVERGED, reason("HEAD_WORSE", f"Served-weighted, {text}.")
    return Status.INCONCLUSIVE, reason("HEAD_STRADDLES_MARGIN", f"Served-weighted, {text}: more blocks are needed.")


def _strata(raw: Raw, base: Float64Array, head: Float64Array, weights: Float64Array) -> tuple[StratumTime, ...]:
    total = sum(one.num_served for one in raw.served)
    names = np.array([one.stratum for one in raw.invocations])
    return tuple(
        StratumTime(
            name=one.name,
            share_ratio=one.num_served / total,
            num_measured=int((names == one.name).sum()),
            time=_time_ratio(base, head, weights, names == one.name),
        )
        for one in raw.served
    )


def _losses(base: Float64Array, head: Float64Array) -> tuple[Loss, ...]:
    """Invocations on which head was slower, the worst first."""
    one = np.ones(base.shape[1])
    times = [_time_ratio(base, head, one, np.arange(len(one)) == index) for index in range(len(one))]
    found = [Loss(index=index, time=time) for index, time in enumerate(times) if time.low_ratio > 1]
    return tuple(sorted(found, key=lambda loss: -loss.time.ratio))
