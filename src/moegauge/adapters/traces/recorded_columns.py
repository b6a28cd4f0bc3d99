"""Columns as a database of events holds them, put together as the normal form: one definition for every such reader.

Times are integer ns. A launch call belongs to an operation when correlation *and* process agree: a correlation is
unique in a process only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.traces.sqlite_tables import ABSENT
from moegauge.kernels.trace import NONE, InvalidOps, Launches, OpKind, Ops, Scopes, Trace
from moegauge.records.capture import Finding

Int64Array = NDArray[np.int64]

_LAST_NS = 1 << 62
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class RecordedOps:
    """Device operations of one table; columns int64 [n], ABSENT where not recorded; ``names`` has n entries."""

    kind: OpKind
    process: Int64Array
    device: Int64Array
    stream: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    correlation: Int64Array
    names: Sequence[str | None]


@dataclass(frozen=True, kw_only=True)
class RecordedRanges:
    """Host calls, or annotated host ranges; columns as in RecordedOps. ``end_ns`` and ``correlation`` as needed."""

    process: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    correlation: Int64Array
    names: Sequence[str | None]


@dataclass
class _Names:
    """Every name once; control characters are replaced, and counted."""

    index: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)

    def of(self, names: Sequence[str | None]) -> Int64Array:
        return np.array([self._one(name or "") for name in names], dtype=np.int64)

    def _one(self, name: str) -> int:
        clean = _CONTROL.sub(_REPLACEMENT, name)
        if _REPLACEMENT in clean:
            self.repaired[clean] = self.repaired.get(clean, 0) + 1
        return self.index.setdefault(clean, len(self.index))

    def findings(self) -> tuple[Finding, ...]:
        if not self.repaired:
            return ()
        return (
            Finding(
                code="NAMES_REPAIRED",
                sentence="control or non-UTF-8 bytes in names were replaced by U+FFFD",
                num=sum(self.repaired.values()),
                examples=tuple(name[:80] for name in list(self.repaired)[:5]),
            ),
        )


def recorded_trace(
    source: str,
    ops: Sequence[RecordedOps],
    calls: RecordedRanges,
    ranges: RecordedRanges,
    *,
    facts: dict[str, str],
    findings: Sequence[Finding] = (),
    no_ops_remedy: str,
) -> Trace:
    """Put the columns of one process's recording together.

    Args:
        source: for messages. ops: operations by table. calls: host calls. ranges: host annotations.
        facts: conditions the file records. findings: of the reader.
        no_ops_remedy: what to do where no operation was recorded.

    Raises:
        Incomplete: no device operation. MalformedFile: an operation without device or stream.
        Ambiguous: operations of several processes, or two launch calls of one correlation.
    """
    names = _Names()
    one = _stacked(source, ops, names)
    process = _only_process(source, one["process"], calls.process)
    launches, processes = _launches(calls, names)
    launch = _joined(source, one, process, calls)
    bad = (one["start"] <= 0) | (one["end"] <= one["start"]) | (one["end"] >= _LAST_NS)
    if bad.all():
        raise _no_ops(source, len(launches), len(bad), no_ops_remedy)
    good = np.flatnonzero(~bad)
    invalid, told = _invalid(one, launch, np.flatnonzero(bad), list(names.index))
    scopes = _host_scopes(ranges, processes, names)
    nowhere = np.empty(0, dtype=np.int64)
    places = np.unique(np.stack([one["device"][good], one["stream"][good]], axis=1), axis=0)
    return Trace(
        source=source,
        rank=None,
        world_size=None,
        facts=facts,
        names=list(names.index),
        ops=Ops(
            kind=one["kind"][good],
            device=one["device"][good],
            stream=one["stream"][good],
            start_ns=one["start"][good],
            end_ns=one["end"][good],
            name=one["name"][good],
            launch=launch[good],
        ),
        invalid=invalid,
        launches=launches,
        host_scopes=scopes,
        device_scopes=Scopes(place=nowhere, start_ns=nowhere, end_ns=nowhere, name=nowhere),
        streams=[(int(device), int(stream)) for device, stream in places],
        findings=(*findings, *names.findings(), *told),
    )


def _no_ops(source: str, num_calls: int, num_invalid: int, remedy: str) -> errors.Incomplete:
    return errors.Incomplete(
        where=source,
        expected="device operations (kernel rows)",
        found=f"no kernel records ({num_calls} host calls, {num_invalid} rows without usable time stamps)",
        remedy=remedy,
    )


def _stacked(source: str, ops: Sequence[RecordedOps], names: _Names) -> dict[str, Int64Array]:
    """All tables' operations behind each other."""
    columns = {
        "kind": [np.full(len(one.start_ns), int(one.kind), dtype=np.int64) for one in ops],
        "process": [one.process for one in ops],
        "device": [one.device for one in ops],
        "stream": [one.stream for one in ops],
        "start": [one.start_ns for one in ops],
        "end": [one.end_ns for one in ops],
        "correlation": [one.correlation for one in ops],
        "name": [names.of(one.names) for one in ops],
    }
    nothing = np.empty(0, dtype=np.int64)
    stacked = {name: np.concatenate([nothing, *parts]) for name, parts in columns.items()}
    nowhere = np.flatnonzero((stacked["device"] == ABSENT) | (stacked["stream"] == ABSENT))
    if len(nowhere):
        raise errors.MalformedFile(
            where=source,
            expected="device and stream of every device operation",
            found=f"{len(nowhere)} operations without",
            remedy="Export the recording again, with all columns.",
        )
    return stacked


