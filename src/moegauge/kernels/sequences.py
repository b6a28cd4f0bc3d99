"""Sequences of a kind's kernels: where the operations of a stream, in order of start, play its roles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.trace import OpKind, Trace

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class StreamOrder:
    """The operations of a trace by stream, then start; a position is an index into that order.

    Attributes:
        place: int64 [ops], index of each operation's stream in trace.streams.
        order: int64 [ops], operations by stream, then start, then end.
    """

    def __init__(self, trace: Trace, kind: KernelKind) -> None:
        self.trace, self.kind = trace, kind
        self.place = _places(trace)
        self.order = np.lexsort((trace.ops.end_ns, trace.ops.start_ns, self.place))
        self.roles = _role_masks(trace, kind)[trace.ops.name]
        self.roles[trace.ops.kind != OpKind.KERNEL] = 0
        self.bit = {role.name: np.int64(1 << index) for index, role in enumerate(kind.roles)}

    def window(self, positions: Int64Array, names: tuple[str, ...]) -> BoolArray:
        """Whether the operations at positions, positions+1, ... of the stream order play the named roles."""
        good = (positions >= 0) & (positions + len(names) <= len(self.order))
        safe = np.where(good, positions, 0)
        place = self.place[self.order[safe]] if len(self.order) else safe
        for offset, name in enumerate(names):
            index = self.order[np.minimum(safe + offset, len(self.order) - 1)]
            good &= (self.roles[index] & self.bit[name]) != 0
            good &= self.place[index] == place
        return good

    def cores(self) -> Int64Array:
        """Positions in stream order where a core begins, ordered by start time; none shares a kernel. [num_cores]"""
        found = np.flatnonzero(self.window(np.arange(len(self.order), dtype=np.int64), self.kind.core))
        positions = _apart(found, len(self.kind.core))
        starts = self.trace.ops.start_ns[self.order[positions]] if len(positions) else positions
        return positions[np.argsort(starts, kind="stable")]

    def members(self, cores: Int64Array) -> Int64Array:
        """Operation indices of each core: [num_cores, len(core)]."""
        return self.order[cores[:, None] + np.arange(len(self.kind.core))] if len(cores) else np.zeros((0, 1), np.int64)

    def role_indices(self, names: Sequence[str]) -> list[int]:
        """Index of each named role in the kind."""
        known = list(self.bit)
        return [known.index(name) for name in names]

    def exclusive(self) -> BoolArray:
        """Whether each operation is a kernel that occurs in work of the kind alone. [ops]"""
        mask = sum(int(self.bit[role.name]) for role in self.kind.roles if role.exclusive)
        exclusive: BoolArray = (self.roles & mask) != 0
        return exclusive


def _apart(positions: Int64Array, length: int) -> Int64Array:
    """Of ascending positions those that lie at least ``length`` behind the one kept before, from the first on."""
    if (np.diff(positions) >= length).all():
        return positions
    kept: list[int] = []
    for position in positions.tolist():
        if not kept or position >= kept[-1] + length:
            kept.append(position)
    return np.array(kept, dtype=np.int64)


def _places(trace: Trace) -> Int64Array:
    """Index of each operation's (device, stream) in trace.streams."""
    index = {stream: number for number, stream in enumerate(trace.streams)}
    pairs = np.stack([trace.ops.device, trace.ops.stream])
    unique, inverse = np.unique(pairs, axis=1, return_inverse=True)
    numbers = np.array([index[(int(d), int(s))] for d, s in unique.T], dtype=np.int64)
    return numbers[inverse.reshape(-1)] if len(numbers) else np.zeros(0, dtype=np.int64)


def _role_masks(trace: Trace, kind: KernelKind) -> Int64Array:
    """Bit mask of the roles each name can play. [num_names]"""
    masks = np.zeros(len(trace.names), dtype=np.int64)
    for index, role in enumerate(kind.roles):
        for number, name in enumerate(trace.names):
            if role.pattern.search(name):
                masks[number] |= np.int64(1 << index)
    return masks
