"""A registered command profiles an arm: its words, its file, and how it fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from lane_builder import registration
from moegauge.adapters.counters.command import PROGRAM, CommandCounters, command_words
from moegauge.gate.ports import DeviceFailure
from moegauge.records.counter_rules import CounterProtocol

NCU = ["ncu", "--csv", "--cache-control", "{cache_control}", "--metrics", "{metrics}", "--log-file", "{file}"]


def protocol(*script: str) -> CounterProtocol:
    """The profiler is a line of Python that gets file, metrics and cache control, then the program."""
    words = [sys.executable, "-c", *script, "{file}", "{metrics}", "{cache_control}"] if script else NCU
    return registration(counters__command=words).counters


def test_metrics_file_and_cache_control_take_their_places() -> None:
    found = command_words(protocol(), Path("out.csv"), cache_control="none")
    assert found == ["ncu", "--csv", "--cache-control", "none", "--metrics", "bytes.sum", "--log-file", "out.csv"]


def test_the_program_that_runs_an_arm_stands_behind_the_command() -> None:
    counters = CommandCounters(protocol("import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:]))"), "card0")
    data = counters.profile("scale-add", "candidate", num_cycles=3, cache_control="none").decode()
    assert data == f"bytes.sum none {sys.executable} -m {PROGRAM} card0 scale-add candidate 3"
    assert importlib.util.find_spec(PROGRAM) is not None


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import sys; sys.exit('no permission for counters')", "ended with 1: no permission for counters"),
        ("print('nothing to profile')", "wrote no profile: nothing to profile"),
    ],
)
def test_a_command_that_gives_no_profile_is_a_failure_of_the_device(script: str, sentence: str) -> None:
    with pytest.raises(DeviceFailure, match=sentence):
        CommandCounters(protocol(script), "card0").profile("scale-add", "candidate", num_cycles=1, cache_control="none")


def test_a_command_that_is_not_there_is_named() -> None:
    gone = registration(counters__command=["/nowhere/ncu", "{file}", "{metrics}", "{cache_control}"]).counters
    with pytest.raises(DeviceFailure, match="/nowhere/ncu: No such file"):
        CommandCounters(gone, "card0").profile("scale-add", "candidate", num_cycles=1, cache_control="none")


def test_a_command_without_a_place_for_its_file_is_refused() -> None:
    with pytest.raises(Exception, match=r"command: \{file\} has to stand in it"):
        registration(counters__command=["ncu", "{metrics}", "{cache_control}"])


def test_a_graph_that_is_not_stated_as_a_deviation_is_refused() -> None:
    with pytest.raises(Exception, match="deviations: scale-add replays a graph, which has to be stated here"):
        registration(subjects__0__timing__launch_mode="graph")
