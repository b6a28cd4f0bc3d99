"""moegauge profile run measures exactly what is missing, keeps what it finished, and says what it could not measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cases.literal_bundle import Outcome, moegauge
from fake_runner import GOOD, WRONG, FakeRunner
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import RunCondition
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs import profile_run
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.fill import Filled, Group, fill
from moegauge.jobs.profile_specs import EXACT, InputChoice, Spec, SpecSource
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile import RowStatus
from simulator import NAMES, Recording, TraceBuilder

EAGER = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="warm")
GRAPH = RunCondition(launch_mode=LaunchMode.GRAPH, cache_state="in_order")
PLACES = [(iteration, layer) for iteration in (0, 1, 2) for layer in (0, 1, 2)]


@dataclass(frozen=True)
class Bench:
    """The simulated capture, a database beside it, and the command line."""

    recording: Recording
    capture: CaptureFolder
    db: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: object) -> Outcome:
        """``moegauge profile run --json`` with plain torch, on warm caches (the model is far smaller than any)."""
        options = {"--runner": "torch_moe", "--launch-mode": "eager", "--cache-state": "warm"}
        rest = [word for pair in options.items() if pair[0] not in arguments for word in pair]
        folders = ("--capture", self.capture.path, "--db", self.db)
        return moegauge(self.capsys, "profile", "run", *folders, *rest, "--json", *arguments)

    def fill(self, runner: FakeRunner, *groups: Group, num_passes: int = 1, force: bool = False) -> Filled:
        """The job itself, with a runner of the test's own; every exact input eagerly where no group is given."""
        with open_profile_db(self.db, create=True) as database:
            source = SpecSource(self.capture)
            return fill(database, source, runner, groups or [self.group()], num_passes=num_passes, force=force)

    def specs(self) -> list[Spec]:
        return SpecSource(self.capture).specs(InputChoice(type=EXACT))

    def group(self, condition: RunCondition = EAGER) -> Group:
        return Group(specs=self.specs(), condition=condition)

    def samples(self) -> pl.DataFrame:
        with open_profile_db(self.db) as database:
            return database.samples()

    def statuses(self) -> list[tuple[RowStatus, str | None]]:
        with open_profile_db(self.db) as database:
            return [(row.status, row.error) for row in database.rows()]


