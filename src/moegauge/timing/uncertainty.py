"""How sure a total is, from whole passes of isolated measurement.

Drift is common to a pass, so passes are what is resampled, never single invocations. Up to ten passes every
resample is enumerated with its multinomial weight (7 passes: 1,716 of them), so the interval is exact and needs no
seed; beyond that a fixed-seed sample of 20,000 is drawn. A percentile interval from few passes is too narrow; its
tail probability is therefore moved out to Phi(-t * sqrt(n / (n - 1))), with t the Student quantile for n - 1
degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

MIN_PASSES = 6
"""Fewer passes give a point estimate and no interval."""

LEVEL = 0.95
_ENUMERATE_UP_TO = 10
_NUM_DRAWN = 20_000


@dataclass(frozen=True)
class Resamples:
    """Resamples of n passes: how often each pass is taken, and the weight of the resample.

    Attributes:
        counts: float64 [num_resamples, n]; each row adds up to n.
        weight: float64 [num_resamples], adds up to 1.
    """

    counts: Float64Array
    weight: Float64Array


@cache
def resamples(num_passes: int) -> Resamples:
    """All resamples of ``num_passes`` passes with their weights (drawn with a fixed seed beyond ten)."""
    if num_passes <= _ENUMERATE_UP_TO:
        counts = np.array(list(_compositions(num_passes, num_passes)), dtype=np.float64)
        log_weight = [
            math.lgamma(num_passes + 1) - sum(math.lgamma(c + 1) for c in row) - num_passes * math.log(num_passes)
            for row in counts
        ]
        return Resamples(counts, np.exp(np.array(log_weight)))
    generator = np.random.Generator(np.random.Philox(0))
    drawn = generator.multinomial(num_passes, [1 / num_passes] * num_passes, size=_NUM_DRAWN)
    return Resamples(drawn.astype(np.float64), np.full(_NUM_DRAWN, 1 / _NUM_DRAWN))


def mean_interval(samples: Sequence[Int64Array]) -> list[tuple[float, float]]:
    """Interval of the mean over passes of a sum of strata, each stratum resampled on its own.

    A stratum is the work measured by one set of passes (eager rows by one set, graph rows by another, say).

    Args:
        samples: for each stratum int64 [num_passes, num_units]; a stratum's time of each unit, pass by pass.

    Returns:
        For each unit (low, high) in ns.

    Raises:
        ValueError: fewer than six passes in a stratum.
    """
    drawn = [_stratum_draws(stratum) for stratum in samples]
    fewest = min(len(stratum) for stratum in samples)
    tail = tail_probability(fewest)
    return [
        _interval([(draws[:, unit], weight) for draws, weight in drawn], tail) for unit in range(samples[0].shape[1])
    ]


def _stratum_draws(stratum: Int64Array) -> tuple[Float64Array, Float64Array]:
    num_passes = len(stratum)
    if num_passes < MIN_PASSES:
        raise ValueError(f"{num_passes} passes; an interval needs {MIN_PASSES}")
    table = resamples(num_passes)
    return table.counts @ stratum.astype(np.float64) / num_passes, table.weight


def _interval(strata: list[tuple[Float64Array, Float64Array]], tail: float) -> tuple[float, float]:
    """Quantiles of the sum of independent strata: exact for one, a fixed-seed draw of combinations for several."""
    values, weight = strata[0]
    if len(strata) > 1:
        generator = np.random.Generator(np.random.Philox(1))
        values = np.zeros(_NUM_DRAWN)
        for draws, probability in strata:
            values += draws[generator.choice(len(draws), size=_NUM_DRAWN, p=probability / probability.sum())]
        weight = np.full(_NUM_DRAWN, 1 / _NUM_DRAWN)
    order = np.argsort(values, kind="stable")
    values, cumulative = values[order], np.cumsum(weight[order])
    low = values[min(int(np.searchsorted(cumulative, tail)), len(values) - 1)]
    high = values[min(int(np.searchsorted(cumulative, 1 - tail)), len(values) - 1)]
    return float(low), float(high)


def student_t(freedom: int, *, two_sided: float) -> float:
    """The t that |T| exceeds with probability ``two_sided``, for a whole number of degrees of freedom.

    Source of the closed form of the distribution: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, 1.0
    while 1.0 - _within(high, freedom) > two_sided:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if 1.0 - _within(middle, freedom) > two_sided else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Probability of |T| <= t."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom == 1:
        return 2.0 * angle / math.pi
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term
    for step in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total


def tail_probability(num_passes: int) -> float:
    """Probability in each tail of a percentile interval from so many passes; see the module."""
    freedom = num_passes - 1
    t = student_t(freedom, two_sided=1.0 - LEVEL)
    return NormalDist().cdf(-t * math.sqrt(num_passes / freedom))


def significant(difference: Float64Array, samples: Sequence[Int64Array], *, level: float = LEVEL) -> NDArray[np.bool_]:
    """Units whose difference from 0 pass-to-pass scatter does not explain, all units together at ``level``.

    Each unit is tested by its own t interval at 1 - (1 - level) / num_units, so that many units of noise seldom
    hold one that is called significant.

    Args:
        difference: float64 [num_units], mean difference of each unit.
        samples: for each stratum int64 [num_passes, num_units].
        level: of the whole family.
    """
    variance = np.sum([table.var(axis=0, ddof=1) / len(table) for table in samples], axis=0)
    freedom = min(len(table) for table in samples) - 1
    t = student_t(freedom, two_sided=(1.0 - level) / max(len(difference), 1))
    return np.asarray(np.abs(difference) > t * np.sqrt(variance), dtype=bool)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
