"""Bad input through the command line: exit status 2, one clear message, and nothing written anywhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moegauge.cli.main import run
from moegauge.jobs.capture_import import import_serving
from simulator import BASE_NS, NAMES, Recording, TraceBuilder


class Desk:
    """A folder with a bundle, a capture, two replays and a profile database, and a way to run the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.out = folder / "out"

    def path(self, name: str) -> Path:
        return self.folder / name

    def run(self, *tokens: object) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of one call."""
        self.capsys.readouterr()
        status = run([str(token) for token in tokens])
        captured = self.capsys.readouterr()
        return status, captured.out, captured.err

    def everything(self) -> dict[str, str]:
        """Digest of every file, and every folder; SQLite's own side files (wal, shm) are left out."""
        return {
            path.relative_to(self.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else "folder"
            for path in self.folder.rglob("*")
            if not path.name.endswith(("-wal", "-shm"))
        }

    def refused(self, code: str, *tokens: object, where: str = "", found: str = "") -> None:
        """Run twice, plainly and with --json; both refuse with this code and leave every file as it was."""
        before = self.everything()
        status, out, err = self.run(*tokens)
        assert (status, out) == (2, "")
        head, expected, actual, remedy = err.rstrip("\n").split("\n")[:1] + err.rstrip("\n").split("\n")[-3:]
        assert head.startswith(f"{code} ")
        assert [line[:11] for line in (expected, actual, remedy)] == ["  expected ", "  found    ", "  next     "]
        assert all(len(line) > 11 for line in (expected, actual, remedy))
        assert where in err
        assert found in actual
        assert "Traceback" not in err
        status, out, err = self.run(*tokens, "--json")
        error = json.loads(out)["error"]
        assert status == 2
        assert error["code"] == code
        assert sorted(error) == ["code", "expected", "found", "remedy", "where"]
        assert all(error.values())
        assert where in error["where"] + error["found"]
        assert found in error["found"]
        assert self.everything() == before

    def import_serving(self, bundle: str = "bundle") -> list[object]:
        return ["capture", "import", "bundle", self.path(bundle), "--out", self.out]

    def import_profile(self, *traces: str, db: str = "profile.db") -> list[object]:
        return ["profile", "import", self.path("capture"), *map(self.path, traces), "--db", self.path(db)]

    def align(self, *more: object) -> list[object]:
        return ["align", self.path("capture"), "--db", self.path("profile.db"), "--out", self.out, *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything a command needs, once."""
    folder = tmp_path_factory.mktemp("made")
    recording = Recording()
    import_serving(recording.write(folder / "bundle"), folder / "capture")
    (folder / "eager.json").write_bytes(recording.replay(scale=1.01).data())
    (folder / "graph.json").write_bytes(recording.graph_replay(scale=1.01).data())
    for trace in ("eager.json", "graph.json"):
        status = run(["profile", "import", str(folder / "capture"), str(folder / trace), "--db", str(folder / "p.db")])
        assert status == 0
    with sqlite3.connect(folder / "p.db") as source, sqlite3.connect(folder / "profile.db") as one_file:
        source.backup(one_file)
    source.close()
    one_file.close()
    for path in folder.glob("p.db*"):
        path.unlink()
    return folder


@pytest.fixture
def desk(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    """A fresh copy for each test."""
    shutil.copytree(made, tmp_path / "desk")
    yield Desk(tmp_path / "desk", capsys)
    assert list(tmp_path.rglob(".*.building-*")) == []


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def with_schema(desk: Desk, kind: str, schema: str | None) -> list[object]:
    """A record whose head says something else, and the command that reads it."""
    if kind == "profile-db":
        with sqlite3.connect(desk.path("profile.db")) as database:
            database.execute("DELETE FROM head" if schema is None else f"UPDATE head SET schema = '{schema}'")  # noqa: S608
        database.close()
        return desk.align()
    if kind == "capture":
        path, tokens = desk.path("capture/capture.json"), ["capture", "show", desk.path("capture")]
    else:
        status, _, _ = desk.run("align", desk.path("capture"), "--db", desk.path("profile.db"), "--out", desk.out)
        assert status == 2
        path, tokens = desk.out / "report.json", ["verify", desk.out]
    value = json.loads(path.read_text())
    value.pop("schema")
    path.write_text(json.dumps(value | ({} if schema is None else {"schema": schema})))
    return tokens


@pytest.mark.parametrize("kind", ["capture", "ladder", "profile-db"])
@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ("moegauge/KIND/v0", "SCHEMA_OLDER"),
        ("moegauge/KIND/v2", "SCHEMA_NEWER"),
        (None, "SCHEMA_MISSING"),
        ("moegauge/foreign/v1", "MALFORMED_FILE"),
        ("nonsense", "MALFORMED_FILE"),
    ],
)
def test_an_older_a_newer_a_missing_and_a_foreign_schema_have_their_own_codes(
    desk: Desk, kind: str, schema: str | None, code: str
) -> None:
    tokens = with_schema(desk, kind, schema and schema.replace("KIND", kind))
    desk.refused(code, *tokens, found=schema.replace("KIND", kind) if schema else "no schema")


def test_a_profile_database_without_a_head_table_has_no_schema(desk: Desk) -> None:
    with sqlite3.connect(desk.path("profile.db")) as database:
        database.execute("DROP TABLE head")
    database.close()
    desk.refused("SCHEMA_MISSING", *desk.align(), where="profile.db")
    desk.refused("SCHEMA_MISSING", *desk.import_profile("eager.json"), where="profile.db")


@pytest.mark.parametrize("schema", ["moegauge/bundle/v0", "moegauge/bundle/v2", "moegauge/capture/v1"])
def test_a_bundle_that_names_another_schema_is_refused(desk: Desk, schema: str) -> None:
    code = {"v0": "SCHEMA_OLDER", "v2": "SCHEMA_NEWER", "v1": "MALFORMED_FILE"}[schema[-2:]]
    edit_json(desk.path("bundle/meta.json"), lambda meta: meta.update(schema=schema))
    desk.refused(code, *desk.import_serving(), where="meta.json", found=schema)


MISSING: dict[str, Callable[[Desk], list[object]]] = {
    "the bundle folder": lambda desk: desk.import_serving("nothing"),
    "the capture to show": lambda desk: ["capture", "show", desk.path("nothing")],
    "the capture to align": lambda desk: [
        *("align", desk.path("nothing"), "--db", desk.path("profile.db"), "--out", desk.out)
    ],
    "the capture of a replay": lambda desk: [
        *("profile", "import", desk.path("nothing"), desk.path("eager.json"), "--db", desk.path("profile.db"))
    ],
    "the replay": lambda desk: desk.import_profile("nothing"),
    "the database": lambda desk: [*("align", desk.path("capture"), "--db", desk.path("nothing"), "--out", desk.out)],
    "the report": lambda desk: ["verify", desk.path("nothing")],
}


@pytest.mark.parametrize("what", MISSING)
def test_a_file_or_folder_that_is_not_there_is_named(desk: Desk, what: str) -> None:
    tokens = MISSING[what](desk)
    desk.refused("MISUSE" if what == "the report" else "MISSING_FILE", *tokens, where=str(desk.path("nothing")))


@pytest.mark.parametrize("name", ["bundle/meta.json", "capture/capture.json", "eager.json", "profile.db"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_file_that_is_gone_or_empty_is_named(desk: Desk, name: str, how: str) -> None:
    desk.path(name).unlink()
    if how == "empty":
        desk.path(name).write_bytes(b"")
    tokens = {
        "bundle/meta.json": desk.import_serving(),
        "capture/capture.json": desk.align(),
        "eager.json": desk.import_profile("eager.json"),
        "profile.db": desk.align(),
    }[name]
    desk.refused("MISSING_FILE", *tokens, where=Path(name).name)


@pytest.mark.parametrize("part", ["serving_trace.json", "routing.npz"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_bundle_without_its_trace_or_its_routing_is_incomplete(desk: Desk, part: str, how: str) -> None:
    path = desk.path("bundle") / part
    path.unlink()
    if how == "empty":
        path.write_bytes(b"")
    name = part.partition(".")[0]
    found = f"{part} is empty" if how == "empty" else f"no {'trace' if name == 'serving_trace' else name} file"
    desk.refused("INCOMPLETE", *desk.import_serving(), found=found)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def gzip_cut(data: bytes) -> bytes:
    return cut(gzip.compress(data))


def gzip_damaged(data: bytes) -> bytes:
    packed = bytearray(gzip.compress(data))
    packed[-6] ^= 0xFF
    return bytes(packed)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut JSON": cut,
    "cut gzip": gzip_cut,
    "damaged gzip": gzip_damaged,
    "gzip of cut JSON": lambda data: gzip.compress(cut(data)),
    "not JSON": lambda data: b"#!/bin/sh\n",
    "another JSON": lambda data: b'{"events": []}',
    "a JSON list": lambda data: b"[]",
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_serving_trace_is_malformed(desk: Desk, how: str) -> None:
    path = desk.path("bundle/serving_trace.json")
    path.write_bytes(DAMAGED[how](path.read_bytes()))
    desk.refused("MALFORMED_FILE", *desk.import_serving(), where="serving_trace.json")


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_replay_is_malformed_and_no_database_is_made(desk: Desk, how: str) -> None:
    path = desk.path("eager.json")
    path.write_bytes(DAMAGED[how](path.read_bytes()))
    desk.refused("MALFORMED_FILE", *desk.import_profile("eager.json", db="new.db"), where="eager.json")
    assert not desk.path("new.db").exists()


@pytest.mark.parametrize("name", ["bundle/meta.json", "capture/capture.json"])
def test_a_cut_head_is_malformed(desk: Desk, name: str) -> None:
    path = desk.path(name)
    path.write_bytes(cut(path.read_bytes()))
    tokens = desk.import_serving() if "bundle" in name else ["capture", "show", desk.path("capture")]
    desk.refused("MALFORMED_FILE", *tokens, where=path.name)


def test_a_file_that_is_not_sqlite_is_no_profile_database(desk: Desk) -> None:
    desk.path("profile.db").write_bytes(b"iteration,layer,busy_ns\n0,0,1\n" * 200)
    desk.refused("MALFORMED_FILE", *desk.align(), where="profile.db")
    desk.refused("MALFORMED_FILE", *desk.import_profile("eager.json"), where="profile.db")


def test_a_cut_profile_database_is_malformed(desk: Desk) -> None:
    path = desk.path("profile.db")
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    desk.refused("MALFORMED_FILE", *desk.align(), where="profile.db")


def test_a_changed_table_of_a_capture_is_not_aligned(desk: Desk) -> None:
    path = desk.path("capture/invocations.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    desk.refused("DIGEST_MISMATCH", *desk.align(), where="invocations.parquet")


def test_a_trace_without_kernel_rows_says_so(desk: Desk) -> None:
    empty = TraceBuilder()
    empty.launch(BASE_NS)
    desk.path("bundle/serving_trace.json").write_bytes(empty.data())
    desk.path("eager.json").write_bytes(empty.data())
    found = "no kernel records (1 launch calls, 0 rows without usable time stamps)"
    desk.refused("INCOMPLETE", *desk.import_serving(), where="serving_trace.json", found=found)
    desk.refused("INCOMPLETE", *desk.import_profile("eager.json"), where="eager.json", found=found)


def test_a_trace_of_other_kernels_names_what_it_saw(desk: Desk) -> None:
    other = TraceBuilder()
    other.kernel(NAMES["norm"], BASE_NS, 100)
    desk.path("bundle/serving_trace.json").write_bytes(other.data())
    desk.refused("INCOMPLETE", *desk.import_serving(), found="seen: ['void vllm::rms_norm_kernel")


def test_an_unregistered_kernel_kind_is_refused(desk: Desk) -> None:
    desk.refused("MISUSE", *desk.import_serving(), "--kind", "my_kernel", where="my_kernel")


INVALID_TIMES = {
    "negative": "-7.5",
    "zero": "0",
    "a text": '"NaN"',
    "null": "null",
    "missing": None,
}


@pytest.mark.parametrize("how", INVALID_TIMES)
def test_a_kernel_without_a_usable_duration_is_listed_and_makes_its_iteration_unavailable(desk: Desk, how: str) -> None:
    trace = json.loads(desk.path("bundle/serving_trace.json").read_text(), parse_float=str)
    events = trace["traceEvents"]
    victim = next(event for event in events if event["name"] == NAMES["gemm"])
    victim["dur"] = "VICTIM"
    text = json.dumps(trace)
    for event in events:
        text = text.replace(f'"ts": "{event["ts"]}"', f'"ts": {event["ts"]}')
        text = text.replace(f'"dur": "{event["dur"]}"', f'"dur": {event["dur"]}') if event is not victim else text
    number = INVALID_TIMES[how]
    text = text.replace('"dur": "VICTIM"', f'"dur": {number}' if number is not None else '"unused": 0')
    desk.path("bundle/serving_trace.json").write_text(text)
    status, out, _ = desk.run(*desk.import_serving(), "--json")
    assert status == 0
    record = json.loads(out)["capture"]
    (finding,) = [one for one in record["findings"] if one["code"] == "INVALID_TIMESTAMPS"]
    assert finding["num"] == 1
    assert "fused_moe_kernel" in finding["examples"][0]
    coverage = record["coverage"]
    assert coverage["num_ops_invalid"] == 1
    assert (coverage["num_iterations"], coverage["num_iterations_closed"]) == (3, 2)
    assert coverage["num_rank_invocations_closed"] == 6
    status, out, _ = desk.run("capture", "show", desk.out)
    assert status == 0
    assert "1 iterations on every rung" in out


def test_a_missing_rank_is_refused_without_partial_and_marked_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, capsys)
    Recording(ranks=2).write(tmp_path / "bundle", ranks=[0])
    desk.refused("INCOMPLETE", *desk.import_serving(), found="rank 1 missing (no trace")
    status, out, _ = desk.run(*desk.import_serving(), "--partial", "--json")
    record = json.loads(out)["capture"]
    assert status == 0
    assert record["partial"] is True
    assert [rank["recorded"] for rank in record["topology"]["ranks"]] == [True, False]


def test_a_rank_whose_trace_is_that_of_another_rank_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, capsys)
    bundle = Recording(ranks=2).write(tmp_path / "bundle")
    shutil.copyfile(bundle / "rank0.serving_trace.json", bundle / "rank1.serving_trace.json")
    desk.refused("INCONSISTENT", *desk.import_serving(), found="distributedInfo says rank 0")


@pytest.mark.parametrize("command", ["import", "align"])
@pytest.mark.parametrize("what", ["file", "folder", "dangling link"])
def test_an_out_path_where_something_stands_is_refused(desk: Desk, command: str, what: str) -> None:
    if what == "file":
        desk.out.write_bytes(b"mine")
    elif what == "folder":
        desk.out.mkdir()
    else:
        desk.out.symlink_to(desk.path("nowhere"))
    tokens = desk.import_serving() if command == "import" else desk.align()
    desk.refused("MISUSE", *tokens, where=str(desk.out), found="something already there")


@pytest.mark.parametrize("command", ["import", "align"])
def test_an_out_path_below_a_file_or_with_too_long_a_name_is_refused(desk: Desk, command: str) -> None:
    for out in (desk.path("eager.json") / "out", desk.path("x" * 300)):
        tokens = desk.import_serving() if command == "import" else desk.align()
        desk.refused("MISUSE", *[out if token == desk.out else token for token in tokens], where=str(out))


def test_a_report_inside_its_capture_is_refused_because_the_capture_would_no_longer_verify(desk: Desk) -> None:
    tokens = desk.align()
    inside = desk.path("capture/report")
    desk.refused("MISUSE", *[inside if token == desk.out else token for token in tokens], where=str(inside))


class Trap:
    """An object that leaves a marker behind when it is unpickled."""

    marker = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.marker, "w"))


@pytest.mark.parametrize("array", ["meta", "ids", "weights", "expert_map"])
def test_an_object_array_in_the_routing_is_refused_and_never_unpickled(
    desk: Desk, array: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = desk.path("marker")
    monkeypatch.setattr(Trap, "marker", str(marker))
    path = desk.path("bundle/routing.npz")
    with np.load(path) as archive:
        arrays: dict[str, np.ndarray[Any, Any]] = {name: archive[name] for name in archive.files}
    np.savez(path, **(arrays | {array: np.array([Trap()], dtype=object)}), allow_pickle=True)
    desk.refused("MALFORMED_FILE", *desk.import_serving(), where="routing.npz", found="Object arrays cannot be loaded")
    assert not marker.exists()
    np.load(path, allow_pickle=True)[array].item().close()
    assert marker.exists(), "the trap itself must work, or the test proves nothing"


def routing(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with np.load(path) as archive:
            arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
        change(arrays)
        np.savez_compressed(path, **{name: array for name, array in arrays.items() if array is not None})

    return write


def put(name: str, at: tuple[int, ...], value: int) -> Callable[[Path], None]:
    return routing(lambda arrays: arrays[name].__setitem__(at, value))


def written(data: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data(path.read_bytes())) and None


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 3)))


BAD_ROUTING: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "text": (written(lambda data: b"iteration,layer,ids\n"), "MALFORMED_FILE", ""),
    "a bare array": (npy, "MALFORMED_FILE", ""),
    "cut": (written(cut), "MALFORMED_FILE", ""),
    "without ids": (routing(lambda arrays: arrays.update(ids=None)), "MALFORMED_FILE", "no ids"),
    "an iteration that is not in meta.json": (put("meta", (8, 0), 9), "INCONSISTENT", "iterations [9]"),
    "an id beyond the experts": (put("ids", (0, 0), 8), "INCONSISTENT", "id 8 at row 0, slot 0"),
    "an id below the sentinel": (put("ids", (3, 1), -2), "INCONSISTENT", "id -2 at row 3, slot 1"),
    "an expert twice": (
        routing(lambda arrays: arrays["ids"].__setitem__((4, 0), arrays["ids"][4, 1])),
        "INCONSISTENT",
        "twice in row 4",
    ),
    "ids that are not integers": (
        routing(lambda arrays: arrays.update(ids=arrays["ids"].astype(np.float32))),
        "INCONSISTENT",
        "float32",
    ),
    "another top_k": (routing(lambda arrays: arrays.update(ids=arrays["ids"][:, :1])), "INCONSISTENT", "1 columns"),
    "rows missing": (routing(lambda arrays: arrays.update(ids=arrays["ids"][:-1])), "INCONSISTENT", "32"),
    "an invocation twice": (
        routing(lambda arrays: arrays["meta"].__setitem__((1,), arrays["meta"][0])),
        "INCONSISTENT",
        "another order or a repetition",
    ),
    "weights of another shape": (
        routing(lambda arrays: arrays.update(weights=arrays["weights"][:-1])),
        "INCONSISTENT",
        "[32, 2]",
    ),
    "an expert map of another length": (
        routing(lambda arrays: arrays.update(expert_map=np.arange(7, dtype=np.int32))),
        "INCONSISTENT",
        "[7]",
    ),
    "an expert map with a local index twice": (
        routing(lambda arrays: arrays.update(expert_map=np.zeros(8, dtype=np.int32))),
        "INCONSISTENT",
        "[0, 0, 0, 0, 0, 0, 0, 0]",
    ),
}


@pytest.mark.parametrize("how", BAD_ROUTING)
def test_bad_routing_is_refused(desk: Desk, how: str) -> None:
    spoil, code, found = BAD_ROUTING[how]
    spoil(desk.path("bundle/routing.npz"))
    desk.refused(code, *desk.import_serving(), where="rout", found=found)


def test_a_zip_member_that_is_damaged_is_malformed(desk: Desk) -> None:
    path = desk.path("bundle/routing.npz")
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("ids.npy")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len("ids.npy") + info.compress_size // 2] ^= 0xFF
    path.write_bytes(data)
    desk.refused("MALFORMED_FILE", *desk.import_serving(), where="routing.npz")


BAD_META: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no steps": (lambda meta: meta.update(steps=[]), "INCONSISTENT"),
    "an iteration twice": (lambda meta: meta["steps"].append(meta["steps"][0]), "INCONSISTENT"),
    "a negative iteration": (lambda meta: meta["steps"][0].update(iter=-1), "INCONSISTENT"),
    "negative tokens": (lambda meta: meta["steps"][0].update(tokens=-6), "INCONSISTENT"),
    "fewer executed rows than tokens": (lambda meta: meta["steps"][0].update(padded=5), "INCONSISTENT"),
    "no number of experts": (lambda meta: meta["config"].pop("num_experts"), "INCONSISTENT"),
    "another numeric format": (lambda meta: meta["config"].update(torch_dtype="float8"), "INCONSISTENT"),
    "an unknown condition": (lambda meta: meta.update(conditions={"weather": "fine"}), "INCONSISTENT"),
    "a routed scope that is neither": (lambda meta: meta.update(routed_scope="most"), "INCONSISTENT"),
    "a launch mode the trace contradicts": (lambda meta: meta["steps"][1].update(graph=False), "INCONSISTENT"),
    "tokens that are a text": (lambda meta: meta["steps"][0].update(tokens="six"), "MALFORMED_FILE"),
    "no configuration": (lambda meta: meta.pop("config"), "MALFORMED_FILE"),
}


@pytest.mark.parametrize("how", BAD_META)
def test_bad_metadata_is_refused(desk: Desk, how: str) -> None:
    change, code = BAD_META[how]
    edit_json(desk.path("bundle/meta.json"), change)
    desk.refused(code, *desk.import_serving())


def num_passes(desk: Desk) -> int:
    database = sqlite3.connect(desk.path("profile.db"))
    (number,) = database.execute("SELECT count(*) FROM pass").fetchone()
    database.close()
    return int(number)


@pytest.mark.parametrize("level", [None, 1, 9])
def test_the_same_replay_is_not_imported_twice_however_it_is_packed(desk: Desk, level: int | None) -> None:
    data = desk.path("eager.json").read_bytes()
    again = desk.path("again.json.gz")
    again.write_bytes(data if level is None else gzip.compress(data, level))
    desk.refused("MISUSE", *desk.import_profile("again.json.gz"), found="imported before")
    assert num_passes(desk) == 2


def test_the_same_replay_in_two_gzip_members_is_not_imported_twice(desk: Desk) -> None:
    data = desk.path("eager.json").read_bytes()
    desk.path("again.gz").write_bytes(gzip.compress(data[:999]) + gzip.compress(data[999:]))
    desk.refused("MISUSE", *desk.import_profile("again.gz"), found="imported before")
    assert num_passes(desk) == 2


def test_a_raw_deflate_stream_is_not_a_trace(desk: Desk) -> None:
    desk.path("raw").write_bytes(zlib.compress(desk.path("eager.json").read_bytes()))
    desk.refused("MALFORMED_FILE", *desk.import_profile("raw"), where="raw")


def test_the_same_path_twice_is_refused(desk: Desk) -> None:
    desk.refused("MISUSE", *desk.import_profile("eager.json", "eager.json"), found="a path twice")


def two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    desk = Desk(tmp_path, capsys)
    recording = Recording(ranks=2)
    import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")
    for rank in (0, 1):
        desk.path(f"rank{rank}.json").write_bytes(recording.replay(rank).data())
    desk.path("rank0-again.json").write_bytes(recording.replay(0, offset_ns=7).data())
    return desk


def test_two_replays_of_one_rank_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = two_ranks(tmp_path, capsys)
    desk.refused("INCONSISTENT", *desk.import_profile("rank0.json", "rank0-again.json"), found="rank 0 twice")
    assert not desk.path("profile.db").exists()


def test_a_replay_without_one_of_its_ranks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = two_ranks(tmp_path, capsys)
    desk.refused("INCOMPLETE", *desk.import_profile("rank0.json"), found="rank 1 missing")
    assert not desk.path("profile.db").exists()


def test_a_replay_of_another_model_is_refused_whole(desk: Desk) -> None:
    other = Recording(layers=(0, 1))
    desk.path("other.json").write_bytes(other.replay().data())
    desk.refused("INCOMPLETE", *desk.import_profile("other.json"), found="do not close")
    assert num_passes(desk) == 2


def test_a_replay_without_annotations_is_refused(desk: Desk) -> None:
    trace = TraceBuilder()
    trace.kernel(NAMES["gemm"], BASE_NS, 100)
    desk.path("bare.json").write_bytes(trace.data())
    desk.refused("INCOMPLETE", *desk.import_profile("bare.json"), found="tags none")
    desk.refused("INCOMPLETE", *desk.import_profile("bare.json"), "--tag", "exact", where="bare.json")


@pytest.mark.parametrize(
    ("arguments", "code", "where"),
    [
        (["--declare", "weather=fine"], "MISUSE", "--declare"),
        (["--declare", "torch"], "MISUSE", "--declare"),
        (["--declare", "torch="], "MISUSE", "--declare"),
        (["--declare", "torch=1", "--declare", "torch=2"], "MISUSE", "--declare"),
        (["--declare", "device_model=Another GPU"], "INCONSISTENT", "new.json"),
        (["--launch-mode", "lazy"], "MISUSE", "--launch-mode"),
        (["--launch-mode", "graph"], "INCONSISTENT", "new.json"),
        (["--tag", "exakt"], "INCOMPLETE", "new.json"),
    ],
)
def test_what_a_person_declares_of_a_replay_is_checked(desk: Desk, arguments: list[str], code: str, where: str) -> None:
    desk.path("new.json").write_bytes(Recording().replay(scale=1.02).data())
    desk.refused(code, *desk.import_profile("new.json"), *arguments, where=where)
    assert num_passes(desk) == 2


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--tolerance", "0"], "--tolerance"),
        (["--tolerance", "2"], "--tolerance"),
        (["--tolerance", "1"], "--tolerance"),
        (["--tolerance", "nan"], "--tolerance"),
        (["--tolerance", "inf"], "--tolerance"),
        (["--tolerance=-0.02"], "--tolerance"),
        (["--invocation-tolerance", "0"], "--invocation-tolerance"),
        (["--invocation-tolerance", "2"], "--invocation-tolerance"),
        (["--launch-mode", "lazy"], "--launch-mode"),
        (["--select", "iteration=9"], "--select"),
        (["--select", "iteration=0,layer=7"], "--select"),
        (["--select", "layer=0"], "--select"),
        (["--select", "iteration=0,iteration=1"], "--select"),
        (["--select", "iteration=-1"], "--select"),
        (["--select", "iteration=²"], "--select"),
        (["--select", "iteration=" + "9" * 5000], "--select"),
        (["--select", "rank=0"], "--select"),
        (["--select", ""], "--select"),
        (["--explain", "cache_state"], "--explain"),
        (["--explain", "cache_state="], "--explain"),
        (["--explain", "=cold"], "--explain"),
        (["--explain", "colour=red"], "--explain"),
        (["--explain", "cache_state=cold", "--explain", "cache_state=warm"], "--explain"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else value,
)
def test_a_setting_that_makes_no_sense_is_refused(desk: Desk, arguments: list[str], where: str) -> None:
    desk.refused("MISUSE", *desk.align(*arguments), where=where)


def test_a_refused_change_says_which_conditions_take_which_values(desk: Desk) -> None:
    status, _, err = desk.run(*desk.align("--explain", "colour=red"))
    assert status == 2
    assert "each name once, out of launch_mode, cache_state, co_running" in err
    assert "cache_state: in_order, served_order, warm, cold or rotated" in err


@pytest.mark.parametrize("text", ["x", "", "5-2", "3-", "-1", "²", "1,,2", "0-99999999999", "9" * 5000])
def test_numbers_that_are_none_are_refused_and_a_huge_range_is_not_counted_out(desk: Desk, text: str) -> None:
    tokens = ["profile", "query", "--capture", desk.path("capture"), "--db", desk.path("profile.db")]
    desk.refused("MISUSE", *tokens, "--runner", "torch_moe", f"--iterations={text}", where="--iterations")


def test_a_folder_that_is_neither_a_capture_nor_a_report_is_not_verified(desk: Desk) -> None:
    desk.refused("MISUSE", "verify", desk.path("bundle"), found="neither")
    desk.refused("MISUSE", "verify", desk.path("eager.json"), found="no folder")


@pytest.mark.parametrize("gone", ["capture", "profile.db"])
def test_a_report_whose_evidence_is_gone_cannot_be_verified(desk: Desk, gone: str) -> None:
    desk.run(*desk.align())
    path = desk.path(gone)
    path.rename(desk.path("elsewhere"))
    desk.refused("MISSING_FILE", "verify", desk.out, where=gone)


@pytest.mark.parametrize(
    "tokens",
    [
        ["align"],
        ["align", "a", "--db", "b", "--out", "c", "--tolerance", "much"],
        ["verify"],
        ["verify", "a", "b"],
        ["no-such-verb"],
        ["profile", "import", "a", "--db", "b", "--no-such-option"],
        ["report", "a", "--format", "pdf"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2_with_one_message(
    tokens: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, capsys)
    status, out, err = desk.run(*tokens)
    assert (status, out) == (2, "")
    assert err.count("Error") == 1
    assert "Traceback" not in err
    status, out, _ = desk.run(*tokens, "--json")
    error = json.loads(out)["error"]
    assert (status, error["code"], error["remedy"]) == (2, "MISUSE", "See moegauge --help.")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_import_without_a_trace_is_refused(desk: Desk) -> None:
    desk.refused("MISUSE", *desk.import_profile(), found="none")


def test_a_path_that_is_not_utf8_is_shown_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, capsys)
    status, out, err = desk.run("verify", "not\udcffutf8", "--json")
    assert status == 2
    assert json.loads(out)["error"]["where"] == "not\\udcffutf8"
    assert "Traceback" not in err


def test_the_message_goes_to_stderr_and_the_table_to_stdout(desk: Desk) -> None:
    status, out, err = desk.run("capture", "show", desk.path("capture"))
    assert (status, err) == (0, "")
    assert "vllm_triton_moe" in out


def test_names_from_files_are_shown_and_not_interpreted(desk: Desk) -> None:
    edit_json(desk.path("bundle/meta.json"), lambda meta: meta.update(routed_scope="[bold red]x[/] [link=x]"))
    status, _, err = desk.run(*desk.import_serving())
    assert status == 2
    assert "'[bold red]x[/] [link=x]'" in err


def test_a_gzip_of_a_trace_is_read_like_the_trace(desk: Desk) -> None:
    plain = desk.path("bundle/serving_trace.json")
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        file.write(plain.read_bytes())
    desk.run(*desk.import_serving())
    plain.unlink()
    desk.path("bundle/serving_trace.json.gz").write_bytes(buffer.getvalue())
    status, _, _ = desk.run("capture", "import", "bundle", desk.path("bundle"), "--out", desk.path("other"))
    assert status == 0
    for name in ("intervals", "invocations", "iterations", "routed_inputs"):
        one, other = (desk.path(f"{folder}/{name}.parquet").read_bytes() for folder in ("out", "other"))
        assert one == other
