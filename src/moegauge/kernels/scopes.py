"""Annotations of a trace read as (tag, layer, iteration), and which of them each device operation lies in."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.kernels.trace import NONE, Scopes, Trace

Int64Array = NDArray[np.int64]

_ANNOTATION = re.compile(r"^(?P<tag>\S+)(?: L(?P<layer>[0-9]{1,9}))? I(?P<iteration>[0-9]{1,9})$")


@dataclass(frozen=True)
class ScopeTags:
    """Tags to honour: ``iteration`` scopes are ``<tag> I<n>``, ``invocation`` scopes ``<tag> L<l> I<n>``."""

    iteration: frozenset[str]
    invocation: frozenset[str]


SERVING_TAGS = ScopeTags(frozenset({"iteration"}), frozenset({"moe"}))


@dataclass(frozen=True)
class OpScopes:
    """Where each operation of one list stands; every column int64 [n], NONE where nothing says.

    Attributes:
        iteration: from an iteration scope, or from an invocation scope where there is no iteration scope.
        layer, layer_iteration: from an invocation scope.
        by_launch: 1 where a launch call decided, 0 where a device annotation did.
    """

    iteration: Int64Array
    layer: Int64Array
    layer_iteration: Int64Array
    by_launch: Int64Array


@dataclass(frozen=True)
class _Ranges:
    """Non-overlapping ranges of one place, ascending."""

    start: Int64Array
    end: Int64Array
    iteration: Int64Array
    layer: Int64Array

    def at(self, moment: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(iteration, layer) of the range that holds each moment, NONE where none does."""
        if not len(self.start):
            nowhere = np.full(len(moment), NONE, dtype=np.int64)
            return nowhere, nowhere
        index = np.maximum(np.searchsorted(self.start, moment, side="right") - 1, 0)
        inside = (self.start[index] <= moment) & (moment < self.end[index])
        return np.where(inside, self.iteration[index], NONE), np.where(inside, self.layer[index], NONE)


def annotation_tags(trace: Trace) -> dict[str, set[str]]:
    """Tags found on the host side of a trace: ``{"iteration": {...}, "invocation": {...}}``."""
    found: dict[str, set[str]] = {"iteration": set(), "invocation": set()}
    for name in np.unique(trace.host_scopes.name):
        match = _ANNOTATION.match(trace.names[int(name)])
        if match:
            found["iteration" if match["layer"] is None else "invocation"].add(match["tag"])
    return found


def annotated_iterations(trace: Trace, tag: str) -> list[int]:
    """Iterations that host annotations of one tag name, ascending."""
    matches = (_ANNOTATION.match(trace.names[int(name)]) for name in np.unique(trace.host_scopes.name))
    return sorted({int(match["iteration"]) for match in matches if match and match["tag"] == tag})


def op_scopes(trace: Trace, tags: ScopeTags, *, launch: Int64Array, place: Int64Array, moment: Int64Array) -> OpScopes:
    """Place operations: by their launch call where there is one, else by device annotation.

    Args:
        trace: the trace.
        tags: annotations to honour.
        launch: int64 [n], index into trace.launches or NONE.
        place: int64 [n], index into trace.streams or NONE (no device annotation can apply).
        moment: int64 [n], device start of the operation.
    """
    size = len(launch)
    columns = {name: np.full(size, NONE, dtype=np.int64) for name in ("iteration", "layer", "layer_iteration")}
    by_launch = launch != NONE
    sides = (
        (trace.host_scopes, trace.launches.process, trace.launches.start_ns, by_launch, launch),
        (trace.device_scopes, place, moment, ~by_launch & (place != NONE), np.arange(size)),
    )
    for scopes, places, moments, chosen, index in sides:
        rows = np.flatnonzero(chosen)
        where, when = places[index[rows]], moments[index[rows]]
        for one in np.unique(where):
            here = rows[where == one]
            at = when[where == one]
            columns["iteration"][here], _ = _ranges(trace, scopes, int(one), tags.iteration, False).at(at)
            spots = _ranges(trace, scopes, int(one), tags.invocation, True).at(at)
            columns["layer_iteration"][here], columns["layer"][here] = spots
    columns["iteration"] = np.where(columns["iteration"] == NONE, columns["layer_iteration"], columns["iteration"])
    return OpScopes(columns["iteration"], columns["layer"], columns["layer_iteration"], by_launch.astype(np.int64))


def _ranges(trace: Trace, scopes: Scopes, place: int, tags: frozenset[str], with_layer: bool) -> _Ranges:
    rows: list[tuple[int, int, int, int]] = []
    for index in np.flatnonzero(scopes.place == place):
        match = _ANNOTATION.match(trace.names[int(scopes.name[index])])
        if match and match["tag"] in tags and (match["layer"] is not None) == with_layer:
            layer = int(match["layer"]) if with_layer else NONE
            rows.append((int(scopes.start_ns[index]), int(scopes.end_ns[index]), int(match["iteration"]), layer))
    rows.sort()
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    _refuse_overlap(trace, table)
    return _Ranges(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _refuse_overlap(trace: Trace, table: Int64Array) -> None:
    pairs = table[:, 2:]
    if len(np.unique(pairs, axis=0)) != len(pairs):
        seen, counts = np.unique(pairs, axis=0, return_counts=True)
        iteration, layer = seen[counts > 1][0]
        what = f"iteration {iteration}" + (f", layer {layer}" if layer != NONE else "")
        raise _ambiguous(trace, f"two annotations for {what} in one process")
    overlap = np.flatnonzero(table[1:, 0] < table[:-1, 1])
    if len(overlap):
        raise _ambiguous(trace, f"annotations that overlap at {table[overlap[0] + 1, 0]} ns")


def _ambiguous(trace: Trace, found: str) -> errors.Ambiguous:
    return errors.Ambiguous(
        where=trace.source,
        expected="annotations of one kind that follow each other, one an iteration (and layer)",
        found=found,
        remedy="Give each iteration its own number, or split the recording.",
    )
