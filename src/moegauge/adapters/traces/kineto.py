"""Kineto Chrome traces (torch profiler): exact integer ns, columns, and nothing dropped in silence.

Time is joined to launches by correlation, which is unique in a process only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.compression import read_pieces, read_unpacked, unpacked
from moegauge.adapters.traces.kineto_columns import EventColumns
from moegauge.adapters.traces.kineto_json import KinetoFile, decode_kineto
from moegauge.adapters.traces.kineto_pieces import PIECE_BYTES, decode_pieces
from moegauge.kernels.trace import NONE, InvalidOps, Launches, Ops, Scopes, Trace
from moegauge.records.capture import Finding

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def read_kineto(path: Path) -> Trace:
    """Read one Kineto trace file (gzip or plain), a piece at a time.

    Raises:
        MissingFile, MalformedFile, LimitExceeded: see adapters.compression.
        Incomplete: the trace holds launch calls but no device operation, or nothing at all.
        Ambiguous: a correlation has two launch calls that nothing tells apart.
    """
    return _read(read_pieces(path), lambda: read_unpacked(path), source=str(path))


def parse_kineto(data: bytes, *, source: str) -> Trace:
    """Parse the bytes of a Kineto trace. See :func:`read_kineto`."""
    data = unpacked(data, where=source)
    pieces = (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))
    return _read(pieces, lambda: data, source=source)


def _read(pieces: Iterable[bytes], whole: Callable[[], bytes], *, source: str) -> Trace:
    """Read a trace in pieces, or as a whole where it cannot be read like that."""
    columns = EventColumns(source)
    file, findings = decode_pieces(pieces, columns.take), list[Finding]()
    if file is None:
        columns = EventColumns(source)
        file, findings = decode_kineto(whole(), source)
        columns.take(file.trace_events)
    return _trace(source, file, columns, findings)


def _trace(source: str, file: KinetoFile, columns: EventColumns, findings: list[Finding]) -> Trace:
    launches = _launches(columns)
    ops, invalid = _ops(source, columns, launches)
    if not len(ops):
        raise _no_ops(source, len(launches), len(invalid.name))
    if len(invalid.name):
        findings.append(
            Finding(
                code="INVALID_TIMESTAMPS",
                sentence="device rows without usable time stamps (0, negative, or no duration) are in no sum",
                num=len(invalid.name),
                examples=invalid.raw[:5],
            )
        )
    if columns.sub_ns:
        findings.append(
            Finding(code="SUB_NS", sentence="times finer than 1 ns were rounded to even", num=columns.sub_ns)
        )
    device = columns.device_scopes.columns()
    streams = _streams(ops, device)
    number = {stream: index for index, stream in enumerate(streams)}
    place = [number[pair] for pair in zip(device[0].tolist(), device[1].tolist(), strict=True)]
    host = columns.host_scopes.columns()
    return Trace(
        source=source,
        rank=file.distributed.rank if file.distributed else None,
        world_size=file.distributed.world_size if file.distributed else None,
        facts=_facts(file, ops),
        names=list(columns.names),
        ops=ops,
        invalid=invalid,
        launches=launches,
        host_scopes=Scopes(place=host[0], start_ns=host[1], end_ns=host[2], name=host[3]),
        device_scopes=Scopes(
            place=np.array(place, dtype=np.int64), start_ns=device[2], end_ns=device[3], name=device[4]
        ),
        streams=streams,
        findings=tuple(findings),
    )


def _no_ops(source: str, num_launches: int, num_invalid: int) -> errors.Incomplete:
    return errors.Incomplete(
        where=source,
        expected="device operations (kernel rows)",
        found=f"no kernel records ({num_launches} launch calls, {num_invalid} rows without usable time stamps)",
        remedy="The first profiler session of a process can record nothing; warm the profiler up and record again.",
    )


def _launches(columns: EventColumns) -> Launches:
    """Launch calls, each with the operator or annotation that carries its External id first in its process."""
    process, start, name, correlation, external, has_external = columns.launches.columns()
    key = ["process", "external"]
    owners = pl.DataFrame(columns.owners.columns().T, schema=[*key, "owner"], orient="row")
    calls = pl.DataFrame({"process": process, "external": external})
    found = calls.join(owners.unique(key, keep="first"), on=key, how="left", maintain_order="left")
    owner = np.where(has_external == 1, found["owner"].fill_null(NONE).to_numpy(), NONE)
    return Launches(process=process, start_ns=start, name=name, correlation=correlation, owner=owner)


def _ops(source: str, columns: EventColumns, launches: Launches) -> tuple[Ops, InvalidOps]:
    kind, device, stream, start, end, name, correlation, correlated = columns.ops.columns()
    launch, several = _joined(launches, correlation, correlated == 1)
    _separate(source, several, launches, device, launch)
    invalid_name, correlation, correlated = columns.invalid.columns()
    invalid_launch, _ = _joined(launches, correlation, correlated == 1)
    return (
        Ops(kind=kind, device=device, stream=stream, start_ns=start, end_ns=end, name=name, launch=launch),
        InvalidOps(name=invalid_name, launch=invalid_launch, raw=tuple(columns.invalid_texts)),
    )


def _joined(
    launches: Launches, correlation: Int64Array, correlated: BoolArray
) -> tuple[Int64Array, list[tuple[int, list[int]]]]:
    """The only launch call of each correlation, NONE where there is none or several; and (row, calls) of the latter."""
    order = np.argsort(launches.correlation, kind="stable")
    known = launches.correlation[order]
    first, last = (np.searchsorted(known, correlation, side=side) for side in ("left", "right"))
    num = np.where(correlated, last - first, 0)
    launch = np.full(len(correlation), NONE, dtype=np.int64)
    launch[num == 1] = order[first[num == 1]]
    return launch, [(row, order[first[row] : last[row]].tolist()) for row in np.flatnonzero(num > 1).tolist()]


def _separate(
    source: str, several: list[tuple[int, list[int]]], launches: Launches, device: Int64Array, launch: Int64Array
) -> None:
    """Decide between launch calls of one correlation: rule out processes known to use other devices only."""
    if not several:
        return
    known = launch != NONE
    uses = set(zip(launches.process[launch[known]].tolist(), device[known].tolist(), strict=True))
    seen = {process for process, _ in uses}
    for row, candidates in several:
        process = {c: int(launches.process[c]) for c in candidates}
        fits = [c for c in candidates if process[c] not in seen or (process[c], int(device[row])) in uses]
        if len(fits) != 1:
            raise errors.Ambiguous(
                where=source,
                expected="one launch call for each correlation of a process",
                found=f"correlation {launches.correlation[candidates[0]]} on {len(candidates)} launch calls",
                remedy="Export each process's trace to its own file.",
            )
        launch[row] = fits[0]


def _streams(ops: Ops, device_scopes: Int64Array) -> list[tuple[int, int]]:
    """Every (device, stream) once, in order of appearance."""
    pairs = {
        "device": np.concatenate([ops.device, device_scopes[0]]),
        "stream": np.concatenate([ops.stream, device_scopes[1]]),
    }
    return pl.DataFrame(pairs).unique(maintain_order=True).rows()


def _facts(file: KinetoFile, ops: Ops) -> dict[str, str]:
    models = {device.id: device.name for device in file.device_properties}
    used = sorted({models[int(device)] for device in np.unique(ops.device) if int(device) in models})
    versions = {
        "cuda_driver": file.cuda_driver_version,
        "cuda_runtime": file.cuda_runtime_version,
        "cupti": file.cupti_version,
    }
    facts = {name: str(value) for name, value in versions.items() if value is not None}
    return facts | ({"device_model": ", ".join(used)} if used else {})