@pytest.fixture
def bench(recording: Recording, capture: CaptureFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(recording, capture, tmp_path / "profile.db", capsys)


def done(outcome: Outcome) -> tuple[int, int, int, int, int]:
    """Exit status, rows, samples, passes, missing."""
    found = outcome.json
    return (
        outcome.status, found["num_rows"], found["num_measured"], found["num_passes"], found["num_missing"]
    )  # fmt: skip


def per_row(samples: pl.DataFrame) -> dict[int, int]:
    """How many rows have how many samples, after checking that none stands twice in a pass."""
    assert samples["ordinal"].unique().to_list() == [0]
    assert samples.select("row_id", "pass_id").is_duplicated().sum() == 0
    return dict(samples.group_by("row_id").len().group_by("len").len(name="rows").iter_rows())


# What is missing, and nothing else


def test_every_missing_row_is_measured_once_a_pass(bench: Bench) -> None:
    assert done(bench.run("--passes", 2)) == (0, 9, 18, 2, 0)
    samples = bench.samples()
    assert per_row(samples) == {2: 9}
    places = samples.group_by("pass_id", maintain_order=True).agg(pl.struct("iteration", "layer"))
    assert [[tuple(place.values()) for place in one] for one in places.sort("pass_id")["iteration"]] == [PLACES] * 2
    assert (samples["busy_ns"] > 0).all()
    assert samples["busy_ns"].equals(samples["span_ns"])
    with open_profile_db(bench.db) as database:
        rows, passes = database.rows(), database.passes()
    assert {row.key.match.subject.kernel_kind for row in rows} == {"torch_moe"}
    assert {(one.source, one.runner, one.capture_digest) for one in passes.values()} == {
        ("run", "torch_moe", bench.capture.raw_digest)
    }
    assert {"load_average.before", "load_average.after", "threads.before"} <= passes[1].facts.keys()
    conditions = rows[0].key.setting.conditions
    assert conditions["cache_state"].value == "warm"
    assert conditions["weights"].value == "random-normal seed 0, 1 sets"


def test_a_second_run_adds_nothing(bench: Bench) -> None:
    bench.run("--passes", 2)
    before = bench.samples()
    assert done(bench.run("--passes", 2)) == (0, 9, 0, 0, 0)
    assert bench.samples().equals(before)


def test_more_passes_add_only_the_difference(bench: Bench) -> None:
    bench.run("--passes", 2)
    assert done(bench.run("--passes", 5)) == (0, 9, 27, 3, 0)
    assert per_row(bench.samples()) == {5: 9}
    assert done(bench.run("--passes", 4)) == (0, 9, 0, 0, 0)


def test_a_part_that_is_there_is_not_measured_again(bench: Bench) -> None:
    assert done(bench.run("--passes", 2, "--iterations", "0,2", "--layers", "0-1")) == (0, 4, 8, 2, 0)
    assert done(bench.run("--passes", 2)) == (0, 9, 10, 2, 0)
    assert per_row(bench.samples()) == {2: 9}


def test_other_conditions_are_other_rows(bench: Bench) -> None:
    bench.run("--passes", 1)
    assert done(bench.run("--passes", 1, "--weight-seed", 1)) == (0, 9, 9, 1, 0)
    assert done(bench.run("--passes", 1, "--weight-sets", 3)) == (0, 9, 9, 1, 0)
    assert len(bench.statuses()) == 27


def test_force_measures_again_as_a_new_generation_and_keeps_the_old_one(bench: Bench) -> None:
    bench.run("--passes", 3)
    assert done(bench.run("--passes", 2, "--force")) == (0, 9, 18, 2, 0)
    with open_profile_db(bench.db) as database:
        assert [row.generation for row in database.rows()] == [2] * 9
        assert set(database.num_samples().values()) == {2}
        assert sorted(row.generation for row in database.rows(every_generation=True)) == [1] * 9 + [2] * 9
    assert per_row(bench.samples()) == {3: 9, 2: 9}


def test_the_newest_generation_is_what_a_ladder_uses(bench: Bench, tmp_path: Path) -> None:
    bench.fill(FakeRunner(bench.recording), num_passes=2)
    bench.fill(FakeRunner(bench.recording, time=lambda *_: 7_000), num_passes=2, force=True)
    report = align(bench.capture.path, bench.db, tmp_path / "report", settings=ladder_settings(launch_mode="eager"))
    assert report.rungs[0].capture_wide is not None
    assert report.rungs[0].capture_wide.right_ns == 9 * 5 * 7_000


def test_inputs_and_samplers_combine_and_rows_that_agree_are_measured_once(bench: Bench) -> None:
    outcome = bench.run(
        "--input", "exact", "--input", "iteration", "--input", "full-run", "--sampler", "counts_exact",
        "--sampler", "systematic", "--passes", 2,
    )  # fmt: skip
    # 9 exact, 2 x 9 of each popularity; of one token both samplers draw the iteration's only row alike, in 3 layers
    assert done(outcome) == (0, 42, 84, 10, 0)
    assert per_row(bench.samples()) == {2: 42}
    with open_profile_db(bench.db) as database:
        labels = [(row.key.match.input_type, row.label.sampler) for row in database.rows()]
    assert {label: labels.count(label) for label in labels} == {
        ("exact", None): 9,
        ("iteration_popularity", "counts_exact"): 9,
        ("iteration_popularity", "systematic"): 6,
        ("full_run_popularity", "counts_exact"): 9,
        ("full_run_popularity", "systematic"): 9,
    }


def test_rows_that_agree_are_forced_into_one_new_generation(bench: Bench) -> None:
    wanted = ("--input", "iteration", "--sampler", "counts_exact", "--sampler", "systematic", "--passes", 2)
    assert done(bench.run(*wanted)) == (0, 15, 30, 4, 0)
    assert done(bench.run(*wanted, "--force")) == (0, 15, 30, 4, 0)
    with open_profile_db(bench.db) as database:
        assert [row.generation for row in database.rows()] == [2] * 15
        assert set(database.num_samples().values()) == {2}


class Twice(Recording):
    """A model that routes the tokens of every iteration alike."""

    def topk_ids(self, iteration: int, layer: int, rows: int) -> np.ndarray[Any, np.dtype[np.int16]]:
        return super().topk_ids(0, layer, rows)


@pytest.fixture
def twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Two iterations of three layers with the same ids: three rows, each of two invocations."""
    recording = Twice(steps=[{"iter": i, "tokens": 4, "padded": 4, "graph": False} for i in (0, 1)])
    capture = import_serving(recording.write(tmp_path / "twice"), tmp_path / "capture-twice")
    return Bench(recording, capture, tmp_path / "twice.db", capsys)


@pytest.mark.parametrize("works_at_once", [1, 4096], ids=["two transactions", "one transaction"])
def test_two_invocations_of_one_input_share_a_row_and_keep_their_samples_apart(
    twice: Bench, works_at_once: int
) -> None:
    runner = FakeRunner(twice.recording, works_at_once=works_at_once)
    assert twice.fill(runner, num_passes=2) == Filled(3, 12, 2, 0, ())
    assert twice.fill(runner, num_passes=2) == Filled(3, 0, 0, 0, ())
    assert twice.fill(runner, num_passes=2, force=True) == Filled(3, 12, 2, 0, ())
    with open_profile_db(twice.db) as database:
        assert [row.generation for row in database.rows()] == [2] * 3
        newest = database.samples().filter(pl.col("row_id").is_in([row.row_id for row in database.rows()]))
    by_pass = newest.sort("pass_id", "layer", "iteration").select("pass_id", "layer", "iteration", "ordinal").rows()
    assert by_pass == [(number, layer, i, i) for number in (3, 4) for layer in (0, 1, 2) for i in (0, 1)]


# Interrupted


def test_an_interrupted_run_keeps_its_chunks_and_the_next_one_completes_it(bench: Bench) -> None:
    def interrupt(number: int) -> None:
        if number == 4:
            raise KeyboardInterrupt

    runner = FakeRunner(bench.recording, works_at_once=1, before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.fill(runner, num_passes=3)
    assert per_row(bench.samples()) == {2: 3, 1: 6}
    assert bench.fill(replace(runner, before=lambda number: None), num_passes=3) == Filled(9, 15, 2, 0, ())
    assert per_row(bench.samples()) == {3: 9}


# A runner that is wrong, fails, or is not what it says


def test_a_runner_that_disagrees_with_the_reference_is_refused_before_anything_is_timed(bench: Bench) -> None:
    runner = FakeRunner(bench.recording, checks=[GOOD, WRONG])
    with pytest.raises(errors.Inconsistent, match=r"relative error 1\.4") as refused:
        bench.fill(runner)
    assert refused.value.where == "runner vllm_triton_moe, iteration 0, layer 2, rank 0"
    assert runner.checked == [(2, 0, 0), (0, 2, 0)], "the smallest and the largest work, on the states that are timed"
    assert runner.passes == []
    assert bench.statuses() == []


def test_a_runner_without_a_number_for_an_output_is_refused(bench: Bench) -> None:
    with pytest.raises(errors.Inconsistent, match="relative error nan"):
        bench.fill(FakeRunner(bench.recording, checks=[replace(GOOD, relative_error=float("nan"))]))


FAILURES = [
    (MemoryError("cannot allocate 8 bytes"), "OUT_OF_MEMORY"),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "OUT_OF_MEMORY"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes"), "OUT_OF_MEMORY"),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "LAUNCH_FAILED"),
    (RuntimeError("CUDA error: invalid configuration argument"), "LAUNCH_FAILED"),
]


def failing(error: BaseException, number: int) -> Callable[[int], None]:
    def fail(seen: int) -> None:
        if seen >= number:
            raise error

    return fail


@pytest.mark.parametrize(("error", "status"), FAILURES, ids=[str(error)[:30] for error, _ in FAILURES])
def test_what_a_pass_fails_with_is_the_status_of_its_rows_in_its_own_words(
    bench: Bench, error: BaseException, status: str
) -> None:
    filled = bench.fill(FakeRunner(bench.recording, before=failing(error, 0)), num_passes=3)
    assert filled == Filled(9, 0, 0, 9, ((status, str(error)),))
    assert bench.statuses() == [(RowStatus(status), str(error))] * 9
    assert bench.samples().height == 0


def test_a_failure_ends_the_run_and_the_next_run_measures_what_failed(bench: Bench) -> None:
    runner = FakeRunner(bench.recording, works_at_once=1, before=failing(MemoryError("full"), 1))
    assert bench.fill(runner) == Filled(9, 3, 1, 6, (("OUT_OF_MEMORY", "full"),))
    assert bench.statuses() == [(RowStatus.MEASURED, None)] * 3 + [(RowStatus.OUT_OF_MEMORY, "full")] * 3
    assert bench.fill(replace(runner, before=lambda number: None)) == Filled(9, 6, 1, 0, ())
    assert bench.statuses() == [(RowStatus.MEASURED, None)] * 9


def test_a_measured_row_is_never_overwritten_by_a_failure(bench: Bench) -> None:
    bench.fill(FakeRunner(bench.recording), num_passes=2)
    before = bench.samples()
    broken = FakeRunner(bench.recording, before=failing(RuntimeError("CUDA error: unknown"), 0))
    for force, missing in ((False, 9), (True, 0)):
        filled = bench.fill(broken, num_passes=3 - force, force=force)
        assert filled == Filled(9, 0, 0, missing, (("LAUNCH_FAILED", "CUDA error: unknown"),))
        assert bench.statuses() == [(RowStatus.MEASURED, None)] * 9
        assert bench.samples().equals(before)


def test_a_kernel_that_cannot_even_be_checked_is_a_failure_of_that_row(bench: Bench) -> None:
    class Broken(FakeRunner):
        def check(self, work: Any, *, draw: int = 0) -> Any:
            if work.iteration == 0:
                raise RuntimeError("CUDA error: out of memory")
            return super().check(work, draw=draw)

    failures = (("OUT_OF_MEMORY", "CUDA error: out of memory"),)
    assert bench.fill(Broken(bench.recording), num_passes=2) == Filled(9, 12, 2, 3, failures)
    failed, measured = [(RowStatus.OUT_OF_MEMORY, "CUDA error: out of memory")] * 3, [(RowStatus.MEASURED, None)] * 6
    assert bench.statuses() == failed + measured, "each of iteration 0, in the place of the one before it, and no other"


def test_after_another_failure_of_the_first_check_nothing_is_measured(bench: Bench) -> None:
    class Broken(FakeRunner):
        def check(self, work: Any, *, draw: int = 0) -> Any:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    text = "CUDA error: an illegal memory access was encountered"
    assert bench.fill(Broken(bench.recording)) == Filled(9, 0, 0, 9, (("LAUNCH_FAILED", text),))
    assert bench.statuses() == [(RowStatus.LAUNCH_FAILED, text)]


def test_rows_that_find_no_memory_at_all_each_say_so(bench: Bench) -> None:
    class Full(FakeRunner):
        def check(self, work: Any, *, draw: int = 0) -> Any:
            raise MemoryError(f"cannot allocate for iteration {work.iteration}")

    filled = bench.fill(Full(bench.recording))
    assert filled.failures == tuple(("OUT_OF_MEMORY", f"cannot allocate for iteration {i}") for i in (2, 1, 0))
    assert (filled.num_measured, filled.num_missing) == (0, 9)
    assert [status for status, _ in bench.statuses()] == [RowStatus.OUT_OF_MEMORY] * 9


# On the command line


@pytest.fixture
def as_vllm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeRunner], Callable[..., Outcome]]:
    """``moegauge profile run --runner vllm_triton_moe`` with a runner of the test's own in its place."""

    def stand_in(runner: FakeRunner) -> Callable[..., Outcome]:
        monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: runner)
        words = ("profile", "run", "--capture", bench.capture.path, "--db", bench.db, "--runner", "vllm_triton_moe")
        return lambda *arguments: moegauge(bench.capsys, *words, *arguments)

    return stand_in


