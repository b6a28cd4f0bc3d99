"""moegauge profile run on a capture of several ranks: together where that can be, and what a ladder makes of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from cases.literal_bundle import Outcome, moegauge
from fake_ranks import EAGER, RankRunner, starts, together
from moegauge import errors
from moegauge.adapters.devices.places import Place
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs import profile_run, ranks_run
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.fill import Group, fill
from moegauge.jobs.profile_specs import EXACT, InputChoice, SpecSource
from moegauge.jobs.ranks_run import RankPlan, rank_plan
from moegauge.jobs.verify import verify
from moegauge.records.comparison import ConditionRow, LadderReport, Pair
from simulator import NAMES, Recording

PLACES = (Place(cores=(0, 1)), Place(cores=(2, 3)))
TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")


# Whether


def there_are(monkeypatch: pytest.MonkeyPatch, *places: Place) -> None:
    monkeypatch.setattr(ranks_run, "places_for", lambda num, *, on_gpu: (places, f"4 cores for {num} ranks"))


@pytest.mark.parametrize(
    ("ranks", "num_ranks", "asked", "places", "sentence"),
    [
        ([0], 1, None, PLACES, None),
        ([0], 1, False, PLACES, None),
        ([0, 1], 2, None, PLACES, "ranks ran together: rank 0 on cores 0-1, rank 1 on cores 2-3"),
        ([0, 1], 2, True, PLACES, "ranks ran together: rank 0 on cores 0-1, rank 1 on cores 2-3"),
        ([0, 1], 2, False, PLACES, "ranks ran one at a time, as asked"),
        ([0, 1], 2, None, (), "ranks ran one at a time: 4 cores for 2 ranks"),
        ([1], 2, None, PLACES, "ranks ran one at a time: rank 1 alone is wanted of 2"),
        ([0, 2], 3, None, PLACES, "ranks ran one at a time: rank 0, 2 alone is wanted of 3"),
    ],
)
def test_ranks_run_together_where_all_are_wanted_and_each_has_a_place(
    monkeypatch: pytest.MonkeyPatch,
    ranks: list[int],
    num_ranks: int,
    asked: bool | None,
    places: tuple[Place, ...],
    sentence: str | None,
) -> None:
    there_are(monkeypatch, *places)
    plan = rank_plan(ranks, num_ranks=num_ranks, runner="torch_moe", together=asked)
    run_together = sentence is not None and "together:" in sentence
    assert plan == RankPlan(dict(enumerate(places)) if run_together else {}, sentence)


@pytest.mark.parametrize(
    ("ranks", "num_ranks", "places", "found"),
    [
        ([0], 1, PLACES, "an invocation of one rank"),
        ([0, 1], 2, (), "4 cores for 2 ranks"),
        ([1], 2, PLACES, "rank 1 alone is wanted of 2"),
    ],
)
def test_together_is_refused_where_it_is_not_possible(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int], num_ranks: int, places: tuple[Place, ...], found: str
) -> None:
    there_are(monkeypatch, *places)
    with pytest.raises(errors.MisuseError) as refused:
        rank_plan(ranks, num_ranks=num_ranks, runner="torch_moe", together=True)
    assert (refused.value.where, refused.value.found) == ("--ranks-together yes", found)


@pytest.mark.parametrize(
    ("runner", "on_gpu"), [("vllm_triton_moe", True), ("torch_moe", False), ("vllm_cpu_moe", False)]
)
def test_a_runner_says_whether_ranks_need_gpus_or_cores(
    monkeypatch: pytest.MonkeyPatch, runner: str, on_gpu: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(ranks_run, "places_for", lambda num, *, on_gpu: (asked.append(on_gpu), (PLACES, ""))[1])
    rank_plan([0, 1], num_ranks=2, runner=runner, together=None)
    assert asked == [on_gpu]


# On the command line, with plain torch


@dataclass(frozen=True)
class Bench:
    """A capture of two ranks with half of the experts each, and the command line."""

    capture: CaptureFolder
    db: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: object, passes: int = 2, cache_state: str = "warm") -> Outcome:
        ways = ("--launch-mode", "eager", "--cache-state", cache_state, "--passes", passes)
        return self.profile("run", *ways, *arguments)

    def profile(self, verb: str, *arguments: object) -> Outcome:
        folders = ("--capture", self.capture.path, "--db", self.db, "--runner", "torch_moe")
        return moegauge(self.capsys, "profile", verb, *folders, *arguments)

    def samples(self) -> pl.DataFrame:
        with open_profile_db(self.db) as database:
            return database.samples()


def uneven_time(iteration: int, layer: int, rank: int, role: str) -> int:
    """Rank 0 is the longer one in layer 0 and 2, rank 1 in layer 1."""
    base = {"gemm": 20_000, "act": 3_000, "sum": 2_000}.get(role, 1_000)
    return base + (1_000 if role == "gemm" and rank == layer % 2 else 0) + 100 * iteration


def recorded(folder: Path, recording: Recording) -> CaptureFolder:
    return import_serving(recording.write(folder / "bundle"), folder / "capture")


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    capture = recorded(tmp_path, Recording(ranks=2, expert_parallel=True))
    return Bench(capture, tmp_path / "profile.db", capsys)


@TWO_CORES
def test_plain_torch_measures_two_ranks_together_each_on_cores_of_its_own(bench: Bench) -> None:
    outcome = bench.run("--json")
    assert outcome.status == 0, outcome.err
    found = outcome.json
    assert (found["num_rows"], found["num_measured"], found["num_passes"], found["num_missing"]) == (18, 36, 2, 0)
    assert found["ranks"].startswith("ranks ran together: rank 0 on cores ")
    samples = bench.samples()
    assert samples.group_by("pass_id").agg(pl.len(), pl.col("rank").n_unique()).sort("pass_id").rows() == [
        (1, 18, 2), (2, 18, 2)
    ]  # fmt: skip
    assert (samples["busy_ns"] > 0).all()
    with open_profile_db(bench.db) as database:
        record, rows = database.passes()[1], database.rows()
    cores = [record.facts[f"cores.rank{rank}.before"] for rank in (0, 1)]
    assert found["ranks"] == f"ranks ran together: rank 0 on cores {cores[0]}, rank 1 on cores {cores[1]}"
    sets = [numbers(text) for text in cores]
    assert len(sets[0]) == len(sets[1])
    assert not sets[0] & sets[1]
    assert sets[0] | sets[1] <= os.sched_getaffinity(0)
    assert [record.facts[f"threads.rank{rank}.before"] for rank in (0, 1)] == [str(len(one)) for one in sets]
    assert {row.key.setting.conditions["ranks"].value for row in rows} == {"together"}
    assert done(bench.run("--json")) == (0, 18, 0, 0, 0)
    assert done(bench.run("--ranks-together", "yes", "--json", passes=3)) == (0, 18, 18, 1, 0)


def numbers(text: str) -> set[int]:
    """Numbers out of 0-3,7."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return {number for first, *last in ends for number in range(first, (last or [first])[0] + 1)}


