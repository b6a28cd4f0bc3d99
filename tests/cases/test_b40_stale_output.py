"""A kernel that is right until it is timed: its output is checked again after the timing, on inputs it has not seen.

https://github.com/gpu-mode/reference-kernels/pull/150, https://github.com/ScalingIntelligence/KernelBench/pull/82
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from literal_bundle import Outcome, moegauge

from fake_runner import GOOD, WRONG, FakeRunner
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.torch_moe import Inputs, TorchMoeRunner
from moegauge.adapters.runners.work import ModelSpec, Runner, Work
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs import profile_run
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_run import RunnerChoice, Wanted
from moegauge.jobs.profile_specs import EXACT, InputChoice
from simulator import Recording

RIGHT_CALLS = 20


@dataclass(frozen=True)
class Bench:
    """A capture of twelve invocations of four tokens each, and ``moegauge profile run`` with another runner."""

    recording: Recording
    capture: CaptureFolder
    db: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def run(self, make: Callable[[ModelSpec], Runner], *arguments: object, runner: str = "torch_moe") -> Outcome:
        self.monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: make(model))
        folders = ("--capture", self.capture.path, "--db", self.db, "--runner", runner)
        passes = () if "--passes" in arguments else ("--passes", 2)
        ways = ("--launch-mode", "eager", "--cache-state", "warm", *passes, "--json")
        return moegauge(self.capsys, "profile", "run", *folders, *ways, *arguments)

    def rows(self) -> dict[str, list[str | None]]:
        """Error texts of the stored rows by status, and samples under the word ``samples``."""
        with open_profile_db(self.db) as database:
            found: dict[str, list[str | None]] = {}
            for row in database.rows():
                found.setdefault(str(row.status), []).append(row.error)
            return found

    def num_samples(self) -> tuple[int, int]:
        """Samples in the database, and those that count."""
        with open_profile_db(self.db) as database:
            return database.samples().height, sum(database.num_samples().values())


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    recording = Recording(steps=[{"iter": i, "tokens": 4, "padded": 4, "graph": False} for i in range(4)])
    capture = import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")
    return Bench(recording, capture, tmp_path / "profile.db", capsys, monkeypatch)


class Spoilt(TorchMoeRunner):
    """Right for the first 20 calls of its kernel, then spoilt."""

    works_at_once = 3
    calls = 0

    def _call(self, work: Work, given: Inputs) -> Callable[[], torch.Tensor]:
        right = super()._call(work, given)

        def call() -> torch.Tensor:
            self.calls += 1
            return right() if self.calls <= RIGHT_CALLS else self.spoilt(right, given)

        return call

    def spoilt(self, right: Callable[[], torch.Tensor], given: Inputs) -> torch.Tensor:
        raise NotImplementedError


class Stale(Spoilt):
    """Later gives back its first output, whatever it is asked for."""

    first: torch.Tensor | None = None

    def _call(self, work: Work, given: Inputs) -> Callable[[], torch.Tensor]:
        call = super()._call(work, given)

        def kept() -> torch.Tensor:
            out = call()
            self.first = out.clone() if self.first is None else self.first
            return out

        return kept

    def spoilt(self, right: Callable[[], torch.Tensor], given: Inputs) -> torch.Tensor:
        assert self.first is not None
        return self.first


class Zeroing(Spoilt):
    """Later computes the right output, and then writes zeros into a row of its input."""

    def spoilt(self, right: Callable[[], torch.Tensor], given: Inputs) -> torch.Tensor:
        out = right()
        given.hidden_states[0] = 0
        return out


class Rerouting(Spoilt):
    """Later computes the right output, and then changes an id on the device."""

    def spoilt(self, right: Callable[[], torch.Tensor], given: Inputs) -> torch.Tensor:
        out = right()
        given.topk_ids[0, 0] = given.topk_ids[0, 0] ^ 1
        return out


def test_the_same_runner_unspoilt_is_measured(bench: Bench) -> None:
    outcome = bench.run(TorchMoeRunner)
    assert (outcome.status, outcome.json["num_measured"]) == (0, 24)
    assert bench.rows() == {"MEASURED": [None] * 12}


@pytest.mark.parametrize(
    ("spoilt", "found"),
    [
        (Stale, "relative error 1."),
        (Zeroing, "changed hidden_states, timed hidden_states"),
        (Rerouting, "changed topk_ids"),
    ],
)
def test_a_runner_that_is_spoilt_while_it_is_timed_is_refused_with_the_invocation(
    bench: Bench, spoilt: type[Spoilt], found: str
) -> None:
    outcome = bench.run(spoilt)
    assert outcome.status == 2
    error = outcome.json["error"]
    assert error["code"] == "INCONSISTENT"
    assert error["where"] == "runner torch_moe, iteration 2, layer 0, rank 0"
    assert error["expected"] == "an output within 0.02 of the float64 reference, and inputs left as they were"
    assert found in error["found"]
    # 2 checks, then twice (3 x a warming and a timed call, 2 checks): the 20th call lies in the third iteration
    assert list(bench.rows()) == ["WRONG_OUTPUT"]
    assert len(bench.rows()["WRONG_OUTPUT"]) == 9
    assert all(found in str(text) for text in bench.rows()["WRONG_OUTPUT"])
    assert bench.num_samples() == (6, 0)


def test_what_a_spoilt_runner_measured_is_measured_again_and_never_mixed_with_the_new_samples(bench: Bench) -> None:
    bench.run(Stale)
    outcome = bench.run(TorchMoeRunner)
    assert (outcome.status, outcome.json["num_measured"]) == (0, 24)
    assert bench.rows() == {"MEASURED": [None] * 12}
    assert bench.num_samples() == (30, 24)
    with open_profile_db(bench.db) as database:
        assert sorted(row.generation for row in database.rows()) == [1] * 3 + [2] * 9
        samples, rows = database.samples(), {row.row_id for row in database.rows()}
    newest = samples.filter(samples["row_id"].is_in(rows))
    assert newest.group_by("row_id").len()["len"].to_list() == [2] * 12


def test_a_remembered_output_is_stale_even_where_it_is_of_the_same_work(bench: Bench) -> None:
    outcome = bench.run(Stale, "--iterations", 0, "--layers", 0, "--passes", 9)
    assert outcome.status == 2
    assert "relative error 1." in outcome.json["error"]["found"]
    assert len(bench.rows()["WRONG_OUTPUT"]) == 1


def test_ids_that_a_runner_writes_to_are_noticed(bench: Bench) -> None:
    class Writing(FakeRunner):
        def run_pass(self, works: Any, condition: Any) -> Any:
            times = super().run_pass(works, condition)
            works[4].topk_ids[0, 0] ^= 1
            return times

    outcome = bench.run(lambda model: Writing(bench.recording), "--input", "iteration", runner="vllm_triton_moe")
    assert outcome.status == 2
    error = outcome.json["error"]
    assert (error["code"], error["where"]) == ("INCONSISTENT", "iteration 1, layer 1, rank 0")
    assert error["expected"].startswith("routed ids routed-ids-v1+sha256:")
    assert error["found"].startswith("routed-ids-v1+sha256:")
    assert bench.num_samples() == (0, 0)
    assert list(bench.rows()) == ["WRONG_OUTPUT"]


def test_a_ladder_does_not_use_what_a_spoilt_runner_measured(bench: Bench, tmp_path: Path) -> None:
    good = FakeRunner(bench.recording)
    assert bench.run(lambda model: good, "--passes", 6, runner="vllm_triton_moe").status == 0
    assert good.checked == [(0, 0, 0), (3, 2, 0)] + [
        (i, layer, n) for n in range(1, 7) for i, layer in ((0, 0), (3, 2))
    ]
    arguments = ("align", bench.capture.path, "--db", bench.db, "--launch-mode", "eager", "--json")
    before = moegauge(bench.capsys, *arguments, "--out", tmp_path / "before")
    assert before.json["rungs"][0]["status"] == "MATCH"
    spoilt = FakeRunner(bench.recording, checks=[GOOD] * 5 + [WRONG])
    assert bench.run(lambda model: spoilt, "--passes", 9, runner="vllm_triton_moe").status == 2
    after = moegauge(bench.capsys, *arguments, "--out", tmp_path / "after")
    assert after.json["rungs"][0]["status"] == "UNAVAILABLE"
    assert after.json["rungs"][0]["reason"]["code"] == "NO_MEASURED_ROWS"


def test_a_time_whose_output_was_not_checked_again_is_not_there(bench: Bench) -> None:
    class Killed(FakeRunner):
        def check(self, work: Any, *, draw: int = 0) -> Any:
            if draw == 2:
                raise KeyboardInterrupt
            return super().check(work, draw=draw)

    killed = Killed(bench.recording, works_at_once=3)
    bench.monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: killed)
    wanted = Wanted(inputs=(InputChoice(type=EXACT),), launch_mode="eager", num_passes=2)
    with pytest.raises(KeyboardInterrupt):
        profile_run.run(bench.capture.path, bench.db, wanted, RunnerChoice(name="vllm_triton_moe"))
    assert len(killed.passes) == 2, "the second chunk was timed"
    assert bench.num_samples() == (3, 3)
    ways = ("--capture", bench.capture.path, "--db", bench.db, "--runner", "vllm_triton_moe", "--launch-mode", "eager")
    counted = moegauge(bench.capsys, "profile", "count-missing", *ways, "--passes", 1, "--json")
    assert (counted.status, counted.json) == (1, {"num_rows": 12, "num_missing": 9})