def _only_process(source: str, of_ops: Int64Array, of_calls: Int64Array) -> int:
    """The process all operations are of; where one does not say, it has to be the only one in the file."""
    named = np.unique(of_ops[of_ops != ABSENT])
    if len(named) > 1:
        raise _several(source, f"device operations of {len(named)} processes")
    if len(named) == 1 and (of_ops != ABSENT).all():
        return int(named[0])
    found = np.union1d(named, of_calls[of_calls != ABSENT])
    if len(found) > 1:
        raise _several(source, f"device operations that name no process, in a file of {len(found)} processes")
    return int(found[0]) if len(found) else ABSENT


def _several(source: str, found: str) -> errors.Ambiguous:
    return errors.Ambiguous(
        where=source,
        expected="the device operations of one process",
        found=found,
        remedy="Record or export one file a rank.",
    )


def _launches(calls: RecordedRanges, names: _Names) -> tuple[Launches, Int64Array]:
    """Every call with a time and a correlation, and the processes in the order of their index."""
    kept = _kept(calls)
    processes = np.unique(calls.process)
    chosen = [calls.names[index] for index in kept]
    return (
        Launches(
            process=np.searchsorted(processes, calls.process[kept]).astype(np.int64),
            start_ns=calls.start_ns[kept],
            name=names.of(chosen),
            correlation=calls.correlation[kept],
            owner=np.full(len(kept), NONE, dtype=np.int64),
        ),
        processes,
    )


def _kept(calls: RecordedRanges) -> Int64Array:
    return np.flatnonzero((calls.correlation != ABSENT) & (calls.start_ns != ABSENT)).astype(np.int64)


def _joined(source: str, ops: dict[str, Int64Array], process: int, calls: RecordedRanges) -> Int64Array:
    """Index into the launches of each operation, by correlation within its process; NONE where there is no call."""
    kept = _kept(calls)
    mine = np.flatnonzero(calls.process[kept] == process)
    correlation = calls.correlation[kept][mine]
    order = np.argsort(correlation, kind="stable")
    ascending = correlation[order]
    first = np.searchsorted(ascending, ops["correlation"], side="left")
    num = np.searchsorted(ascending, ops["correlation"], side="right") - first
    num[ops["correlation"] == ABSENT] = 0
    if (num > 1).any():
        raise errors.Ambiguous(
            where=source,
            expected="one launch call for each correlation of a process",
            found=f"correlation {int(ops['correlation'][num > 1][0])} on {int(num.max())} calls",
            remedy="Export the recording again; correlations repeat when two reports were merged.",
        )
    launch = np.full(len(num), NONE, dtype=np.int64)
    launch[num == 1] = mine[order][first[num == 1]]
    return launch


def _invalid(
    ops: dict[str, Int64Array], launch: Int64Array, rows: NDArray[np.intp], names: list[str]
) -> tuple[InvalidOps, tuple[Finding, ...]]:
    def stamp(value: int) -> str:
        return "not recorded" if value == ABSENT else str(value)

    raw = tuple(
        f"{names[ops['name'][row]][:60]}: start={stamp(int(ops['start'][row]))} end={stamp(int(ops['end'][row]))}"
        for row in rows
    )
    invalid = InvalidOps(name=ops["name"][rows], launch=launch[rows], raw=raw)
    if not raw:
        return invalid, ()
    return invalid, (
        Finding(
            code="INVALID_TIMESTAMPS",
            sentence="device rows without usable time stamps (0, negative, or no duration) are in no sum",
            num=len(raw),
            examples=raw[:5],
        ),
    )


def _host_scopes(ranges: RecordedRanges, processes: Int64Array, names: _Names) -> Scopes:
    """Closed ranges of processes that made calls; others can hold no launch."""
    start, end = ranges.start_ns, ranges.end_ns
    usable = (start != ABSENT) & (end != ABSENT) & (end >= start) & np.isin(ranges.process, processes)
    kept = np.flatnonzero(usable)
    return Scopes(
        place=np.searchsorted(processes, ranges.process[kept]).astype(np.int64),
        start_ns=start[kept],
        end_ns=end[kept],
        name=names.of([ranges.names[index] for index in kept.tolist()]),
    )
