"""Whatever is changed after it was written is found and named; and every ns of a raw file arrives in the totals."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import NO_LABELS
from moegauge.cli.main import run
from moegauge.evidence.capture_tables import INTERVALS, INVOCATIONS, ITERATIONS, routed_inputs
from moegauge.evidence.report_folder import TABLES as REPORT_TABLES
from moegauge.evidence.tables import TableSchema, write_table
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from moegauge.records.schema import canonical_bytes
from simulator import NAMES, Recording, us

CAPTURE_TABLES = (ITERATIONS, INVOCATIONS, INTERVALS, routed_inputs(2))
CAPTURE_FILES = (
    "capture.json", "capture.json.sha256", "intervals.parquet", "invocations.parquet", "iterations.parquet",
    "routed_inputs.parquet", "raw/meta.json", "raw/routing.npz", "raw/serving_trace.json",
)  # fmt: skip
REPORT_FILES = (
    "report.json", "report.json.sha256", "invocation_rows.parquet", "rank_rows.parquet", "iteration_rows.parquet",
)  # fmt: skip


@dataclass(frozen=True)
class Verified:
    """Exit status of ``moegauge verify`` and everything it printed."""

    status: int
    text: str


@dataclass(frozen=True)
class Evidence:
    """A capture, the database of one pass, and a report over both, side by side in one folder."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def capture(self) -> Path:
        return self.folder / "capture"

    @property
    def report(self) -> Path:
        return self.folder / "report"

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def verify(self, path: Path) -> Verified:
        self.capsys.readouterr()
        status = run(["verify", str(path)])
        captured = self.capsys.readouterr()
        assert "Traceback" not in captured.err
        return Verified(status, captured.out + captured.err)

    def align_again(self) -> None:
        """An honest report over whatever the capture and the database say now."""
        shutil.rmtree(self.report)
        align(self.capture, self.db, self.report, settings=ladder_settings())

    def refresh(self, folder: Path) -> None:
        """Bring every digest of a capture or report folder up to date, as a careful forger would."""
        if folder == self.capture:
            head = folder / "capture.json"
            record = json.loads(head.read_text())
            for name, entry in record["files"].items():
                data = (folder / name).read_bytes()
                entry.update(digest=sha256(data), num_bytes=len(data))
        else:
            head = folder / "report.json"
            record = json.loads(head.read_text())
            evidence = record["evidence"]
            evidence["capture"]["digest"] = sha256((self.capture / "capture.json").read_bytes())
            evidence["tables"] = {name: sha256((folder / name).read_bytes()) for name in evidence["tables"]}
        write_head(head, record)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write_head(path: Path, record: dict[str, Any]) -> None:
    """Write a head in its canonical bytes, and its digest beside it."""
    path.write_bytes(canonical_bytes(record))
    digest = sha256(path.read_bytes()).removeprefix("sha256:")
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    recording = Recording()
    capture = import_serving(recording.write(folder / "bundle"), folder / "capture")
    for name, trace in (("eager", recording.replay(scale=1.01)), ("graph", recording.graph_replay(scale=1.01))):
        (folder / f"{name}.json").write_bytes(trace.data())
        import_replay(capture.path, [folder / f"{name}.json"], folder / "wal.db", labels=NO_LABELS)
    source, one_file = sqlite3.connect(folder / "wal.db"), sqlite3.connect(folder / "profile.db")
    source.backup(one_file)
    source.close()
    one_file.close()
    align(folder / "capture", folder / "profile.db", folder / "report", settings=ladder_settings())
    return folder


@pytest.fixture
def evidence(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evidence:
    folder = tmp_path / "evidence"
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("wal.db*", "bundle", "*.json.gz"))
    return Evidence(folder, capsys)


def test_untouched_evidence_is_derived_again_and_its_files_are_those_the_tests_change(evidence: Evidence) -> None:
    for folder, names in ((evidence.capture, CAPTURE_FILES), (evidence.report, REPORT_FILES)):
        found = evidence.verify(folder)
        assert found.status == 0, found.text
        assert "everything was derived again" in found.text
        assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == sorted(names)


