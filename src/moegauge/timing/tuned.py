"""Arithmetic of a search for configurations: scores, finalists, and a served-weighted difference with its interval.

Times are int64 [passes, candidates, places]. A score is the mean over places of the median over passes, so that one
disturbed pass does not decide. A difference is over totals: each size's mean time, times the invocations served of it.
Its interval resamples whole passes, which all sizes share, and the places of each size, both arms alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge.timing.uncertainty import MIN_PASSES, tail_probability

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_NUM_DRAWN = 10_000


@dataclass(frozen=True)
class Compared:
    """Two arms at one size.

    Attributes:
        num_served: weight. base, head: int64 [passes, places].
    """

    num_served: int
    base: Int64Array
    head: Int64Array


@dataclass(frozen=True)
class Difference:
    """head less base, as a share of base: negative where head is faster.

    Attributes:
        interval: None from fewer than six passes, or six places at a size.
    """

    base_ns: float
    head_ns: float
    interval: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        """The difference of the totals, over base."""
        return self.head_ns / self.base_ns - 1.0


def scores(busy_ns: Int64Array) -> Float64Array:
    """Score of each candidate in ns, smaller is better. [candidates]"""
    found: Float64Array = np.median(busy_ns, axis=0).mean(axis=1)
    return found


def best(candidates: Sequence[int], busy_ns: Int64Array, num: int = 1) -> list[int]:
    """The candidates with the smallest scores, best first; of equal ones the earlier."""
    order = np.argsort(scores(busy_ns), kind="stable")
    return [candidates[index] for index in order[:num]]


def difference(sizes: Sequence[Compared]) -> Difference:
    """The served-weighted difference over some sizes, measured in the same passes."""
    base = sum(one.num_served * one.base.mean() for one in sizes)
    head = sum(one.num_served * one.head.mean() for one in sizes)
    return Difference(float(base), float(head), _interval(sizes))


def _interval(sizes: Sequence[Compared]) -> tuple[float, float] | None:
    num_passes = len(sizes[0].base)
    fewest = min([num_passes, *(one.base.shape[1] for one in sizes)])
    if fewest < MIN_PASSES:
        return None
    generator = np.random.Generator(np.random.Philox(0))
    passes = _resampled(generator, num_passes)
    totals = np.zeros((2, _NUM_DRAWN))
    for one in sizes:
        places = _resampled(generator, one.base.shape[1])
        for arm, busy in enumerate((one.base, one.head)):
            totals[arm] += one.num_served * ((passes @ busy) * places).sum(axis=1)
    tail = tail_probability(fewest)
    low, high = np.quantile(totals[1] / totals[0] - 1.0, [tail, 1.0 - tail])
    return float(low), float(high)


def _resampled(generator: np.random.Generator, num: int) -> Float64Array:
    """Shares that resamples of ``num`` give to each. [_NUM_DRAWN, num]"""
    return generator.multinomial(num, [1.0 / num] * num, size=_NUM_DRAWN) / num
