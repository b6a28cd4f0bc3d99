"""Conditional Poisson sampling: the fixed-size design of highest entropy with given inclusion probabilities.

Sets of size k have probability proportional to the product of their members' working weights. The weights are
solved from the inclusion probabilities by a damped fixed point on log-odds (Chen, Dempster and Liu, Biometrika 81,
1994; Tillé, Sampling Algorithms, 2006, section 5.2); elementary symmetric functions are sums of positive terms, so
nothing cancels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moegauge.routing.apportionment import refusal

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]

_TOLERANCE = 1e-12
_MAX_STEPS = 2000


def draws(target: Float64Array, uniform: Float64Array) -> Int64Array:
    """Draw one set for each column of random numbers.

    Members are drawn from the last to the first: with r left to choose among the first i units, the largest member
    is unit j or below with probability e_r(first j) / e_r(first i).

    Args:
        target: float64 [units], inclusion probabilities in (0, 1) that add up to ``size``.
        uniform: float64 [size, rows], in (0, 1).

    Returns:
        int64 [rows, size], distinct units, descending.
    """
    size, rows = uniform.shape
    prefix = symmetric_functions(working_weights(target, size), size)
    within = np.full(rows, len(target))
    members = np.empty((rows, size), dtype=np.int64)
    for slot in range(size):
        column = prefix[:, size - slot]
        found = np.searchsorted(column, uniform[slot] * column[within], side="right")
        within = np.minimum(found, within) - 1
        members[:, slot] = within
    return members


def working_weights(target: Float64Array, size: int) -> Float64Array:
    """Weights whose conditional Poisson design has the given inclusion probabilities.

    Args:
        target: float64 [units], in (0, 1), adding up to ``size``.
        size: members of a set.

    Returns:
        float64 [units], scaled so that the ``size`` largest have a geometric mean of 1.

    Raises:
        Inconsistent: the fixed point does not settle to 1e-12.
    """
    log_odds = np.log(target) - np.log1p(-target)
    log_weight = log_odds.copy()
    for _ in range(_MAX_STEPS):
        log_weight -= np.partition(log_weight, len(target) - size)[-size:].mean()
        weights: Float64Array = np.exp(log_weight)
        reached = inclusion_probabilities(weights, size)
        if np.abs(reached - target).max() < _TOLERANCE:
            return weights
        reached = np.clip(reached, np.finfo(np.float64).tiny, 1 - 2.0**-53)
        # Half a step: with two units a whole one would swing for ever.
        log_weight += (log_odds - (np.log(reached) - np.log1p(-reached))) / 2
    raise refusal(f"inclusions that settle within {_TOLERANCE}", f"{np.abs(reached - target).max():.3g} off")


def inclusion_probabilities(weights: Float64Array, size: int) -> Float64Array:
    """Inclusion probability of each unit of a conditional Poisson design; float64 [units]."""
    before = symmetric_functions(weights, size)
    after = symmetric_functions(weights[::-1], size)[::-1]
    without = (before[:-1, :size] * after[1:, size - 1 :: -1]).sum(axis=1)
    reached: Float64Array = weights * without / before[-1, size]
    return reached


def symmetric_functions(weights: Float64Array, size: int) -> Float64Array:
    """Elementary symmetric functions of every prefix; float64 [units + 1, size + 1], [i, m] = e_m(first i)."""
    table = np.zeros((len(weights) + 1, size + 1))
    table[:, 0] = 1
    for order in range(1, size + 1):
        np.cumsum(weights * table[:-1, order - 1], out=table[1:, order])
    return table