def test_refreshing_digests_alone_changes_nothing(evidence: Evidence) -> None:
    for folder in (evidence.capture, evidence.report):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        evidence.refresh(folder)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_evidence_that_was_moved_together_is_derived_again(evidence: Evidence) -> None:
    elsewhere = evidence.folder.with_name("elsewhere") / "deeper"
    elsewhere.parent.mkdir()
    evidence.folder.rename(elsewhere)
    assert evidence.verify(elsewhere / "report").status == 0


def test_a_report_made_from_within_its_capture_folder_is_derived_again(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evidence.capture)
    assert run(["align", ".", "--db", "../profile.db", "--out", "../within"]) == 2
    assert evidence.verify(Path("../within")).status == 0
    monkeypatch.chdir(evidence.folder.parent)
    assert evidence.verify(evidence.folder / "within").status == 0


# (a) bytes and files


def flips(data: bytes, num: int, seed: str) -> Iterator[tuple[int, bytes]]:
    """Seeded single-bit changes, each at its own offset (all of them where the file is small)."""
    generator = random.Random(seed)  # noqa: S311 - which bytes are flipped has to be the same every time
    for offset in sorted(generator.sample(range(len(data)), min(num, len(data)))):
        changed = bytearray(data)
        changed[offset] ^= 1 << generator.randrange(8)
        yield offset, bytes(changed)


def assert_every_flip_is_named(evidence: Evidence, folder: Path, name: str, *, num: int, num_of_head: int) -> None:
    """Flip bits of one file, one at a time: verify names the file; untouched again, all is derived again.

    A head that no longer parses cannot be read, which is status 2; of every other file a flip is a difference.
    """
    is_head = name in {"capture.json", "report.json"}
    path = folder / name
    data = path.read_bytes()
    for offset, changed in flips(data, num_of_head if is_head else num, name):
        path.write_bytes(changed)
        found = evidence.verify(folder)
        assert found.status in ({1, 2} if is_head else {1}), f"offset {offset}: {found}"
        assert name in found.text, f"offset {offset}: {found}"
    path.write_bytes(data)
    assert evidence.verify(folder).status == 0


@pytest.mark.parametrize("name", CAPTURE_FILES)
def test_no_flipped_byte_of_a_capture_goes_unnoticed(evidence: Evidence, name: str) -> None:
    assert_every_flip_is_named(evidence, evidence.capture, name, num=40, num_of_head=200)


@pytest.mark.parametrize("name", REPORT_FILES)
def test_no_flipped_byte_of_a_report_goes_unnoticed(evidence: Evidence, name: str) -> None:
    assert_every_flip_is_named(evidence, evidence.report, name, num=12, num_of_head=60)


@pytest.mark.parametrize("name", CAPTURE_FILES)
def test_a_flipped_byte_of_a_capture_is_found_through_the_report_too(evidence: Evidence, name: str) -> None:
    path = evidence.capture / name
    ((_, changed),) = flips(path.read_bytes(), 1, f"report {name}")
    path.write_bytes(changed)
    found = evidence.verify(evidence.report)
    assert found.status in {1, 2}
    assert name in found.text


@pytest.mark.parametrize("name", [*CAPTURE_FILES, *REPORT_FILES])
@pytest.mark.parametrize("how", ["gone", "empty", "cut", "longer"])
def test_a_file_that_is_gone_or_of_another_length_is_named(evidence: Evidence, name: str, how: str) -> None:
    folder = evidence.report if name in REPORT_FILES else evidence.capture
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "longer": data + b"\n"}[how])
    found = evidence.verify(folder)
    assert found.status == (2 if name in {"capture.json", "report.json"} else 1)
    assert name in found.text


@pytest.mark.parametrize("name", ["extra.txt", "raw/extra.bin", "raw/rank0.serving_trace.json", "more/deep.parquet"])
def test_a_file_nobody_recorded_is_named(evidence: Evidence, name: str) -> None:
    for folder in (evidence.capture, evidence.report):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"extra")
        found = evidence.verify(folder)
        assert found.status == 1
        assert f"{name}: not recorded" in found.text


