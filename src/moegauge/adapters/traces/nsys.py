"""Nsight Systems, exported to SQLite. Tables and columns are there only when they hold something; all are optional.

Field names: the SQLite schema reference of Nsight Systems. Times are ns since the session began.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moegauge.adapters.traces.recorded_columns import RecordedOps, RecordedRanges, recorded_trace
from moegauge.adapters.traces.sqlite_tables import ABSENT, SqliteTables
from moegauge.kernels.trace import OpKind, Trace
from moegauge.records.capture import Finding

Int64Array = NDArray[np.int64]

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NSYS_TABLES = frozenset({_KERNEL, _MEMCPY, _MEMSET, _RUNTIME, _GRAPH, "NVTX_EVENTS", "META_DATA_EXPORT"})
"""Any of these makes a database one of Nsight Systems."""
_TID_BITS = 24
_NVTX_RANGES = (59, 60)  # push/pop and start/end, as ENUM_NSYS_EVENT_TYPE numbers them
_COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
}  # fmt: skip
"""CUpti_ActivityMemcpyKind."""


def nsys_trace(tables: SqliteTables) -> Trace:
    """Read a database of Nsight Systems. Errors: see recorded_columns.recorded_trace and SqliteTables."""
    strings = _strings(tables)
    graphs = len(tables.integers(_GRAPH, ["start"])[0])
    remedy = (
        "Graphs were recorded as one row each; record again with --cuda-graph-trace=node."
        if graphs
        else "Record with --trace=cuda,nvtx over a range in which kernels run, and export again."
    )
    return recorded_trace(
        tables.source,
        [_kernels(tables, strings), _copies(tables), _sets(tables)],
        _calls(tables, strings),
        _nvtx(tables, strings),
        facts=_facts(tables),
        findings=_whole_graphs(graphs),
        no_ops_remedy=remedy,
    )


def _strings(tables: SqliteTables) -> dict[int, str | None]:
    (ids,), (values,) = tables.integers("StringIds", ["id"]), tables.texts("StringIds", ["value"])
    return dict(zip(ids.tolist(), values, strict=True))


def _process(global_id: Int64Array) -> Int64Array:
    """Machine, VM and process of a globalPid or globalTid: everything above the thread's 24 bits."""
    return np.where(global_id == ABSENT, ABSENT, global_id >> _TID_BITS)


def _ops(tables: SqliteTables, table: str, kind: OpKind, names: list[str | None]) -> RecordedOps:
    start, end, device, stream, correlation, process = tables.integers(
        table, ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
    )
    return RecordedOps(
        kind=kind,
        process=_process(process),
        device=device,
        stream=stream,
        start_ns=start,
        end_ns=end,
        correlation=correlation,
        names=names,
    )


def _kernels(tables: SqliteTables, strings: dict[int, str | None]) -> RecordedOps:
    """Kernels by demangled name; short and mangled names where that was not recorded."""
    known = tables.integers(_KERNEL, ["demangledName", "shortName", "mangledName"])
    names = [
        next((strings[one] for one in ids if strings.get(one)), None)
        for ids in zip(*(column.tolist() for column in known), strict=True)
    ]
    return _ops(tables, _KERNEL, OpKind.KERNEL, names)


def _copies(tables: SqliteTables) -> RecordedOps:
    (kinds,) = tables.integers(_MEMCPY, ["copyKind"])
    names: list[str | None] = [f"Memcpy {_COPIES.get(kind, 'Unknown')}" for kind in kinds.tolist()]
    return _ops(tables, _MEMCPY, OpKind.MEMCPY, names)


def _sets(tables: SqliteTables) -> RecordedOps:
    (starts,) = tables.integers(_MEMSET, ["start"])
    return _ops(tables, _MEMSET, OpKind.MEMSET, ["Memset (Device)"] * len(starts))


def _calls(tables: SqliteTables, strings: dict[int, str | None]) -> RecordedRanges:
    start, end, thread, correlation, name = tables.integers(
        _RUNTIME, ["start", "end", "globalTid", "correlationId", "nameId"]
    )
    return RecordedRanges(
        process=_process(thread),
        start_ns=start,
        end_ns=end,
        correlation=correlation,
        names=[strings.get(one) for one in name.tolist()],
    )


def _nvtx(tables: SqliteTables, strings: dict[int, str | None]) -> RecordedRanges:
    """Closed NVTX ranges; their text stands in the row or among the strings."""
    start, end, thread, kind, text_id = tables.integers(
        "NVTX_EVENTS", ["start", "end", "globalTid", "eventType", "textId"]
    )
    (texts,) = tables.texts("NVTX_EVENTS", ["text"])
    kept = np.flatnonzero(np.isin(kind, _NVTX_RANGES))
    return RecordedRanges(
        process=_process(thread)[kept],
        start_ns=start[kept],
        end_ns=end[kept],
        correlation=np.full(len(kept), ABSENT, dtype=np.int64),
        names=[texts[index] or strings.get(int(text_id[index])) for index in kept],
    )


def _whole_graphs(num: int) -> tuple[Finding, ...]:
    if not num:
        return ()
    return (
        Finding(
            code="GRAPHS_AS_ONE_ROW",
            sentence="graph launches were recorded as one row each; the kernels in them are not recorded and in no sum",
            num=num,
        ),
    )


def _facts(tables: SqliteTables) -> dict[str, str]:
    (ids,), (names,) = tables.integers("TARGET_INFO_GPU", ["id"]), tables.texts("TARGET_INFO_GPU", ["name"])
    used = set(tables.integers(_KERNEL, ["deviceId"])[0].tolist())
    models = sorted({name for one, name in zip(ids.tolist(), names, strict=True) if one in used and name})
    return {"profiler": "nsys"} | ({"device_model": ", ".join(models)} if models else {})
