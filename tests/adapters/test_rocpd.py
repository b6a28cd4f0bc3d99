"""The database of rocprofv3: the literal workload in its schema reads as in every other format."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from literal_workload import BASE, BUSY_NS, columns, expected
from moegauge import errors
from moegauge.adapters.traces.recognition import parse_trace, read_trace
from moegauge.kernels.trace import Trace
from moegauge.timing.intervals import busy_union
from rocpd_database import ID, NAMES, Database, workload


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