def test_two_files_that_changed_places_are_both_named(evidence: Evidence) -> None:
    one, other = evidence.report / "rank_rows.parquet", evidence.report / "iteration_rows.parquet"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "rank_rows.parquet: changed" in found.text
    assert "iteration_rows.parquet: changed" in found.text


# (b) rows, with every digest refreshed


def other_value(value: Any) -> Any:
    """Another value of the same type; something for nothing."""
    if value is None:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.25
    if isinstance(value, str):
        return value + "x"
    return [(value[0] + 1) % 8, *value[1:]]


INSTEAD_OF_NULL = {pl.Int32: 1, pl.Int64: 1, pl.String: "x", pl.Boolean: True, pl.Float64: 0.5}


def edit_row(path: Path, schema: TableSchema, index: int, column: str) -> tuple[str, Any, Any]:
    """Change one value of one row and write the table again; returns the row's name, and the two values."""
    frame = pl.read_parquet(path)
    rows = frame.to_dicts()
    old = rows[index][column]
    dtype = schema.columns[column]
    rows[index][column] = new = (
        other_value(old) if old is not None else INSTEAD_OF_NULL.get(dtype, [0.5, 0.5])  # type: ignore[call-overload]
    )
    path.unlink()
    write_table(path, schema, pl.DataFrame(rows, schema=schema.columns))
    key = ", ".join(f"{name} {rows[index][name]}" for name in schema.key)
    return f"{schema.name} [{key}]", old, new


def columns_of(tables: tuple[TableSchema, ...]) -> list[tuple[TableSchema, str]]:
    return [(schema, name) for schema in tables for name in schema.columns if name not in schema.key]


@pytest.mark.parametrize(
    ("schema", "column"), columns_of(CAPTURE_TABLES), ids=lambda value: value if isinstance(value, str) else value.name
)
def test_an_edited_row_of_a_capture_is_named_although_every_digest_was_refreshed(
    evidence: Evidence, schema: TableSchema, column: str
) -> None:
    path = evidence.capture / f"{schema.name}.parquet"
    height = pl.read_parquet(path).height
    row = random.Random(f"{schema.name} {column}").randrange(height)  # noqa: S311 - the same row every time
    name, old, new = edit_row(path, schema, row, column)
    evidence.refresh(evidence.capture)
    found = evidence.verify(evidence.capture)
    assert found.status == 1
    assert f"{name}: {column} recorded {new}, derived {old}" in found.text
    assert "1 differences" in found.text


@pytest.mark.parametrize(
    ("schema", "column"), columns_of(REPORT_TABLES), ids=lambda value: value if isinstance(value, str) else value.name
)
def test_an_edited_row_of_a_report_is_named_although_every_digest_was_refreshed(
    evidence: Evidence, schema: TableSchema, column: str
) -> None:
    path = evidence.report / f"{schema.name}.parquet"
    name, old, new = edit_row(path, schema, pl.read_parquet(path).height - 1, column)
    evidence.refresh(evidence.report)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert f"{name}: {column} recorded {new}, derived {old}" in found.text
    assert "1 differences" in found.text


