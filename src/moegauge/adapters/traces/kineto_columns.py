"""What is kept of a Kineto trace's events: columns of integers, names once. Events are taken some thousands a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge.adapters.traces.kineto_json import Args, Event, malformed
from moegauge.adapters.traces.kineto_times import NO_NUMBER, exact_ns
from moegauge.kernels.trace import OpKind

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_OP_KINDS = {"kernel": OpKind.KERNEL, "gpu_memcpy": OpKind.MEMCPY, "gpu_memset": OpKind.MEMSET}
_LAUNCHES, _OPS, _OWNERS, _DEVICE_SCOPES = range(4)
_GROUPS = dict.fromkeys(
    ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime"), _LAUNCHES
) | {
    **dict.fromkeys(_OP_KINDS, _OPS),
    "cpu_op": _OWNERS,
    "user_annotation": _OWNERS,
    "gpu_user_annotation": _DEVICE_SCOPES,
}
_NO_ARGS = Args()


class Numbers(dict[str, int]):
    """Texts numbered in order of appearance."""

    def __missing__(self, text: str) -> int:
        """Give a new text the next number."""
        number = self[text] = len(self)
        return number


class Rows:
    """Growing rows of ``width`` integers."""

    def __init__(self, width: int) -> None:
        self._blocks: list[Int64Array] = [np.empty((width, 0), dtype=np.int64)]

    def add(self, kept: BoolArray, *columns: Int64Array | Sequence[int] | BoolArray) -> None:
        """Add the kept ones of some rows, given as columns of one length."""
        rows = np.array(columns, dtype=np.int64)
        self._blocks.append(rows if kept.all() else rows[:, kept])

    def columns(self) -> Int64Array:
        """All rows as columns. [width, n]"""
        self._blocks = [np.concatenate(self._blocks, axis=1)]
        return self._blocks[0]


class EventColumns:
    """Columns of the events taken so far; a time that cannot be used leaves its event out, or among the invalid ones.

    Attributes:
        names, processes: number of each name and process.
        owners: process, External id, name of operators and annotations.
        launches: process, start_ns, name, correlation, External id, whether there is one.
        ops: kind, device, stream, start_ns, end_ns, name, correlation, whether there is one.
        invalid: name, correlation, whether there is one. invalid_texts: of each, for messages.
        host_scopes: process, start_ns, end_ns, name. device_scopes: device, stream, start_ns, end_ns, name.
        sub_ns: times that were rounded to whole ns.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.names, self.processes = Numbers(), Numbers()
        self.owners, self.launches, self.ops, self.invalid = Rows(3), Rows(6), Rows(8), Rows(3)
        self.host_scopes, self.device_scopes = Rows(4), Rows(5)
        self.invalid_texts: list[str] = []
        self.sub_ns = 0
        self._num_events = 0

    def take(self, events: Sequence[Event]) -> None:
        """Take the next events of the file.

        Raises:
            MalformedFile: a device operation without a device and stream.
        """
        groups: tuple[list[Event], ...] = ([], [], [], [])
        for event, group in zip(events, map(_GROUPS.get, [event.cat or "" for event in events]), strict=True):
            if group is not None:
                groups[group].append(event)
        self._take_owners(groups[_OWNERS])
        self._take_launches([event for event in groups[_LAUNCHES] if event.args is not None])
        self._take_ops(events, [event for event in groups[_OPS] if event.ph == "X"])
        annotations = [event for event in groups[_OWNERS] if event.cat == "user_annotation"]
        self._take_host_scopes([event for event in annotations if event.ph == "X"])
        self._take_device_scopes([event for event in groups[_DEVICE_SCOPES] if event.ph == "X"])
        self._num_events += len(events)

    def _take_owners(self, events: list[Event]) -> None:
        external, known = _whole([None if event.args is None else event.args.external_id for event in events])
        self.owners.add(known, self._processes(events), external, self._names(events))

    def _take_launches(self, events: list[Event]) -> None:
        start = self._ns([event.ts for event in events])
        args = [event.args or _NO_ARGS for event in events]
        correlation, correlated = _whole([one.correlation for one in args])
        external, has_external = _whole([one.external_id for one in args])
        columns = (self._processes(events), start, self._names(events), correlation, external, has_external)
        self.launches.add(correlated & (start != NO_NUMBER), *columns)

    def _take_ops(self, events: Sequence[Event], ops: list[Event]) -> None:
        args = [event.args or _NO_ARGS for event in ops]
        device, on_device = _whole([one.device for one in args])
        stream, on_stream = _whole([one.sycl_queue if one.stream is None else one.stream for one in args])
        placed = on_device & on_stream
        if not placed.all():
            self._refuse_place(events, ops[int(np.argmin(placed))])
        start, length = self._ns([event.ts for event in ops]), self._ns([event.dur for event in ops])
        correlation, correlated = _whole([one.correlation for one in args])
        kind = [_OP_KINDS[event.cat] for event in ops]  # type: ignore[index]
        name, good = self._names(ops), (start > 0) & (length > 0)
        self.ops.add(good, kind, device, stream, start, start + length, name, correlation, correlated)
        self.invalid.add(~good, name, correlation, correlated)
        self.invalid_texts += [
            f"{(ops[i].name or '')[:60]}: ts={bytes(ops[i].ts)!r} dur={bytes(ops[i].dur)!r}"
            for i in np.flatnonzero(~good).tolist()
        ]

    def _refuse_place(self, events: Sequence[Event], op: Event) -> None:
        number = self._num_events + next(index for index, event in enumerate(events) if event is op)
        raise malformed(self.source, f"event {number} ({op.name}): no integer device and stream")

    def _take_host_scopes(self, events: list[Event]) -> None:
        start, length = self._ns([event.ts for event in events]), self._ns([event.dur for event in events])
        timed = (start != NO_NUMBER) & (length >= 0)
        self.host_scopes.add(timed, self._processes(events), start, start + length, self._names(events))

    def _take_device_scopes(self, events: list[Event]) -> None:
        start, length = self._ns([event.ts for event in events]), self._ns([event.dur for event in events])
        device, on_device = _whole([event.pid for event in events])
        stream, on_stream = _whole([event.tid for event in events])
        kept = (start != NO_NUMBER) & (length >= 0) & on_device & on_stream
        self.device_scopes.add(kept, device, stream, start, start + length, self._names(events))

    def _ns(self, texts: list[msgspec.Raw]) -> Int64Array:
        ns, num_rounded = exact_ns(texts)
        self.sub_ns += num_rounded
        return ns

    def _names(self, events: Sequence[Event]) -> list[int]:
        return list(map(self.names.__getitem__, [event.name or "" for event in events]))

    def _processes(self, events: Sequence[Event]) -> list[int]:
        pids = [event.pid for event in events]
        if set(map(type, pids)) <= {int, str}:
            number = {pid: self.processes[str(pid)] for pid in dict.fromkeys(pids)}
            return list(map(number.__getitem__, pids))
        return [self.processes[str(pid)] for pid in pids]  # 1 and 1.0 would be one key


def _whole(values: list[int | float | str | None]) -> tuple[Int64Array, BoolArray]:
    """Values as int64 and which of them are whole numbers; the others read as 0."""
    if set(map(type, values)) <= {int}:
        return np.array(values, dtype=np.int64), np.ones(len(values), dtype=bool)
    known = np.array([type(value) is int for value in values], dtype=bool)
    return np.array([value if type(value) is int else 0 for value in values], dtype=np.int64), known
