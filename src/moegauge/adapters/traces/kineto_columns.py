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
_LAUNCHES, _OPS, _OPERATORS, _HOST_SCOPES, _DEVICE_SCOPES = range(5)
_GROUPS = dict.fromkeys(
    ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime"), _LAUNCHES
) | {
    **dict.fromkeys(_OP_KINDS, _OPS),
    "cpu_op": _OPERATORS,
    "user_annotation": _HOST_SCOPES,
    "gpu_user_annotation": _DEVICE_SCOPES,
}
_NO_ARGS = Args()


class Rows:
    """Growing rows of ``width`` integers."""

    def __init__(self, width: int) -> None:
        self._blocks: list[Int64Array] = [np.empty((width, 0), dtype=np.int64)]

    def add(self, *columns: Int64Array | Sequence[int] | BoolArray) -> None:
        """Add rows, given as columns of one length."""
        self._blocks.append(np.array(columns, dtype=np.int64))

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
        self.names: dict[str, int] = {}
        self.processes: dict[str, int] = {}
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
        groups: list[list[Event]] = [[] for _ in range(5)]
        for event in events:
            group = _GROUPS.get(event.cat)  # type: ignore[arg-type]
            if group is not None:
                groups[group].append(event)
        self._take_owners([event for event in events if event.cat in {"cpu_op", "user_annotation"}])
        self._take_launches([event for event in groups[_LAUNCHES] if event.args is not None])
        self._take_ops(events, [event for event in groups[_OPS] if event.ph == "X"])
        self._take_host_scopes([event for event in groups[_HOST_SCOPES] if event.ph == "X"])
        self._take_device_scopes([event for event in groups[_DEVICE_SCOPES] if event.ph == "X"])
        self._num_events += len(events)

    def _take_owners(self, events: list[Event]) -> None:
        events = [event for event in events if event.args is not None and type(event.args.external_id) is int]
        self.owners.add(self._processes(events), [e.args.external_id for e in events], self._names(events))

    def _take_launches(self, events: list[Event]) -> None:
        start = self._ns([event.ts for event in events])
        correlation, correlated = _whole([event.args.correlation for event in events])
        kept = correlated & (start != NO_NUMBER)
        if not kept.all():
            events = [event for event, keep in zip(events, kept.tolist(), strict=True) if keep]
        external, has_external = _whole([event.args.external_id for event in events])
        process, name = self._processes(events), self._names(events)
        self.launches.add(process, start[kept], name, correlation[kept], external, has_external)

    def _take_ops(self, events: Sequence[Event], ops: list[Event]) -> None:
        args = [event.args or _NO_ARGS for event in ops]
        device, on_device = _whole([one.device for one in args])
        stream, on_stream = _whole([one.sycl_queue if one.stream is None else one.stream for one in args])
        placed = on_device & on_stream
        if not placed.all():
            self._refuse_place(events, ops[int(np.argmin(placed))])
        start, length = self._ns([event.ts for event in ops]), self._ns([event.dur for event in ops])
        correlation, correlated = _whole([one.correlation for one in args])
        name = np.array(self._names(ops), dtype=np.int64)
        kind = np.array([_OP_KINDS[event.cat] for event in ops], dtype=np.int64)  # type: ignore[index]
        good = (start > 0) & (length > 0)
        columns = (kind, device, stream, start, start + np.where(good, length, 0), name, correlation, correlated)
        self.ops.add(*(column[good] for column in columns))
        if not good.all():
            self.invalid.add(*(column[~good] for column in (name, correlation, correlated)))
            self.invalid_texts += [
                f"{(ops[i].name or '')[:60]}: ts={bytes(ops[i].ts)!r} dur={bytes(ops[i].dur)!r}"
                for i in np.flatnonzero(~good).tolist()
            ]

    def _refuse_place(self, events: Sequence[Event], op: Event) -> None:
        number = self._num_events + next(index for index, event in enumerate(events) if event is op)
        raise malformed(self.source, f"event {number} ({op.name}): no integer device and stream")

    def _take_host_scopes(self, events: list[Event]) -> None:
        events, start, length = self._timed(events)
        self.host_scopes.add(self._processes(events), start, start + length, self._names(events))

    def _take_device_scopes(self, events: list[Event]) -> None:
        events, start, length = self._timed(events)
        device, on_device = _whole([event.pid for event in events])
        stream, on_stream = _whole([event.tid for event in events])
        name = np.array(self._names(events), dtype=np.int64)
        columns, placed = (device, stream, start, start + length, name), on_device & on_stream
        self.device_scopes.add(*(column[placed] for column in columns))

    def _timed(self, events: list[Event]) -> tuple[list[Event], Int64Array, Int64Array]:
        """Events with a start and a length that is not negative, and both."""
        start, length = self._ns([event.ts for event in events]), self._ns([event.dur for event in events])
        kept = (start != NO_NUMBER) & (length >= 0)
        return [event for event, keep in zip(events, kept.tolist(), strict=True) if keep], start[kept], length[kept]

    def _ns(self, texts: list[msgspec.Raw]) -> Int64Array:
        ns, num_rounded = exact_ns(texts)
        self.sub_ns += num_rounded
        return ns

    def _names(self, events: Sequence[Event]) -> list[int]:
        names = self.names
        return [names.setdefault(event.name or "", len(names)) for event in events]

    def _processes(self, events: Sequence[Event]) -> list[int]:
        processes = self.processes
        return [processes.setdefault(str(event.pid), len(processes)) for event in events]


def _whole(values: list[int | float | str | None]) -> tuple[Int64Array, BoolArray]:
    """Values as int64 and which of them are whole numbers; the others read as 0."""
    if set(map(type, values)) <= {int}:
        return np.array(values, dtype=np.int64), np.ones(len(values), dtype=bool)
    known = np.array([type(value) is int for value in values], dtype=bool)
    return np.array([value if type(value) is int else 0 for value in values], dtype=np.int64), known