AsVllm = Callable[[FakeRunner], Callable[..., Outcome]]


def test_rows_that_remain_missing_are_status_1_and_the_error_is_shown(bench: Bench, as_vllm: AsVllm) -> None:
    run = as_vllm(FakeRunner(bench.recording, before=failing(RuntimeError("CUDA error: 719"), 1)))
    outcome = run("--passes", 1)
    assert outcome.status == 1
    assert "9 rows wanted, 3 samples added in 1 passes, 6 rows still missing" in outcome.out
    assert "LAUNCH_FAILED: CUDA error: 719" in outcome.out
    assert outcome.err == ""


def test_a_forced_run_that_fails_is_status_1_although_older_rows_are_there(bench: Bench, as_vllm: AsVllm) -> None:
    assert as_vllm(FakeRunner(bench.recording))("--passes", 1).status == 0
    run = as_vllm(FakeRunner(bench.recording, before=failing(MemoryError("full"), 0)))
    outcome = run("--passes", 1, "--force")
    assert outcome.status == 1
    assert "0 rows still missing" in outcome.out
    assert "OUT_OF_MEMORY: full" in outcome.out


def test_as_served_measures_each_iteration_as_it_was_launched(bench: Bench, as_vllm: AsVllm) -> None:
    runner = FakeRunner(bench.recording)
    assert as_vllm(runner)("--passes", 2).status == 0
    assert runner.passes == [PLACES[:3], PLACES[3:]] * 2, "passes outside, so that drift falls on both modes alike"
    with open_profile_db(bench.db) as database:
        modes = [row.key.setting.launch_mode for row in database.rows()]
    assert modes == ["eager"] * 3 + ["graph"] * 6


