"""The database of rocprofv3: the literal workload in its schema reads as in every other format."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from literal_workload import BASE, BUSY_NS, CALLS, OPS, RANGES, columns, expected
from moegauge import errors
from moegauge.adapters.traces.recognition import parse_trace, read_trace
from moegauge.kernels.trace import Trace
from moegauge.timing.intervals import busy_union

ID = "_00001a2b_7e1f_73a5_9d2c_0123456789ab"
NAMES = {"launch": "hipExtModuleLaunchKernel", "copy": "hipMemcpyAsync", "graph": "hipGraphLaunch"}
STRINGS = {
    "launch": 1, "copy": 2, "graph": 3, "HIP_RUNTIME_API_EXT": 4, "MARKER_CORE_RANGE_API": 5, "roctxRangePushA": 6,
    "MEMORY_COPY_DEVICE_TO_DEVICE": 7, "KERNEL_DISPATCH": 8, "MEMORY_COPY_HOST_TO_HOST": 9,
}  # fmt: skip

SCHEMA = """
CREATE TABLE rocpd_string{id} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_agent{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, type TEXT,
    absolute_index INTEGER, logical_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT);
CREATE TABLE rocpd_info_kernel_symbol{id} (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT);
CREATE TABLE rocpd_event{id} (id INTEGER PRIMARY KEY, category_id INTEGER, stack_id INTEGER,
    parent_stack_id INTEGER, correlation_id INTEGER, extdata JSONB DEFAULT "{{}}" NOT NULL);
CREATE TABLE rocpd_region{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER,
    agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,
    "end" BIGINT, event_id INTEGER);
CREATE TABLE rocpd_memory_copy{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER,
    event_id INTEGER);