def done(outcome: Outcome) -> tuple[int, int, int, int, int]:
    """Exit status, rows, samples, passes, missing."""
    names = ("num_rows", "num_measured", "num_passes", "num_missing")
    return (outcome.status, *(outcome.json[name] for name in names))  # type: ignore[return-value]


@TWO_CORES
def test_rows_of_ranks_together_and_alone_are_told_apart(bench: Bench) -> None:
    assert bench.run("--ranks-together", "no").status == 0
    asked = ("--launch-mode", "eager", "--json", "--condition")

    def passes(value: str) -> set[int]:
        views = bench.profile("query", *asked, f"ranks={value}").json
        return {view["num_passes"] for view in views}

    assert (passes("alone"), passes("together")) == ({2}, {0})
    missing = bench.profile("query", *asked, "ranks=together").json
    assert {tuple(view["differs"]) for view in missing} == {("conditions.ranks",)}
    assert bench.run("--ranks-together", "yes", passes=1).status == 0
    assert (passes("alone"), passes("together")) == ({2}, {1})
    assert bench.samples().height == 36 + 18


def test_with_fewer_cores_than_ranks_they_run_one_at_a_time_and_the_run_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    outcome = bench.run(passes=1)
    assert outcome.status == 0
    assert "18 rows wanted, 18 samples added in 2 passes, 0 rows still missing" in outcome.out
    assert "ranks ran one at a time: 1 core that this process may use for 2 ranks" in outcome.out
    with open_profile_db(bench.db) as database:
        assert ["ranks" in row.key.setting.conditions for row in database.rows()] == [False] * 18


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--ranks-together", "yes"], "1 core that this process may use for 2 ranks"),
        (["--ranks-together", "yes", "--ranks", 1], "rank 1 alone is wanted of 2"),
    ],
)
def test_together_that_cannot_be_is_refused_and_nothing_is_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: list[object], found: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    outcome = bench.run(*arguments, "--json")
    assert (outcome.status, outcome.json["error"]["found"]) == (2, found)
    assert not bench.db.exists()


