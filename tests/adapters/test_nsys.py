"""Nsight Systems' SQLite export: read by name from memory, joined by process and correlation, refused by type."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from literal_workload import BASE, BUSY_NS, CALLS, OPS, RANGES, columns, expected
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.traces import sqlite_tables
from moegauge.adapters.traces.recognition import parse_trace, read_trace
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_derivation import ReplayLabels
from moegauge.jobs.profile_import import import_replay
from moegauge.jobs.verify import verify
from moegauge.jobs.verify_measurements import verify_database
from moegauge.kernels.trace import Trace
from moegauge.timing.intervals import busy_union
from nsys_database import (
    GLOBAL_PID,
    GLOBAL_TID,
    NAMES,
    SCHEMA,
    Statement,
    call,
    copy,
    kernel,
    nsys_database,
    nvtx,
    string,
    workload,
)  # fmt: skip
from simulator import Recording, TraceBuilder

ROOT = Path(__file__).parents[2]


def read(folder: Path, statements: Iterable[Statement], *, schema: str = SCHEMA) -> Trace:
    return read_trace(nsys_database(folder / "trace.bin", statements, schema=schema))


def test_the_literal_workload_reads_the_same_from_nsight_systems_and_from_kineto(tmp_path: Path) -> None:
    trace = read(tmp_path, workload())
    assert columns(trace) == expected(NAMES)
    assert busy_union(trace.ops.start_ns, trace.ops.end_ns) == BUSY_NS
    builder = TraceBuilder()
    for name, start, correlation in CALLS:
        builder.next_correlation = correlation - 1
        builder.launch(BASE + start, name=NAMES[name])
    for name, stream, start, end, correlation in OPS:
        kind = "gpu_memcpy" if "Memcpy" in name else "kernel"
        builder.kernel(name, BASE + start, end - start, stream=stream, correlation=correlation, cat=kind)
    for text, start, end in RANGES:
        builder.host_scope(text, BASE + start, end - start)
    kineto = parse_trace(builder.data(), source="kineto")
    assert columns(kineto) == columns(trace)
    assert busy_union(kineto.ops.start_ns, kineto.ops.end_ns) == BUSY_NS


def test_a_gzip_copy_reads_the_same(tmp_path: Path) -> None:
    path = nsys_database(tmp_path / "plain", workload())
    (tmp_path / "packed").write_bytes(gzip.compress(path.read_bytes()))
    assert columns(read_trace(tmp_path / "packed")) == expected(NAMES)


def test_the_profiler_and_the_devices_that_ran_kernels_become_conditions(tmp_path: Path) -> None:
    devices = [("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, ?, '')", (n, f"GPU model {n}")) for n in (0, 1)]
    assert read(tmp_path, [*workload(), *devices]).facts == {"profiler": "nsys", "device_model": "GPU model 0"}


def test_text_of_a_range_may_stand_among_the_strings(tmp_path: Path) -> None:
    rows = [row for row in workload() if "NVTX" not in row[0]]
    rows += [string(90 + n, text) for n, (text, _, _) in enumerate(RANGES)]
    rows += [nvtx(BASE + start, BASE + end, text_id=90 + n) for n, (_, start, end) in enumerate(RANGES)]
    assert columns(read(tmp_path, rows)) == expected(NAMES)


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "TARGET_INFO_GPU", "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"])
def test_any_table_but_the_kernels_may_be_absent(tmp_path: Path, table: str) -> None:
    schema = re.sub(rf"CREATE TABLE {table} \(.*?\);", "", SCHEMA, flags=re.DOTALL)
    trace = read(tmp_path, [row for row in workload() if table not in row[0]], schema=schema)
    wanted = expected(NAMES)
    if "MEMCPY" in table:
        wanted["ops"] = [row for row in wanted["ops"] if row[0] == "KERNEL"]
    if "NVTX" in table:
        wanted["ranges"] = []
    assert columns(trace) == wanted


def test_without_launch_calls_no_operation_has_one(tmp_path: Path) -> None:
    trace = read(tmp_path, [row for row in workload() if "RUNTIME" not in row[0]])
    assert trace.ops.launch.tolist() == [-1] * 9
    assert len(trace.launches) == 0


def test_the_same_correlation_in_another_process_is_another_call(tmp_path: Path) -> None:
    other = [call(BASE + 5, name=3, correlation=c, thread=GLOBAL_TID + (1 << 24)) for c in range(1, 7)]
    trace = read(tmp_path, [*other, *workload()])
    wanted = expected(NAMES)
    assert columns(trace)["ops"] == wanted["ops"]
    assert sorted({int(trace.launches.process[at]) for at in trace.ops.launch}) == [0]
    assert len(trace.launches) == 12


def test_operations_of_two_processes_are_refused(tmp_path: Path) -> None:
    rows = [*workload(), kernel(BASE + 1, BASE + 2, name=1, correlation=1, process=GLOBAL_PID + (1 << 24))]
    with pytest.raises(errors.Ambiguous) as caught:
        read(tmp_path, rows)
    assert caught.value.found == "device operations of 2 processes"


def test_an_operation_without_a_process_is_refused_where_two_made_calls(tmp_path: Path) -> None:
    rows = [*workload(), kernel(BASE + 1, BASE + 2, name=1, correlation=1, process=None)]
    assert len(read(tmp_path, rows).ops) == 10
    (tmp_path / "two").mkdir()
    with pytest.raises(errors.Ambiguous, match="name no process, in a file of 2 processes"):
        read(tmp_path / "two", [*rows, call(BASE, name=3, correlation=77, thread=GLOBAL_TID + (1 << 24))])


def test_two_calls_of_one_correlation_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Ambiguous, match="correlation 3 on 2 calls"):
        read(tmp_path, [*workload(), call(BASE + 1_301, name=3, correlation=3)])


def test_graphs_recorded_as_one_row_are_said_and_are_in_no_sum(tmp_path: Path) -> None:
    schema = SCHEMA + "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, graphId INTEGER);"
    rows: list[Statement] = [("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 1)", (BASE, BASE + 10**9))]
    trace = read(tmp_path, [*workload(), *rows], schema=schema)
    assert [(finding.code, finding.num) for finding in trace.findings] == [("GRAPHS_AS_ONE_ROW", 1)]
    assert busy_union(trace.ops.start_ns, trace.ops.end_ns) == BUSY_NS
    (tmp_path / "none").mkdir()
    with pytest.raises(errors.Incomplete) as caught:
        read(tmp_path / "none", rows, schema=schema)
    assert caught.value.remedy == "Graphs were recorded as one row each; record again with --cuda-graph-trace=node."


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (0, 0, "gemm: start=0 end=0"),
        (BASE + 50, BASE + 50, f"gemm: start={BASE + 50} end={BASE + 50}"),
        (BASE + 50, BASE + 40, f"gemm: start={BASE + 50} end={BASE + 40}"),
        (-5, 10, "gemm: start=-5 end=10"),
        (None, BASE, f"gemm: start=not recorded end={BASE}"),
        (BASE, None, f"gemm: start={BASE} end=not recorded"),
        (-(2**63), 2**63 - 1, f"gemm: start=not recorded end={2**63 - 1}"),
        (1, 2**63 - 1, f"gemm: start=1 end={2**63 - 1}"),
    ],
)
def test_an_operation_without_usable_times_is_put_aside_and_counted(
    tmp_path: Path, start: object, end: object, said: str
) -> None:
    trace = read(tmp_path, [*workload(), kernel(start, end, name=1, correlation=1)])
    assert columns(trace) == expected(NAMES)
    assert trace.invalid.raw == (said,)
    assert [(finding.code, finding.num) for finding in trace.findings] == [("INVALID_TIMESTAMPS", 1)]


@pytest.mark.parametrize("value", ["1.5", "12", "<b>", b"\x00\xff", 1.5, 1e300])
@pytest.mark.parametrize("column", ["start", "streamId", "correlationId", "demangledName"])
def test_anything_but_an_integer_in_an_integer_column_is_refused(tmp_path: Path, column: str, value: object) -> None:
    schema = SCHEMA.replace("INTEGER", "")  # without a type SQLite keeps each value as it was given
    update = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = ? WHERE correlationId = 3"  # noqa: S608
    change = (update, (value,))
    with pytest.raises(errors.MalformedFile, match=rf"KERNEL\.{column} holds"):
        read(tmp_path, [*workload(), change], schema=schema)


def test_an_operation_without_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.MalformedFile, match="1 operations without"):
        read(
            tmp_path,
            [*workload(), ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = NULL WHERE start = ?", (BASE + 10_000,))],
        )


def test_nulls_everywhere_are_no_traceback(tmp_path: Path) -> None:
    tables = re.findall(r"CREATE TABLE (\w+) ", SCHEMA)
    rows: list[Statement] = [(f"INSERT INTO {t} DEFAULT VALUES", ()) for t in tables if t != "StringIds"]
    trace = read(tmp_path, [*workload(), *[row for row in rows if "KERNEL" not in row[0] and "MEMCPY" not in row[0]]])
    assert columns(trace)["ops"] == expected(NAMES)["ops"]
    (tmp_path / "all").mkdir()
    with pytest.raises(errors.MalformedFile, match="2 operations without"):
        read(tmp_path / "all", [*workload(), *rows])


def test_names_with_control_characters_are_repaired_and_markup_stays_text(tmp_path: Path) -> None:
    change = ("UPDATE StringIds SET value = ? WHERE id = 1", ("<script>\x1b[31m\x00[bold]",))
    trace = read(tmp_path, [*workload(), change])
    assert "<script>\ufffd[31m\ufffd[bold]" in trace.names
    assert [(finding.code, finding.num) for finding in trace.findings] == [("NAMES_REPAIRED", 4)]


# --- databases that would do something ----------------------------------------------------------------------


def test_a_view_that_poses_as_a_table_is_not_read(tmp_path: Path) -> None:
    schema = SCHEMA.replace("TABLE CUPTI_ACTIVITY_KIND_KERNEL (", "TABLE hidden (")
    schema += "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM hidden;"
    renamed = [(text.replace("CUPTI_ACTIVITY_KIND_KERNEL", "hidden"), values) for text, values in workload()]
    rows = [row for row in renamed if "MEMCPY" not in row[0]]
    with pytest.raises(errors.Incomplete, match="no kernel records"):
        read(tmp_path, rows, schema=schema)


def test_triggers_virtual_tables_and_generated_columns_are_left_alone(tmp_path: Path) -> None:
    schema = SCHEMA.replace(
        "graphNodeId INTEGER)", "graphNodeId INTEGER, textId INTEGER GENERATED ALWAYS AS (abs(start)) VIRTUAL)"
    )
    schema += "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMSET USING fts5(start, end);"
    schema += "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM NVTX_EVENTS; END;"
    path = nsys_database(tmp_path / "trace.bin", workload(), schema=schema)
    before = path.read_bytes()
    assert columns(read_trace(path)) == expected(NAMES)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["trace.bin"]


def test_nothing_but_reading_columns_is_allowed_on_an_opened_database(tmp_path: Path) -> None:
    view = "CREATE VIEW v AS SELECT * FROM StringIds;"
    path = nsys_database(tmp_path / "trace.bin", workload(), schema=f"{SCHEMA}{view}")
    tables = sqlite_tables.SqliteTables(path.read_bytes(), "here")
    connection = tables._connection
    for text in (
        f"ATTACH '{tmp_path / 'other'}' AS other",
        "DELETE FROM StringIds",
        "SELECT * FROM v",
        "SELECT load_extension('x')",
        "PRAGMA query_only = OFF",
        "CREATE TABLE t (x)",
    ):
        with pytest.raises(sqlite3.DatabaseError):
            connection.execute(text)
    assert "v" not in tables.columns
    tables.close()


def test_a_database_whose_last_rows_may_lie_in_another_file_is_refused(tmp_path: Path) -> None:
    path = nsys_database(tmp_path / "trace.bin", workload())
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
    database.close()
    with pytest.raises(errors.MalformedFile, match="WAL mode"):
        read_trace(path)


def test_more_rows_than_the_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_tables, "MAX_ROWS", 7)
    with pytest.raises(errors.LimitExceeded, match="at most 7 rows"):
        read(tmp_path, workload())


def test_a_text_longer_than_the_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.MalformedFile, match="too big"):
        read(tmp_path, [*workload(), string(99, "x" * (sqlite_tables.MAX_TEXT_BYTES + 1))])


def test_another_database_is_refused_with_the_tables_it_holds(tmp_path: Path) -> None:
    with pytest.raises(errors.MalformedFile, match="an SQLite database with 2 tables: a, b"):
        read(tmp_path, [], schema="CREATE TABLE b (x); CREATE TABLE a (x);")


@given(st.lists(st.tuples(st.integers(0, 40_000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=8))
def test_a_damaged_database_is_a_value_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole-nsys"
    if not path.exists():
        nsys_database(path, workload())
    data = bytearray(path.read_bytes())
    for at, piece in cuts:
        begin = at % len(data)
        data[begin : begin + len(piece)] = piece
    try:
        trace = parse_trace(bytes(data), source="damaged")
    except errors.MoegaugeError:
        return
    assert (trace.ops.end_ns > trace.ops.start_ns).all()


# --- through a capture ------------------------------------------------------------------------------------


def as_nsys(path: Path, data: bytes) -> Path:
    """A Kineto trace written again as Nsight Systems would: the test's own conversion, in plain SQL."""
    ids: dict[str, int] = {}
    rows: list[Statement] = []

    def number(name: str) -> int:
        if name not in ids:
            ids[name] = len(ids) + 1
            rows.append(string(ids[name], name))
        return ids[name]

    for event in json.loads(data, parse_float=Decimal)["traceEvents"]:
        category, args = event.get("cat"), event.get("args", {})
        if event.get("ph") != "X":
            continue
        start, end = (int(Decimal(value) * 1000) for value in (event["ts"], event["ts"] + event["dur"]))
        name = event["name"]
        if category == "kernel":
            rows.append(kernel(start, end, name=number(name), correlation=args["correlation"], stream=args["stream"]))
        elif category == "gpu_memcpy":
            kind = {"HtoD": 1, "DtoH": 2, "DtoD": 8}[name.split()[1]]
            rows.append(copy(start, end, kind=kind, correlation=args["correlation"], stream=args["stream"]))
        elif category in {"cuda_runtime", "cuda_driver"}:
            rows.append(call(start, name=number(name), correlation=args["correlation"]))
        elif category == "user_annotation":
            rows.append(nvtx(start, end, text=name))
    return nsys_database(path, rows)


