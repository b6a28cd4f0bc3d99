"""The parent of ranks that run together, killed: no rank outlives it, and every pass is there on all ranks or not."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import fake_ranks
from fake_ranks import two_ranks
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving

NUM_PASSES = 4
PLACES = [(iteration, layer) for iteration in (0, 1, 2) for layer in (0, 1, 2)]
SAMPLES = 2 * len(PLACES)
"""Of one pass: every invocation on both ranks."""

LAUNCHER = """
import os, signal, sqlite3, sys

class Counted(sqlite3.Connection):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.set_trace_callback(count)

def count(statement):
    global left
    left -= statement.lstrip().startswith(verb)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

tests, verb, left, *words = sys.argv[1:]
left, connect = int(left), sqlite3.connect
sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=Counted, **named)
sys.path.insert(0, tests)
import fake_ranks
fake_ranks.main(words)
"""
"""Measures ranks together, and kills its process when it is about to run its n-th SQL statement of a kind."""


@pytest.fixture
def capture(tmp_path: Path) -> CaptureFolder:
    return import_serving(two_ranks().write(tmp_path / "bundle"), tmp_path / "capture")


def start(capture: CaptureFolder, folder: Path, verb: str = "none", number: int = 1) -> subprocess.Popen[bytes]:
    """A process that measures both ranks together, in a database in the folder."""
    words = [Path(fake_ranks.__file__).parent, verb, number, capture.path, folder / "profile.db", folder, NUM_PASSES]
    return subprocess.Popen([sys.executable, "-c", LAUNCHER, *map(str, words)], stderr=subprocess.DEVNULL)


def wait_for_ranks_to_end(folder: Path) -> None:
    """Returns once the process of every rank that was made has ended; one that never ends hangs the test."""
    for path in folder.glob("rank*.pid"):
        stat = Path(f"/proc/{path.read_text()}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)


def num_whole_passes(db: Path) -> int:
    """Passes, after checking that each is there on both ranks, with all that belongs to it, once."""
    if not db.exists():
        return 0
    with open_profile_db(db) as database:
        rows, passes, samples = database.rows(), database.passes(), database.samples()
    by_pass = samples.sort("rank", "iteration", "layer").group_by("pass_id", maintain_order=True)
    held = [
        list(zip(*(one[name].to_list() for name in ("rank", "iteration", "layer")), strict=True)) for _, one in by_pass
    ]
    assert held == [[(rank, *place) for rank in (0, 1) for place in PLACES]] * len(passes)
    assert set(passes) == set(samples["pass_id"].to_list())
    assert {row.row_id for row in rows} == set(samples["row_id"].to_list())
    assert samples.select("row_id", "pass_id").is_duplicated().sum() == 0
    assert all("device_uuids.rank1.after" in record.facts for record in passes.values())
    connection = sqlite3.connect(db)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    return len(passes)


def test_a_parent_killed_while_it_writes_loses_that_pass_and_leaves_no_rank(
    capture: CaptureFolder, tmp_path: Path
) -> None:
    there = 0
    # in the middle of a pass; between its samples and its end; before anything
    for verb, number, more in (("INSERT INTO sample", SAMPLES + 7, 1), ("COMMIT", 2, 1), ("BEGIN", 1, 0)):
        process = start(capture, tmp_path, verb, number)
        assert process.wait() == -signal.SIGKILL
        wait_for_ranks_to_end(tmp_path)
        found = num_whole_passes(tmp_path / "profile.db")
        assert found == there + more
        there = found
    assert start(capture, tmp_path).wait() == 0
    assert num_whole_passes(tmp_path / "profile.db") == NUM_PASSES


def test_a_parent_killed_while_ranks_run_leaves_no_rank_and_the_next_run_completes(
    capture: CaptureFolder, tmp_path: Path
) -> None:
    process = start(capture, tmp_path)
    while not (tmp_path / "rank1.steps").exists():  # the first chunk of the first pass is measured
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for_ranks_to_end(tmp_path)
    assert num_whole_passes(tmp_path / "profile.db") < NUM_PASSES
    assert start(capture, tmp_path).wait() == 0
    assert num_whole_passes(tmp_path / "profile.db") == NUM_PASSES
    with open_profile_db(tmp_path / "profile.db") as database:
        assert database.samples().group_by("row_id").agg(pl.len())["len"].to_list() == [NUM_PASSES] * SAMPLES