@TWO_CORES
def test_a_condition_that_a_rank_cannot_achieve_is_refused_before_there_is_a_database(bench: Bench) -> None:
    outcome = bench.run("--ranks-together", "yes", "--json", cache_state="in_order")
    assert (outcome.status, outcome.json["error"]["where"]) == (2, "--cache-state in_order")
    assert "in truth that is warm" in outcome.json["error"]["found"]
    assert not bench.db.exists()


def test_another_word_than_yes_or_no_is_refused(bench: Bench) -> None:
    assert bench.run("--ranks-together", "maybe").status == 2


def test_a_rank_whose_weights_find_no_memory_is_said_and_the_others_are_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, text, made = profile_run.make_runner, "CUDA out of memory. Tried to allocate 96.00 GiB", list[int]()

    def runner_of(name: str, model: object, kernel_config: object = None) -> object:
        made.append(len(made))
        if len(made) == 1:
            raise RuntimeError(text)
        return make(name, model)  # type: ignore[arg-type]

    monkeypatch.setattr(profile_run, "make_runner", runner_of)
    outcome = bench.run("--ranks-together", "no", "--json")
    assert done(outcome) == (1, 18, 18, 2, 9)
    assert outcome.json["failures"] == [["OUT_OF_MEMORY", text]]
    assert bench.samples()["rank"].unique().to_list() == [1]


# What a ladder makes of it


@dataclass(frozen=True)
class Served:
    """A capture of two ranks on two devices that have their UUIDs recorded, with passes of a fake kernel."""

    recording: Recording
    capture: CaptureFolder
    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def measure_together(self, num_passes: int = 6) -> None:
        together(self.capture, self.db, starts(self.recording, self.folder), num_passes=num_passes)

    def measure_alone(self, num_passes: int = 6) -> None:
        specs = SpecSource(self.capture).specs(InputChoice(type=EXACT))
        with open_profile_db(self.db, create=True) as database:
            for rank in (0, 1):
                group = Group(specs=[spec for spec in specs if spec.rank == rank], condition=EAGER)
                runner = AloneRunner(self.recording, rank=rank)
                fill(database, SpecSource(self.capture), runner, [group], num_passes=num_passes)

    def ladder(self, name: str = "report") -> LadderReport:
        settings = ladder_settings(launch_mode="eager")
        return align(self.capture.path, self.db, self.folder / name, settings=settings)