def test_a_bundle_recorded_by_nsight_systems_gives_the_capture_of_its_kineto_twin(
    tmp_path: Path, recording: Recording
) -> None:
    bundle = recording.write(tmp_path / "bundle")
    one = import_serving(bundle, tmp_path / "one")
    (trace,) = bundle.glob("*serving_trace*")
    data = trace.read_bytes()
    trace.unlink()
    as_nsys(bundle / "serving_trace.sqlite", gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    two = import_serving(bundle, tmp_path / "two")
    assert two.record.coverage == one.record.coverage
    assert two.record.coverage.num_iterations_closed == 3
    assert_frame_equal(two.invocations, one.invocations)
    assert_frame_equal(two.iterations, one.iterations)
    assert np.unique(two.intervals["start_ns"]).tolist() == np.unique(one.intervals["start_ns"]).tolist()


def test_a_pass_recorded_by_nsight_systems_gives_the_samples_of_its_kineto_twin_and_verifies(
    tmp_path: Path, recording: Recording, capture: CaptureFolder
) -> None:
    data = recording.replay().data()
    (tmp_path / "pass.json").write_bytes(data)
    as_nsys(tmp_path / "pass.sqlite", data)
    found = []
    for name in ("pass.json", "pass.sqlite"):
        db = tmp_path / f"{name}.db"
        import_replay(capture.path, [tmp_path / name], db, labels=ReplayLabels(None, None, {}))
        assert verify_database(db, capture.path).differences == ()
        with open_profile_db(db) as opened:
            found.append(opened.samples())
    assert len(found[0]) == 9
    assert_frame_equal(found[1], found[0])


def test_a_real_serving_trace_written_as_nsight_systems_gives_the_same_capture_and_verifies(tmp_path: Path) -> None:
    raw = ROOT / "evidence" / "h200-qwen3-graph" / "capture" / "raw"
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name in ("meta.json", "routing.npz"):
        (bundle / name).write_bytes((raw / name).read_bytes())
    as_nsys(bundle / "serving_trace.sqlite", gzip.decompress((raw / "serving_trace.slim.json.gz").read_bytes()))
    found = import_serving(bundle, tmp_path / "capture")
    recorded = open_capture(raw.parent)
    # The slim trace kept no call of a copy. Kineto's device annotations place 756 of them; here there are none.
    one, two = found.record.coverage, recorded.record.coverage
    assert (one.num_ops_outside_iterations, two.num_ops_outside_iterations) == (1_000, 244)
    assert msgspec.structs.replace(one, num_ops_outside_iterations=244, num_ops_foreign=19_742 + 756) == two
    assert one.busy_ns == 183_592_781
    assert_frame_equal(found.invocations, recorded.invocations)
    assert_frame_equal(found.iterations, recorded.iterations)
    assert found.record.conditions["profiler"].value == "nsys"
    assert verify(tmp_path / "capture").differences == ()