CREATE VIEW rocpd_kernel_dispatch_view AS SELECT * FROM rocpd_kernel_dispatch{id};
"""


class Database:
    """Writes one database, row by row."""

    def __init__(self, path: Path, *, id_: str = ID) -> None:
        self.path, self.id = path, id_
        self.connection = sqlite3.connect(path)
        self.connection.executescript(SCHEMA.format(id=id_))

    def insert(self, table: str, **values: object) -> int:
        names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        text = f"INSERT INTO rocpd_{table}{self.id} ({names}) VALUES ({marks})"  # noqa: S608
        row = self.connection.execute(text, list(values.values())).lastrowid
        assert row is not None
        return row

    def event(self, category: str, stack: object, extdata: object = "{}") -> int:
        return self.insert("event", category_id=STRINGS[category], stack_id=stack, extdata=extdata)

    def call(self, name: str, start: int, stack: object) -> None:
        event = self.event("HIP_RUNTIME_API_EXT", stack)
        self.insert(
            "region", pid=700, tid=701, start=BASE + start, end=BASE + start + 5, name_id=STRINGS[name], event_id=event
        )

    def kernel(self, name: int, start: object, end: object, stream: object, stack: object) -> None:
        event = self.event("KERNEL_DISPATCH", stack)
        self.insert(
            "kernel_dispatch", pid=700, agent_id=5, kernel_id=name, queue_id=1, stream_id=stream, start=start, end=end,
            event_id=event,
        )  # fmt: skip

    def copy(self, name: str, start: int, end: int, *, stream: int, stack: int, agents: Sequence[int]) -> None:
        event = self.event("KERNEL_DISPATCH", stack)
        self.insert(
            "memory_copy", pid=700, start=BASE + start, end=BASE + end, name_id=STRINGS[name], src_agent_id=agents[0],
            dst_agent_id=agents[1], stream_id=stream, event_id=event,
        )  # fmt: skip

    def marker(self, start: int, end: int, stack: int, extdata: object) -> None:
        event = self.event("MARKER_CORE_RANGE_API", stack, extdata)
        self.insert(
            "region", pid=700, tid=701, start=BASE + start, end=BASE + end, name_id=STRINGS["roctxRangePushA"],
            event_id=event,
        )  # fmt: skip

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path


def workload(path: Path, *, id_: str = ID) -> Database:
    """The literal workload; agent 5 is the first GPU, agent 0 the host."""
    database = Database(path, id_=id_)
    for name, number in STRINGS.items():
        database.insert("string", id=number, string=NAMES.get(name, name))
    database.insert("info_agent", id=0, type="CPU", type_index=0, name="host", product_name="A host")
    database.insert("info_agent", id=5, type="GPU", type_index=0, name="gfx942", product_name="GPU model A")
    database.insert("info_agent", id=6, type="GPU", type_index=1, name="gfx950", product_name="GPU model B")
    database.insert("info_kernel_symbol", id=1, kernel_name="_Z4gemm.kd", display_name="gemm")
    database.insert("info_kernel_symbol", id=2, kernel_name="act", display_name=None)
    for name, start, correlation in CALLS:
        database.call(name, start, correlation)
    for name, stream, start, end, correlation in OPS:
        if "Memcpy" in name:
            kind = "MEMORY_COPY_DEVICE_TO_DEVICE"
            database.copy(kind, start, end, stream=stream, stack=correlation, agents=(5, 5))
        else:
            database.kernel({"gemm": 1, "act": 2}[name], BASE + start, BASE + end, stream, correlation)
    for number, (text, start, end) in enumerate(RANGES):
        database.marker(start, end, 900 + number, json.dumps({"message": text}))
    return database


def read(database: Database) -> Trace:
    return read_trace(database.close())


@pytest.mark.parametrize("id_", [ID, ""])
def test_the_literal_workload_reads_the_same_from_rocprofv3(tmp_path: Path, id_: str) -> None:
    trace = read(workload(tmp_path / "results.db", id_=id_))
    assert columns(trace) == expected(NAMES)
    assert busy_union(trace.ops.start_ns, trace.ops.end_ns) == BUSY_NS
    assert trace.facts == {"profiler": "rocprofv3", "device_model": "GPU model A"}
    assert trace.findings == ()


def test_a_gzip_copy_reads_the_same(tmp_path: Path) -> None:
    data = workload(tmp_path / "results.db").close().read_bytes()
    assert columns(parse_trace(gzip.compress(data), source="packed")) == expected(NAMES)


def test_a_device_is_the_index_among_the_gpus_and_a_copy_in_host_memory_is_none(tmp_path: Path) -> None:
    database = workload(tmp_path / "results.db")
    database.connection.execute(f"UPDATE rocpd_kernel_dispatch{ID} SET agent_id = 6")  # noqa: S608
    database.copy("MEMORY_COPY_HOST_TO_HOST", 1, 2, stream=1, stack=1, agents=(0, 0))
    trace = read(database)
    assert sorted(zip(trace.ops.kind.tolist(), trace.ops.device.tolist(), strict=True)) == [(0, 1)] * 8 + [(1, 0)]
    assert trace.facts["device_model"] == "GPU model B"


def test_tables_of_two_processes_are_refused(tmp_path: Path) -> None:
    database = workload(tmp_path / "results.db")
    database.connection.execute("CREATE TABLE rocpd_kernel_dispatch_other (id INTEGER)")
    with pytest.raises(errors.Ambiguous, match="tables of 2"):
        read(database)


def test_the_views_of_a_database_are_not_its_tables(tmp_path: Path) -> None:
    database = workload(tmp_path / "results.db")
    for table in ("kernel_dispatch", "memory_copy", "region"):
        database.connection.execute(f"ALTER TABLE rocpd_{table}{ID} RENAME TO kept_{table}")
        database.connection.execute(f"CREATE VIEW rocpd_{table} AS SELECT * FROM kept_{table}")  # noqa: S608
    with pytest.raises(errors.MalformedFile, match="an SQLite database with 7 tables"):
        read(database)


def test_without_recorded_calls_no_operation_has_one(tmp_path: Path) -> None:
    database = workload(tmp_path / "results.db")
    database.connection.execute(f"DELETE FROM rocpd_region{ID}")  # noqa: S608
    trace = read(database)
    assert trace.ops.launch.tolist() == [-1] * 9
    assert len(trace.host_scopes.name) == 0


@pytest.mark.parametrize("extdata", ["{", "[1]", '{"message": 5}', "[" * 5_000])
def test_a_range_whose_message_is_no_text_is_refused(tmp_path: Path, extdata: str) -> None:
    database = workload(tmp_path / "results.db")
    database.marker(1, 2, 990, extdata)
    with pytest.raises(errors.MalformedFile, match="the message of a range"):
        read(database)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (BASE, BASE), (BASE, BASE - 1), (None, BASE), (BASE, None), (-1, 5)]
)
def test_a_dispatch_without_usable_times_is_put_aside_and_counted(tmp_path: Path, start: object, end: object) -> None:
    database = workload(tmp_path / "results.db")
    database.kernel(1, start, end, 7, 1)
    trace = read(database)
    assert columns(trace) == expected(NAMES)
    assert [(finding.code, finding.num) for finding in trace.findings] == [("INVALID_TIMESTAMPS", 1)]


@pytest.mark.parametrize("value", ["text", 1.5, b"\x01"])
@pytest.mark.parametrize("column", ["start", "stream_id"])
def test_anything_but_an_integer_is_refused(tmp_path: Path, column: str, value: object) -> None:
    database = workload(tmp_path / "results.db")
    database.connection.execute(f"UPDATE rocpd_kernel_dispatch{ID} SET {column} = ? WHERE id = 2", (value,))  # noqa: S608
    with pytest.raises(errors.MalformedFile, match=f"{column} holds"):
        read(database)


def test_a_dispatch_without_a_stream_is_refused(tmp_path: Path) -> None:
    database = workload(tmp_path / "results.db")
    database.kernel(1, BASE, BASE + 1, None, 1)
    with pytest.raises(errors.MalformedFile, match="1 operations without"):
        read(database)


def test_an_empty_database_is_incomplete(tmp_path: Path) -> None:
    with pytest.raises(errors.Incomplete, match="rocprofv3 --kernel-trace"):
        read(Database(tmp_path / "results.db"))


@given(st.lists(st.tuples(st.integers(0, 60_000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=8))
def test_a_damaged_database_is_a_value_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole-rocpd"
    if not path.exists():
        workload(path).close()
    data = bytearray(path.read_bytes())
    for at, piece in cuts:
        begin = at % len(data)
        data[begin : begin + len(piece)] = piece
    try:
        trace = parse_trace(bytes(data), source="damaged")
    except errors.MoegaugeError:
        return
    assert (trace.ops.end_ns > trace.ops.start_ns).all()