class AloneRunner(RankRunner):
    def run_pass(self, *arguments: object) -> object:  # type: ignore[override]
        return super(RankRunner, self).run_pass(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    class Identified(Recording):
        def meta(self) -> dict[str, object]:  # type: ignore[override]
            return super().meta() | {"device_uuids": ["GPU-0", "GPU-1"]}

    steps = [{"iter": i, "tokens": 6, "padded": 6, "graph": False} for i in range(3)]
    recording = Recording(steps=steps, ranks=2, expert_parallel=True, time=uneven_time)
    identified = Identified(**vars(recording))
    return Served(recording, recorded(tmp_path, identified), tmp_path)


def wide(report: LadderReport, rung: int) -> Pair:
    pair = report.rungs[rung - 1].capture_wide
    assert pair is not None
    return pair


def condition(report: LadderReport, name: str) -> ConditionRow:
    (row,) = [row for row in report.conditions if row.name == name]
    return row


# An invocation has 7 kernels: 4 of 1 us around 2 gemms of 20 us, act 3 us and sum 2 us, each 0.1 us longer in every
# iteration; on its longer rank the gemms take 21 us. Critical: 50 + 0.7 i us; nine invocations.
RANK_US = {"longer": 50_000, "other": 48_000}


def test_ranks_measured_together_match_what_was_served_together(served: Served) -> None:
    roles = served.recording.roles(6)
    assert (len(roles), set(roles) <= set(NAMES)) == (7, True)
    served.measure_together()
    report = served.ladder()
    assert condition(report, "ranks") == ConditionRow(name="ranks", left="together", right="together", verdict="SAME")
    uuids = condition(report, "device_uuids")
    assert (uuids.left, uuids.right, uuids.verdict) == ("GPU-0, GPU-1", "GPU-0, GPU-1", "SAME")
    pair = wide(report, 1)
    total = sum(RANK_US["longer"] + 700 * i for i in range(3)) * 3
    assert (pair.status, pair.left_ns, pair.right_ns, pair.num_passes) == ("MATCH", total, total, 6)
    assert "ranks" not in pair.reason.sentence
    assert pair.corresponding_ranks is not None
    by_layer = [("longer", "other", "longer"), ("other", "longer", "other")]
    expected = [sum(RANK_US[one] + 700 * i for i in range(3) for one in layers) for layers in by_layer]
    assert [(one.rank, one.left_ns, one.right_ns) for one in pair.corresponding_ranks] == [
        (rank, ns, ns) for rank, ns in enumerate(expected)
    ]
    rows = pl.read_parquet(served.folder / "report" / "invocation_rows.parquet")
    assert rows["right_critical_rank"].to_list() == rows["left_critical_rank"].to_list() == [0, 1, 0] * 3
    assert "ranks ran together, in processes and on devices of their own" in report.notes
    assert not any("paired by order" in note for note in report.notes)
    assert verify(served.folder / "report").differences == ()


def test_ranks_measured_alone_are_a_condition_that_differs_and_align_names_it(served: Served) -> None:
    served.measure_alone()
    report = served.ladder()
    assert condition(report, "ranks") == ConditionRow(name="ranks", left="together", right="alone", verdict="DIFFERS")
    pair = wide(report, 1)
    assert (pair.status, pair.reason.code) == ("INCONCLUSIVE", "CONDITION_DIFFERS")
    assert "ranks differs between the sides" in pair.reason.sentence.replace("device_uuids, ", "")
    assert (pair.left_ns, pair.right_ns, pair.num_passes) == (456_300, 456_300, 6)
    assert any("measured one at a time; their passes are paired by order" in note for note in report.notes)


def test_where_both_were_measured_those_together_are_compared(served: Served) -> None:
    served.measure_alone(num_passes=7)
    served.measure_together(num_passes=6)
    report = served.ladder()
    pair = wide(report, 1)
    assert (pair.status, pair.num_passes) == ("MATCH", 6)
    left_out = [(one.why, one.num) for one in pair.unmatched if one.side == "right"]
    assert left_out == [("OTHER_ROW_CHOSEN", 9)]


def test_one_rank_served_is_alone_on_both_sides(one_pass: Path, capture: CaptureFolder, tmp_path: Path) -> None:
    report = align(capture.path, one_pass, tmp_path / "report", settings=ladder_settings())
    assert condition(report, "ranks") == ConditionRow(name="ranks", left="alone", right="alone", verdict="SAME")


def test_of_imported_replays_of_several_ranks_nobody_knows_it_unless_it_is_declared(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for number, declared in enumerate(([], ["--declare", "ranks=together"])):
        db = served.folder / f"imported-{number}.db"
        paths = [served.folder / f"{number}-rank{rank}.json" for rank in (0, 1)]
        for rank, path in enumerate(paths):
            path.write_bytes(served.recording.replay(rank, offset_ns=number).data())
        done = moegauge(capsys, "profile", "import", served.capture.path, *paths, "--db", db, *declared)
        assert done.status == 0, done.err
        report = align(served.capture.path, db, served.folder / f"report-{number}", settings=ladder_settings())
        row = condition(report, "ranks")
        seen.append((row.left, row.right, row.verdict))
    assert seen == [("together", None, "NOT_RECORDED"), ("together", "together", "SAME")]
