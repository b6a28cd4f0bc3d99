"""Traces of consecutive ranges of one process, as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.kernels.trace import NONE, InvalidOps, Launches, Ops, Scopes, Trace

Int64Array = NDArray[np.int64]


def joined(traces: Sequence[Trace]) -> Trace:
    """Put traces of one process, profiled one after the other, behind each other.

    Raises:
        Inconsistent: they are not of one rank, or do not record the same versions and devices.
    """
    first = traces[0]
    if len(traces) == 1:
        return first
    _check_one_process(traces)
    names = [name for trace in traces for name in trace.names]
    streams = sorted({place for trace in traces for place in trace.streams})
    place_of = {place: index for index, place in enumerate(streams)}
    moved = [np.array([place_of[place] for place in trace.streams], dtype=np.int64) for trace in traces]
    processes = [1 + _highest(t.launches.process, t.host_scopes.place) for t in traces]
    shift = {
        "name": _starts([len(trace.names) for trace in traces]),
        "launch": _starts([len(trace.launches) for trace in traces]),
        "process": _starts(processes),
    }
    return Trace(
        source=first.source,
        rank=first.rank,
        world_size=first.world_size,
        facts=first.facts,
        names=names,
        ops=_ops([trace.ops for trace in traces], shift["name"], shift["launch"]),
        invalid=InvalidOps(
            name=_shifted([trace.invalid.name for trace in traces], shift["name"]),
            launch=_shifted([trace.invalid.launch for trace in traces], shift["launch"]),
            raw=tuple(text for trace in traces for text in trace.invalid.raw),
        ),
        launches=Launches(
            process=_shifted([trace.launches.process for trace in traces], shift["process"]),
            start_ns=np.concatenate([trace.launches.start_ns for trace in traces]),
            name=_shifted([trace.launches.name for trace in traces], shift["name"]),
            correlation=np.concatenate([trace.launches.correlation for trace in traces]),
            owner=_shifted([trace.launches.owner for trace in traces], shift["name"]),
        ),
        host_scopes=_scopes(
            [trace.host_scopes for trace in traces],
            _shifted([trace.host_scopes.place for trace in traces], shift["process"]),
            shift["name"],
        ),
        device_scopes=_scopes(
            [trace.device_scopes for trace in traces],
            np.concatenate([to[trace.device_scopes.place] for to, trace in zip(moved, traces, strict=True)]),
            shift["name"],
        ),
        streams=streams,
        findings=tuple(finding for trace in traces for finding in trace.findings),
    )


def _check_one_process(traces: Sequence[Trace]) -> None:
    first = traces[0]
    for other in traces[1:]:
        if (other.rank, other.world_size, other.facts) != (first.rank, first.world_size, first.facts):
            raise errors.Inconsistent(
                where=other.source,
                expected=f"a trace of the same process as {first.source}",
                found="another rank, device or version",
                remedy="Traces of two recordings were mixed; record again.",
            )


def _ops(ops: list[Ops], names: list[int], launches: list[int]) -> Ops:
    return Ops(
        kind=np.concatenate([one.kind for one in ops]),
        device=np.concatenate([one.device for one in ops]),
        stream=np.concatenate([one.stream for one in ops]),
        start_ns=np.concatenate([one.start_ns for one in ops]),
        end_ns=np.concatenate([one.end_ns for one in ops]),
        name=_shifted([one.name for one in ops], names),
        launch=_shifted([one.launch for one in ops], launches),
    )


def _scopes(scopes: list[Scopes], place: Int64Array, names: list[int]) -> Scopes:
    return Scopes(
        place=place,
        start_ns=np.concatenate([one.start_ns for one in scopes]),
        end_ns=np.concatenate([one.end_ns for one in scopes]),
        name=_shifted([one.name for one in scopes], names),
    )


def _starts(lengths: list[int]) -> list[int]:
    return [sum(lengths[:index]) for index in range(len(lengths))]


def _shifted(columns: list[Int64Array], by: list[int]) -> Int64Array:
    """Index columns behind each other, each moved to where its trace's entries now stand; NONE stays NONE."""
    moved = [np.where(one == NONE, NONE, one + offset) for one, offset in zip(columns, by, strict=True)]
    return np.concatenate(moved).astype(np.int64)


def _highest(*columns: Int64Array) -> int:
    return max((int(one.max()) for one in columns if len(one)), default=NONE)
