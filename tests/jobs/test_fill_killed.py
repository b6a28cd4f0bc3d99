"""moegauge profile run, killed at random points: what was finished is there, nothing is half there, and it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from simulator import Recording

NUM_ITERATIONS, NUM_LAYERS, NUM_PASSES = 12, 16, 16
NUM_ROWS = NUM_ITERATIONS * NUM_LAYERS
CHUNK = 16
"""Samples that plain torch writes in one transaction: one iteration of so many layers."""

LAUNCHER = """
import contextlib, json, os, signal, sqlite3, sys
import torch
from moegauge.adapters.profile_db import ProfileDb
from moegauge.cli.main import run

class Counted(sqlite3.Connection):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.set_trace_callback(count)

def count(statement):
    global seen
    seen += 1
    if seen == die_at:
        os.kill(os.getpid(), signal.SIGKILL)

def told(write):
    def written(self, first, *rest, **named):
        found = write(self, first, *rest, **named)
        print("written", len(rest[-1]), file=sys.__stdout__, flush=True)
        return found
    return written

connect = sqlite3.connect
sqlite3.connect = lambda *arguments, **named: connect(*arguments, factory=Counted, **named)
ProfileDb.add_pass, ProfileDb.extend_pass = told(ProfileDb.add_pass), told(ProfileDb.extend_pass)
for line in sys.stdin:
    seen, die_at, *words = 0, *json.loads(line)
    child = os.fork()
    if child == 0:
        with contextlib.redirect_stdout(sys.stderr):
            status = run(words)
        os._exit(status)
    print("started", child, flush=True)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Imports torch once, and then runs ``moegauge`` with the words of each line in a process of its own."""


@dataclass
class Launcher:
    process: subprocess.Popen[str]

    def start(self, words: list[str], *, die_at: int = 0) -> int:
        """Run the command line; its process kills itself when it is about to run its n-th SQL statement."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([die_at, *words]) + "\n")
        self.process.stdin.flush()
        return self.expect("started")

    def read(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        word, number = self.process.stdout.readline().split()
        return word, int(number)

    def expect(self, word: str) -> int:
        found, number = self.read()
        assert found == word
        return number

    def end(self) -> tuple[int, int]:
        """Exit status, and samples that were written until then."""
        written = 0
        while True:
            word, number = self.read()
            if word == "ended":
                return number, written
            assert word == "written"
            written += number


@contextmanager
def launcher() -> Iterator[Launcher]:
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        yield Launcher(process)
    finally:
        process.communicate()


def recorded(folder: Path) -> CaptureFolder:
    steps: list[dict[str, Any]] = [{"iter": i, "tokens": 8, "padded": 8, "graph": False} for i in range(NUM_ITERATIONS)]
    recording = Recording(steps=steps, layers=tuple(range(NUM_LAYERS)), num_experts=32, top_k=4)
    return import_serving(recording.write(folder / "bundle"), folder / "capture")


def num_whole_samples(db: Path) -> int:
    """Number of samples, after checking that each belongs to a whole transaction, and stands there once."""
    with open_profile_db(db) as database:
        rows, passes, samples = database.rows(), database.passes(), database.samples()
        counted = database.num_samples()
    assert {row.row_id for row in rows} == set(samples["row_id"].to_list()), "no row without a sample, or the reverse"
    assert set(passes) == set(samples["pass_id"].to_list()), "no pass without a sample, or the reverse"
    assert samples["ordinal"].unique().to_list() in ([], [0])
    assert samples.select("row_id", "pass_id").is_duplicated().sum() == 0
    assert samples.group_by("row_id").agg(pl.struct("iteration", "layer").n_unique())[
        "iteration"
    ].unique().to_list() in ([], [1])
    whole = samples.group_by("pass_id", "iteration").agg(pl.col("layer").sort())
    assert whole["layer"].to_list() == [list(range(NUM_LAYERS))] * whole.height
    assert sum(counted.values()) == samples.height
    assert max(counted.values(), default=0) <= NUM_PASSES
    connection = sqlite3.connect(db)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    return samples.height


def test_a_run_killed_at_twenty_random_points_loses_nothing_and_the_last_run_completes_it(tmp_path: Path) -> None:
    capture, db = recorded(tmp_path), tmp_path / "profile.db"
    words = [
        "profile", "run", "--capture", str(capture.path), "--db", str(db), "--runner", "torch_moe", "--launch-mode",
        "eager", "--cache-state", "warm", "--passes", str(NUM_PASSES),
    ]  # fmt: skip
    generator = random.Random(20)  # noqa: S311 - the same points every time
    with launcher() as launch:
        launch.start([*words[:-1], "1", "--iterations", "0"])
        assert launch.end() == (0, CHUNK)
        there = num_whole_samples(db)
        assert there == CHUNK
        for number in range(20):
            if number % 2:  # at a statement: while reading, inside a transaction, or between two
                launch.start(words, die_at=generator.randrange(2, 700))
                written = 0
            else:  # at a moment: mostly while measuring
                child = launch.start(words)
                written = sum(launch.expect("written") for _ in range(generator.randrange(8)))
                time.sleep(generator.random() * 0.05)
                os.kill(child, signal.SIGKILL)
            status, rest = launch.end()
            assert status == -signal.SIGKILL
            found = num_whole_samples(db)
            assert found - there - written - rest in {0, CHUNK}, "what was written is there, and at most one more"
            there = found
        assert CHUNK < there < NUM_ROWS * NUM_PASSES
        launch.start(words)
        assert launch.end() == (0, NUM_ROWS * NUM_PASSES - there)
        launch.start(words)
        assert launch.end() == (0, 0)
    assert num_whole_samples(db) == NUM_ROWS * NUM_PASSES
    with open_profile_db(db) as database:
        assert list(database.num_samples().values()) == [NUM_PASSES] * NUM_ROWS