@pytest.mark.parametrize("schema", [*CAPTURE_TABLES, *REPORT_TABLES], ids=lambda schema: schema.name)
def test_a_row_taken_out_is_named_although_every_digest_was_refreshed(evidence: Evidence, schema: TableSchema) -> None:
    folder = evidence.report if schema in REPORT_TABLES else evidence.capture
    path = folder / f"{schema.name}.parquet"
    frame = pl.read_parquet(path)
    gone = frame.row(frame.height // 2, named=True)
    path.unlink()
    write_table(path, schema, frame.filter(pl.int_range(pl.len()) != frame.height // 2))
    evidence.refresh(folder)
    found = evidence.verify(folder)
    assert found.status == 1
    key = ", ".join(f"{name} {gone[name]}" for name in schema.key)
    assert f"{schema.name} [{key}]: only derived" in found.text


def test_an_edited_busy_time_is_named_in_a_report_that_was_honestly_made_from_it(evidence: Evidence) -> None:
    path = evidence.capture / "invocations.parquet"
    name, old, new = edit_row(path, INVOCATIONS, 4, "busy_ns")
    evidence.refresh(evidence.capture)
    evidence.align_again()
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert f"../capture/capture.json: {name}: busy_ns recorded {new}, derived {old}" in found.text


def change_trace(path: Path, *, add_ns: int, which: int = 0) -> None:
    """Lengthen one gemm of a raw trace."""
    text = path.read_text()
    trace = json.loads(text, parse_float=str)
    victim = [event for event in trace["traceEvents"] if event["name"] == NAMES["gemm"]][which]
    ts, dur = victim["ts"], victim["dur"]
    ns = round(float(dur) * 1000)
    old, new = f'"ts": {ts}, "dur": {dur}', f'"ts": {ts}, "dur": {us(ns + add_ns)}'
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def change_routing(path: Path, *, row: int) -> None:
    with np.load(path) as archive:
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    free = next(expert for expert in range(8) if expert not in arrays["ids"][row])
    arrays["ids"][row, 0] = free
    np.savez_compressed(path, **arrays)


def test_an_edited_raw_duration_is_named_in_every_table_that_follows_from_it(evidence: Evidence) -> None:
    change_trace(evidence.capture / "raw" / "serving_trace.json", add_ns=3)
    evidence.refresh(evidence.capture)
    found = evidence.verify(evidence.capture)
    assert found.status == 1
    assert "intervals [rank 0, op 2]: end_ns recorded" in found.text
    assert "invocations [iteration 0, layer 0, rank 0]: busy_ns recorded" in found.text
    assert "capture.json coverage.busy_ns: recorded 463950, derived 463953" in found.text


def test_an_edited_raw_id_is_named_although_every_digest_was_refreshed(evidence: Evidence) -> None:
    change_routing(evidence.capture / "raw" / "routing.npz", row=7)
    evidence.refresh(evidence.capture)
    found = evidence.verify(evidence.capture)
    assert found.status == 1
    assert "routed_inputs [iteration 0, layer 1, rank 0, row 1]: topk_ids recorded" in found.text
    assert "invocations [iteration 0, layer 1, rank 0]: routed_digest recorded" in found.text


def test_edited_raw_metadata_is_named_although_every_digest_was_refreshed(evidence: Evidence) -> None:
    path = evidence.capture / "raw" / "meta.json"
    meta = json.loads(path.read_text())
    meta["steps"][1]["tokens"] = 2
    path.write_text(json.dumps(meta))
    evidence.refresh(evidence.capture)
    found = evidence.verify(evidence.capture)
    assert found.status == 1
    assert "iterations [iteration 1, rank 0]: logical_tokens recorded 3, derived 2" in found.text


def change_sample(path: Path, *, iteration: int, layer: int, add_ns: int) -> int:
    """Change the busy time of a sample; returns the time before."""
    where = "iteration = ? AND layer = ? AND pass_id = 1"
    database = sqlite3.connect(path)
    (old,) = database.execute(f"SELECT busy_ns FROM sample WHERE {where}", (iteration, layer)).fetchone()  # noqa: S608
    database.execute(f"UPDATE sample SET busy_ns = ? WHERE {where}", (old + add_ns, iteration, layer))  # noqa: S608
    database.commit()
    database.close()
    return int(old)


def test_an_edited_sample_of_the_database_is_named(evidence: Evidence) -> None:
    old = change_sample(evidence.db, iteration=0, layer=2, add_ns=1)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert f"pass 1, iteration 0, layer 2, rank 0: busy_ns recorded {old + 1}, derived {old}" in found.text


def test_an_edited_sample_is_named_in_a_report_that_was_honestly_made_from_it(evidence: Evidence) -> None:
    before = json.loads((evidence.report / "report.json").read_text())["evidence"]["measurements"]["digest"]
    old = change_sample(evidence.db, iteration=0, layer=2, add_ns=-5)
    evidence.align_again()
    after = json.loads((evidence.report / "report.json").read_text())["evidence"]["measurements"]["digest"]
    assert after != before
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert f"pass 1, iteration 0, layer 2, rank 0: busy_ns recorded {old - 5}, derived {old}" in found.text


def test_an_edited_raw_trace_inside_the_database_is_found(evidence: Evidence) -> None:
    database = sqlite3.connect(evidence.db)
    (data,) = database.execute("SELECT bytes FROM artifact WHERE name = 'eager.json'").fetchone()
    changed = data.replace(b'"dur": 20.', b'"dur": 21.', 1)
    assert changed != data
    database.execute("UPDATE artifact SET bytes = ? WHERE name = 'eager.json'", (changed,))
    database.commit()
    database.close()
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "artifact eager.json" in found.text


@pytest.mark.parametrize("statement", ["DELETE FROM sample WHERE iteration = 2 AND layer = 1 AND pass_id = 2"])
def test_a_sample_taken_out_is_named(evidence: Evidence, statement: str) -> None:
    database = sqlite3.connect(evidence.db)
    assert database.execute(statement).rowcount == 1
    database.commit()
    database.close()
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "pass 2, iteration 2, layer 1, rank 0: busy_ns recorded None, derived" in found.text


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], None], Any]]:
    """Path, setter and value of everything in a record that is no object and no list."""
    items: list[tuple[Any, str]] = []
    if isinstance(value, dict):
        items = [(key, f"{path}.{key}" if path else key) for key in value]
    elif isinstance(value, list):
        items = [(index, f"{path}[{index}]") for index in range(len(value))]
    for key, name in items:
        if isinstance(value[key], dict | list):
            yield from leaves(value[key], name)
        else:
            yield name, lambda new, key=key: value.__setitem__(key, new), value[key]


