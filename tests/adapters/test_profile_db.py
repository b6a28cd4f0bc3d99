"""The profile database keeps whole passes: after a kill at any point a pass is there entirely or not at all."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import NO_LABELS
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from simulator import Recording

SAMPLES_OF_A_PASS = 9

CHILD = """
import os, signal, sqlite3, sys
from pathlib import Path
from moegauge import errors
from moegauge.adapters.profile_db import ProfileDb
from moegauge.jobs.profile_derivation import ReplayLabels
from moegauge.jobs.profile_import import import_replay

capture, db, die_at, *traces = sys.argv[1:]
seen = 0

def count(statement):
    global seen
    seen += 1
    if seen == int(die_at):
        os.kill(os.getpid(), signal.SIGKILL)

class Counted(sqlite3.Connection):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.set_trace_callback(count)

connect = sqlite3.connect
sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=Counted, **named)
add_pass = ProfileDb.add_pass

def told(self, *arguments, **named):
    print("adding", flush=True)
    return add_pass(self, *arguments, **named)

ProfileDb.add_pass = told
for trace in traces:
    try:
        import_replay(Path(capture), [Path(trace)], Path(db), labels=ReplayLabels(None, None, {}))
    except errors.MisuseError as error:
        assert "imported before" in str(error)
print(f"statements {seen}", flush=True)
"""


def start(capture: CaptureFolder, db: Path, *traces: Path, die_at: int = 0) -> subprocess.Popen[str]:
    """A process that imports traces, and kills itself when it is about to run its n-th SQL statement."""
    command = [sys.executable, "-c", CHILD, str(capture.path), str(db), str(die_at), *map(str, traces)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate()
    return process.returncode, out


def replays(recording: Recording, folder: Path, num: int) -> list[Path]:
    paths = [folder / f"replay{number}.json" for number in range(num)]
    for number, path in enumerate(paths):
        path.write_bytes(recording.replay(scale=1 + number / 100, offset_ns=number).data())
    return paths


def num_whole_passes(db: Path) -> int:
    """Number of passes, after checking that each is whole and that nothing else is in the database."""
    with open_profile_db(db) as database:
        passes, samples = database.passes(), database.samples()
        assert samples["pass_id"].value_counts().sort("pass_id").rows() == [
            (number, SAMPLES_OF_A_PASS) for number in passes
        ]
        for record in passes.values():
            for digest in record.traces.values():
                _, data = database.artifact(digest)
                assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
        used = set(samples["row_id"].to_list())
        assert {row.row_id for row in database.rows("vllm_triton_moe")} == used
    connection = sqlite3.connect(db)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("SELECT count(*) FROM artifact").fetchone() == (len(passes),)
    connection.close()
    return len(passes)


def num_statements(capture: CaptureFolder, db: Path, trace: Path) -> int:
    status, out = finish(start(capture, db, trace))
    assert status == 0
    return int(out.splitlines()[-1].removeprefix("statements "))


def test_a_process_killed_at_any_statement_of_a_pass_leaves_none_of_it_and_the_next_import_adds_it(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    first, second, *rest = replays(recording, tmp_path, 10)
    db = tmp_path / "profile.db"
    import_replay(capture.path, [first], db, labels=NO_LABELS)
    last = num_statements(capture, db, second)
    assert last > 30
    generator = random.Random(7)  # noqa: S311 - the same statements every time
    points = [*sorted(generator.sample(range(2, last - 1), len(rest) - 2)), last - 1, last]
    for number, (trace, point) in enumerate(zip(rest, points, strict=True), start=2):
        status, _ = finish(start(capture, db, trace, die_at=point))
        assert status == -signal.SIGKILL, f"statement {point} of {last}"
        assert num_whole_passes(db) == number
        import_replay(capture.path, [trace], db, labels=NO_LABELS)
        assert num_whole_passes(db) == number + 1


def test_a_process_killed_while_the_database_is_made_does_not_spoil_it(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    (trace,) = replays(recording, tmp_path, 1)
    last = num_statements(capture, tmp_path / "whole.db", trace)
    for point in (1, 2, 4, 8, 16, last):
        db = tmp_path / f"killed-{point}.db"
        status, _ = finish(start(capture, db, trace, die_at=point))
        assert status == -signal.SIGKILL, f"statement {point} of {last}"
        import_replay(capture.path, [trace], db, labels=NO_LABELS)
        assert num_whole_passes(db) == 1


def test_a_process_killed_at_a_random_moment_never_leaves_half_a_pass(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    traces = replays(recording, tmp_path, 60)
    db = tmp_path / "profile.db"
    import_replay(capture.path, traces[:1], db, labels=NO_LABELS)
    generator = random.Random(8)  # noqa: S311 - moments cannot be exact anyway
    passes = 1
    for _ in range(4):
        process = start(capture, db, *traces)
        assert process.stdout is not None
        for _ in range(passes + 1):
            assert process.stdout.readline() == "adding\n"
        time.sleep(generator.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        assert finish(process)[0] == -signal.SIGKILL
        assert num_whole_passes(db) >= passes
        passes = num_whole_passes(db)


def test_two_processes_that_fill_one_database_at_once_both_succeed(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    traces = replays(recording, tmp_path, 8)
    db = tmp_path / "profile.db"
    processes = [start(capture, db, *traces[0::2]), start(capture, db, *traces[1::2])]
    assert [finish(process)[0] for process in processes] == [0, 0]
    assert num_whole_passes(db) == 8


def test_a_pass_with_one_known_trace_adds_nothing_of_its_other_traces(tmp_path: Path) -> None:
    recording = Recording(ranks=2)
    capture = import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")
    paths = [tmp_path / name for name in ("rank0.json", "rank1.json", "rank0-again.json")]
    for path, trace in zip(
        paths, (recording.replay(0), recording.replay(1), recording.replay(0, offset_ns=5)), strict=True
    ):
        path.write_bytes(trace.data())
    db = tmp_path / "profile.db"
    import_replay(capture.path, paths[:2], db, labels=NO_LABELS)
    with pytest.raises(errors.MisuseError, match="imported before"):
        import_replay(capture.path, [paths[2], paths[1]], db, labels=NO_LABELS)
    connection = sqlite3.connect(db)
    names = connection.execute("SELECT name FROM artifact ORDER BY name").fetchall()
    counts = connection.execute("SELECT count(*), count(DISTINCT pass_id) FROM sample").fetchone()
    connection.close()
    assert names == [("rank0.json",), ("rank1.json",)]
    assert counts == (18, 1)


def test_further_passes_add_samples_and_no_rows(recording: Recording, capture: CaptureFolder, tmp_path: Path) -> None:
    db = tmp_path / "profile.db"
    rows = []
    for trace in replays(recording, tmp_path, 3):
        import_replay(capture.path, [trace], db, labels=NO_LABELS)
        with open_profile_db(db) as database:
            rows.append([row.row_id for row in database.rows("vllm_triton_moe")])
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 9
    assert num_whole_passes(db) == 3


def test_conditions_that_differ_make_rows_of_their_own(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    one, other = replays(recording, tmp_path, 2)
    db = tmp_path / "profile.db"
    import_replay(capture.path, [one], db, labels=NO_LABELS)
    declared = type(NO_LABELS)(None, None, {"cache_state": "cold"})
    import_replay(capture.path, [other], db, labels=declared)
    with open_profile_db(db) as database:
        rows = database.rows("vllm_triton_moe")
    assert len(rows) == 18
    assert len({row.key.match.input_digest for row in rows}) == 9
    assert sorted({json.dumps("cache_state" in row.key.setting.conditions) for row in rows}) == ["false", "true"]


def test_reading_changes_no_byte_of_the_database(recording: Recording, capture: CaptureFolder, tmp_path: Path) -> None:
    (trace,) = replays(recording, tmp_path, 1)
    db = tmp_path / "profile.db"
    import_replay(capture.path, [trace], db, labels=NO_LABELS)
    before = hashlib.sha256(db.read_bytes()).hexdigest()
    assert num_whole_passes(db) == 1
    assert hashlib.sha256(db.read_bytes()).hexdigest() == before


def test_an_artifact_that_was_changed_is_not_handed_out(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    (trace,) = replays(recording, tmp_path, 1)
    db = tmp_path / "profile.db"
    import_replay(capture.path, [trace], db, labels=NO_LABELS)
    connection = sqlite3.connect(db)
    connection.execute("UPDATE artifact SET bytes = ?", (b"something else",))
    connection.commit()
    connection.close()
    with open_profile_db(db) as database:
        (record,) = database.passes().values()
        (digest,) = record.traces.values()
        with pytest.raises(errors.DigestMismatch, match=r"artifact replay0\.json"):
            database.artifact(digest)
        with pytest.raises(errors.MissingFile, match="artifact sha256:0"):
            database.artifact("sha256:0")
