"""Interpolate between measured rows. Only inside what was measured, and never under the name of a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NEIGHBOURS = 6


@dataclass(frozen=True)
class Measured:
    """Rows to interpolate between.

    Attributes:
        features: float64 [n, num_features]. time_ns: float64 [n]. row_id: int64 [n].
    """

    features: Float64Array
    time_ns: Float64Array
    row_id: Int64Array


@dataclass(frozen=True)
class Predicted:
    """Predictions, one a query.

    Attributes:
        time_ns: float64 [m]; NaN where the query lies outside the measured range.
        inside: bool [m], whether every feature lies in the measured range.
        rows: int64 [m, k], rows each prediction came from.
        weights: float64 [m, k], their weights; each row adds up to 1.
    """

    time_ns: Float64Array
    inside: BoolArray
    rows: Int64Array
    weights: Float64Array


def interpolate(measured: Measured, queries: Float64Array, *, leave_out: bool = False) -> Predicted:
    """Weighted mean, by inverse squared distance, of the time per padded block of the nearest measured rows.

    Features are compared on a log scale, each divided by its spread. Time is interpolated relative to the number of
    padded blocks plus active experts (columns 1 and 2), which a kernel's time follows closely, and scaled back.

    Args:
        measured: rows, at least two.
        queries: float64 [m, num_features].
        leave_out: the queries are the measured rows themselves, and none may see itself (for the leave-one-out error).
    """
    scaled, spread = _scaled(measured.features)
    asked = np.log1p(queries) / spread
    work, asked_work = (1.0 + table[:, 1] + table[:, 2] for table in (measured.features, queries))
    count = min(NEIGHBOURS, len(scaled) - int(leave_out))
    rows = np.empty((len(queries), count), dtype=np.int64)
    weights = np.empty((len(queries), count))
    time = np.empty(len(queries))
    for index, point in enumerate(asked):
        distance = ((scaled - point) ** 2).sum(axis=1)
        if leave_out:
            distance[index] = np.inf
        near = np.argpartition(distance, count - 1)[:count]
        weight = 1.0 / (distance[near] + 1e-9)
        weight /= weight.sum()
        rows[index], weights[index] = measured.row_id[near], weight
        time[index] = asked_work[index] * (weight * measured.time_ns[near] / work[near]).sum()
    low, high = measured.features.min(axis=0), measured.features.max(axis=0)
    inside = ((queries >= low) & (queries <= high)).all(axis=1)
    return Predicted(np.where(inside, time, np.nan), inside, rows, weights)


def leave_one_out(measured: Measured) -> Float64Array:
    """|relative error| of each measured row predicted from the others. [n]"""
    found = interpolate(measured, measured.features, leave_out=True)
    return np.asarray(np.abs(found.time_ns / measured.time_ns - 1.0), dtype=np.float64)


def _scaled(features: Float64Array) -> tuple[Float64Array, Float64Array]:
    logged = np.log1p(features)
    spread = logged.std(axis=0)
    spread[spread == 0] = 1.0
    return logged / spread, spread