NOT_DERIVED = {"created_at", "tool_version"}
"""Of a capture: when and by what it was written."""


def test_every_statement_of_capture_json_is_held_against_the_raw_files(evidence: Evidence) -> None:
    head = evidence.capture / "capture.json"
    record = json.loads(head.read_text())
    unnoticed = set()
    for name, put, value in leaves(record):
        if name == "schema" or value is None:
            continue
        put(other_value(value))
        write_head(head, record)
        found = evidence.verify(evidence.capture)
        if found.status == 0:
            unnoticed.add(name)
        elif found.status == 1:
            assert f"capture.json {name}: recorded" in found.text or name.startswith("files."), found.text
        put(value)
    assert unnoticed == NOT_DERIVED


def numbers(report: dict[str, Any]) -> list[str]:
    """A fixed choice of the numbers in a report: all of the first capture-wide pair, and every eleventh other."""
    names = [
        name for name, _, value in leaves(report) if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    first = [name for name in names if name.startswith("rungs[0].capture_wide.")]
    rest = [name for name in names if name not in first and not name.startswith("settings.")]
    return first + rest[::11]


def test_one_number_changed_in_report_json_is_named_with_nothing_else_changed(evidence: Evidence) -> None:
    head = evidence.report / "report.json"
    report = json.loads(head.read_text())
    chosen = numbers(report)
    assert len(chosen) > 20
    for name, put, value in leaves(report):
        if name in chosen:
            put(other_value(value))
            head.write_bytes(canonical_bytes(report))
            found = evidence.verify(evidence.report)
            assert found.status == 1
            assert f"report.json {name}: recorded {other_value(value)!r}, derived {value!r}" in found.text
            put(value)


def test_one_number_changed_in_report_json_is_named_although_its_digest_was_refreshed(evidence: Evidence) -> None:
    head = evidence.report / "report.json"
    report = json.loads(head.read_text())
    report["rungs"][1]["capture_wide"]["left_ns"] += 1
    write_head(head, report)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "report.json rungs[1].capture_wide.left_ns: recorded 463951, derived 463950" in found.text
    assert "1 differences" in found.text


def test_a_better_verdict_written_into_a_report_is_named(evidence: Evidence) -> None:
    head = evidence.report / "report.json"
    report = json.loads(head.read_text())
    report["verdict"]["claims_stop_at"] = None
    report["rungs"][2]["status"] = "MATCH"
    write_head(head, report)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "report.json verdict.claims_stop_at: recorded None, derived 1" in found.text
    assert "report.json rungs[2].status: recorded 'MATCH', derived 'UNAVAILABLE'" in found.text


def test_a_widened_tolerance_written_into_a_report_is_named(evidence: Evidence) -> None:
    head = evidence.report / "report.json"
    report = json.loads(head.read_text())
    report["settings"]["tolerance_ratio"] = 0.5
    write_head(head, report)
    found = evidence.verify(evidence.report)
    assert found.status == 1
    assert "report.json rungs[0].capture_wide.tolerance_ratio: recorded 0.02, derived 0.5" in found.text


# (c) every ns of a raw file arrives in the totals


def totals(evidence: Evidence, capture: Path, db: Path, out: str) -> list[tuple[int, int]]:
    """(left_ns, right_ns) of the capture-wide pairs of rungs 1 and 2, as the command line prints them."""
    evidence.capsys.readouterr()
    tokens = ["align", str(capture), "--db", str(db), "--out", str(evidence.folder / out), "--json"]
    assert run(tokens) == 2
    report = json.loads(evidence.capsys.readouterr().out)
    return [(rung["capture_wide"]["left_ns"], rung["capture_wide"]["right_ns"]) for rung in report["rungs"][:2]]


@pytest.mark.parametrize("which", [0, 1, 7, 17])
@pytest.mark.parametrize("add_ns", [1, -1, 7, 499, -19_000])
def test_ns_added_to_one_served_kernel_are_added_to_the_left_total(
    evidence: Evidence, made: Path, which: int, add_ns: int
) -> None:
    before = totals(evidence, evidence.capture, evidence.db, "before")
    shutil.copytree(made / "bundle", evidence.folder / "bundle")
    change_trace(evidence.folder / "bundle" / "serving_trace.json", add_ns=add_ns, which=which)
    import_serving(evidence.folder / "bundle", evidence.folder / "again")
    after = totals(evidence, evidence.folder / "again", evidence.db, "after")
    assert after == [(left + add_ns, right) for left, right in before]


@pytest.mark.parametrize("which", [0, 5])
@pytest.mark.parametrize("add_ns", [1, -1, 7, 499, -19_000])
def test_ns_added_to_one_replayed_kernel_are_added_to_the_right_total(
    evidence: Evidence, which: int, add_ns: int
) -> None:
    before = totals(evidence, evidence.capture, evidence.db, "before")
    db = evidence.folder / "again.db"
    for name in ("eager", "graph"):
        trace = evidence.folder / f"{name}.json"
        if name == "eager":
            change_trace(trace, add_ns=add_ns, which=which)
        import_replay(evidence.capture, [trace], db, labels=NO_LABELS)
    after = totals(evidence, evidence.capture, db, "after")
    assert after == [(left, right + add_ns) for left, right in before]


def test_the_total_is_printed_with_the_unit_of_its_size(evidence: Evidence) -> None:
    evidence.capsys.readouterr()
    assert run(["report", str(evidence.report)]) == 0
    out = evidence.capsys.readouterr().out
    assert "463.950 µs" in out
    assert "468.585 µs" in out


def test_ns_by_which_kernels_overlap_are_counted_once(tmp_path: Path) -> None:
    recording = Recording(gap_ns=-300)  # every kernel after an invocation's first begins 300 ns early
    capture = import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")
    # Every invocation runs 5 kernels, so 4 overlaps each.
    assert sum(len(recording.roles(step["padded"])) for step in recording.steps) == 15
    assert capture.record.coverage.busy_ns == 463_950 - 300 * 4 * 9