@pytest.mark.parametrize(
    ("arguments", "where", "found"),
    [
        (["--launch-mode", "as-served"], "torch_moe", "launch mode graph"),
        (["--launch-mode", "graph"], "torch_moe", "launch mode graph"),
        (["--co-running", 64], "torch_moe", "a co-running MLP of width 64"),
        (["--cache-state", "in_order"], "--cache-state in_order", "in truth that is warm"),
        (["--cache-state", "rotated"], "--cache-state rotated", "in truth that is warm"),
        (["--cache-state", "lukewarm"], "--cache-state", "lukewarm"),
        (["--runner", "cuda_moe"], "--runner", "cuda_moe"),
        (["--ranks", "1"], "--ranks", "[1]"),
        (["--iterations", "9"], "capture", "none of the iterations"),
        (["--iterations", "2-1"], "--iterations", "2-1"),
        (["--layers", "²"], "--layers", "²"),
        (["--passes", 0], "--passes", "0"),
        (["--weight-sets", 4], "--weight-sets", "4"),
        (["--input", "popular"], "--input", "popular"),
        (["--input", "iteration", "--sampler", "dice"], "sampler", "dice"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_request_that_cannot_be_met_is_refused_before_anything_is_measured(
    bench: Bench, arguments: list[object], where: str, found: str
) -> None:
    outcome = bench.run(*arguments)
    assert outcome.status == 2
    error = outcome.json["error"]
    assert error["code"] == "MISUSE"
    assert where in error["where"]
    assert found in error["found"]
    assert not bench.db.exists() or bench.samples().height == 0


def test_a_runner_whose_packages_are_missing_says_which(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    outcome = bench.run("--runner", "vllm_triton_moe")
    assert (outcome.status, outcome.json["error"]["where"]) == (2, "runner vllm_triton_moe")
    assert outcome.json["error"]["found"] == "no module named pynvml"
    assert "moegauge[torch]" in outcome.json["error"]["remedy"]


# A profiled pass goes through the attribution and reduction of every trace


@pytest.mark.parametrize("condition", [EAGER, GRAPH], ids=["eager", "graph"])
def test_a_profiled_pass_gives_every_work_its_own_time(bench: Bench, condition: RunCondition) -> None:
    runner = FakeRunner(bench.recording)
    assert bench.fill(runner, bench.group(condition)) == Filled(9, 9, 1, 0, ())
    assert runner.passes == [PLACES]
    samples = bench.samples().sort("iteration", "layer")
    assert samples.select("iteration", "layer").rows() == PLACES
    assert samples["busy_ns"].to_list() == [bench.recording.busy_ns(*place) for place in PLACES]
    assert samples["busy_ns"].to_list()[:3] == [46_000, 46_505, 47_010]
    assert samples["span_ns"].to_list() == [ns + 4 * 500 for ns in samples["busy_ns"]]
    assert samples["num_kernels"].to_list() == [5] * 9
    assert samples["foreign_ns"].to_list() == [0] * 9
    with open_profile_db(bench.db) as database:
        (record,) = database.passes().values()
    assert record.facts == {
        "device_uuids.before": "GPU-0",
        "device_uuids.after": "GPU-0",
        "sm_clock_mhz.before": "1980",
        "sm_clock_mhz.after": "1979",
        "event_ns.after": "77",
        "profiler_span_ns.after": str(samples["span_ns"].sum() + 9 * 500 + 8 * 10_000 - 500),
    }


def test_works_run_in_serving_order_whatever_the_order_of_the_specs(bench: Bench) -> None:
    runner = FakeRunner(bench.recording)
    bench.fill(runner, Group(specs=bench.specs()[::-1], condition=GRAPH))
    assert runner.passes == [PLACES]
    by_place = bench.samples().sort("iteration", "layer")["busy_ns"].to_list()
    assert by_place == [bench.recording.busy_ns(*place) for place in PLACES]


def test_a_chunk_holds_whole_iterations(bench: Bench) -> None:
    runner = FakeRunner(bench.recording, works_at_once=2)
    assert bench.fill(runner, bench.group(GRAPH)) == Filled(9, 9, 1, 0, ())
    assert runner.passes == [PLACES[:3], PLACES[3:6], PLACES[6:]]
    assert bench.samples()["pass_id"].unique().to_list() == [1]


def events(trace: TraceBuilder, name: str) -> list[dict[str, Any]]:
    return [event for event in trace.events if event["name"] == name]


def without_a_sum(trace: TraceBuilder) -> None:
    trace.events.remove(events(trace, NAMES["sum"])[-1])


def another_kernel(trace: TraceBuilder) -> None:
    events(trace, NAMES["act"])[0]["name"] = "void some::other_kernel<float>(float*)"


def without_an_annotation(trace: TraceBuilder) -> None:
    trace.events.remove(next(event for event in trace.events if event["name"].startswith("measured")))


@pytest.mark.parametrize("change", [without_a_sum, another_kernel, without_an_annotation])
@pytest.mark.parametrize("condition", [EAGER, GRAPH], ids=["eager", "graph"])
def test_a_pass_that_does_not_close_is_refused_and_nothing_of_it_is_kept(
    bench: Bench, condition: RunCondition, change: Callable[[TraceBuilder], None]
) -> None:
    with pytest.raises(errors.Incomplete, match="every measured invocation to close"):
        bench.fill(FakeRunner(bench.recording, change=change), bench.group(condition))
    assert bench.samples().height == 0
    assert bench.statuses() == []


def test_kernels_launched_one_by_one_are_no_graph(bench: Bench) -> None:
    class Eager(FakeRunner):
        def trace(self, works: Sequence[Any], *, graph: bool) -> TraceBuilder:
            trace = super().trace(works, graph=True)
            for event in events(trace, "cudaGraphLaunch"):
                event["name"] = "cudaLaunchKernel"
            return trace

    with pytest.raises(errors.Inconsistent, match="launch mode graph, found launch calls that show eager"):
        bench.fill(Eager(bench.recording), bench.group(GRAPH))
    assert bench.samples().height == 0
