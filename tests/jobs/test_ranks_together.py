"""Ranks of an invocation in processes of their own: they start together, and a pass is there on all of them or not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import polars as pl
import pytest

from fake_ranks import EAGER, Step, starts, together, two_ranks
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import RunCondition
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.fill import Filled, Group
from moegauge.jobs.kernel_failure import KernelFailed
from moegauge.jobs.profile_specs import EXACT, ITERATION, InputChoice, Spec, SpecSource
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile import PassRecord, RowStatus
from simulator import Recording

GRAPH = RunCondition(launch_mode=LaunchMode.GRAPH, cache_state="in_order")
PLACES = [(iteration, layer) for iteration in (0, 1, 2) for layer in (0, 1, 2)]
NUM_ROWS = 18
"""Nine invocations, a row on each of two ranks."""


@dataclass(frozen=True)
class Bench:
    """A capture of two ranks with half of the experts each, and a database beside it."""

    recording: Recording
    capture: CaptureFolder
    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def fill(
        self,
        *groups: Group,
        fault: str | None = None,
        num_passes: int = 1,
        works_at_once: int = 4096,
        force: bool = False,
    ) -> Filled:
        """Fill with all ranks at once; whatever comes of it, no process is left."""
        ranks = starts(self.recording, self.folder, fault=fault, works_at_once=works_at_once)
        try:
            return together(self.capture, self.db, ranks, *groups, num_passes=num_passes, force=force)
        finally:
            pids = [int(path.read_text()) for path in self.folder.glob("rank*.pid")]
            assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
            assert pids

    def specs(self, kind: str = EXACT, sampler: str = "counts_exact") -> list[Spec]:
        return SpecSource(self.capture).specs(InputChoice(type=kind, sampler=sampler))

    def samples(self) -> pl.DataFrame:
        with open_profile_db(self.db) as database:
            return database.samples()

    def passes(self) -> dict[int, PassRecord]:
        with open_profile_db(self.db) as database:
            return database.passes()

    def statuses(self) -> dict[tuple[str, str | None], int]:
        with open_profile_db(self.db) as database:
            found = [(str(row.status), row.error) for row in database.rows()]
        return {one: found.count(one) for one in found}

    def steps(self) -> dict[int, list[Step]]:
        """Steps of the last process of each rank, in order."""
        return {
            rank: msgspec.json.decode((self.folder / f"rank{rank}.steps").read_bytes(), type=list[Step])
            for rank in range(self.recording.ranks)
        }


def bench_of(recording: Recording, folder: Path) -> Bench:
    return Bench(recording, import_serving(recording.write(folder / "bundle"), folder / "capture"), folder)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_of(two_ranks(), tmp_path)


def whole_passes(samples: pl.DataFrame) -> int:
    """Number of passes, after checking that each holds every invocation once on both ranks."""
    by_pass = samples.sort("iteration", "layer").group_by("pass_id", "rank").agg(pl.struct("iteration", "layer"))
    assert [[tuple(place.values()) for place in places] for places in by_pass["iteration"]] == [PLACES] * by_pass.height
    assert by_pass.group_by("pass_id").agg(pl.col("rank").sort())["rank"].to_list() == [[0, 1]] * (by_pass.height // 2)
    assert samples["ordinal"].unique().to_list() in ([], [0])
    return by_pass.height // 2


# Together


def test_ranks_begin_every_invocation_together_and_none_goes_on_before_all_are_done(bench: Bench) -> None:
    assert bench.fill(num_passes=2) == Filled(NUM_ROWS, 36, 2, 0, ())
    steps = bench.steps()
    assert [[(one.iteration, one.layer) for one in ones] for ones in steps.values()] == [PLACES * 2] * 2
    of_ranks = list(zip(*steps.values(), strict=True))
    for ones in of_ranks:
        assert max(one.came for one in ones) <= min(one.began for one in ones), "all are there before one begins"
        assert max(one.ended for one in ones) <= min(one.left for one in ones), "all are done before one goes on"
        first, second = ones
        assert first.came < second.left
        assert second.came < first.left
    for before, after in pairwise(of_ranks):
        assert max(one.ended for one in before) < min(one.began for one in after)


def test_in_graphs_ranks_begin_every_iteration_together(bench: Bench) -> None:
    assert bench.fill(Group(specs=bench.specs(), condition=GRAPH)) == Filled(NUM_ROWS, 18, 1, 0, ())
    of_ranks = list(zip(*bench.steps().values(), strict=True))
    assert [one.iteration for one, _ in of_ranks] == [0, 1, 2]
    for ones in of_ranks:
        assert max(one.came for one in ones) <= min(one.began for one in ones)
        assert max(one.ended for one in ones) <= min(one.left for one in ones)


def test_every_rank_gives_its_own_times_and_all_of_a_pass_is_one_pass(bench: Bench) -> None:
    bench.fill(num_passes=2, works_at_once=3)
    samples = bench.samples().sort("pass_id", "rank", "iteration", "layer")
    assert whole_passes(samples) == 2
    expected = [bench.recording.busy_ns(*place, rank) for rank in (0, 1) for place in PLACES]
    assert samples["busy_ns"].to_list() == expected * 2
    assert expected[:2] + expected[9:11] == [48_000, 48_707, 48_091, 48_798]
    with open_profile_db(bench.db) as database:
        conditions = [row.key.setting.conditions for row in database.rows()]
    assert [one["ranks"].value for one in conditions] == ["together"] * NUM_ROWS
    assert [one["ranks"].source for one in conditions] == ["trace"] * NUM_ROWS


def test_what_was_read_around_a_pass_is_kept_for_each_rank(bench: Bench) -> None:
    bench.fill(works_at_once=3)
    (record,) = bench.passes().values()
    assert record.facts == {
        "device_uuids.rank0.before": "GPU-0",
        "device_uuids.rank0.after": "GPU-0",
        "device_uuids.rank1.before": "GPU-1",
        "device_uuids.rank1.after": "GPU-1",
        "sm_clock_mhz.rank0.before": "1980",
        "sm_clock_mhz.rank0.after": "1977",
        "sm_clock_mhz.rank1.before": "1970",
        "sm_clock_mhz.rank1.after": "1967",
        "event_ns.rank0.after": str(3 * 77),
        "event_ns.rank1.after": str(3 * 77),
        "profiler_span_ns.rank0.after": record.facts["profiler_span_ns.rank0.after"],
        "profiler_span_ns.rank1.after": record.facts["profiler_span_ns.rank1.after"],
    }
    assert (record.source, record.capture_digest) == ("run", bench.capture.raw_digest)


def test_only_what_lacks_is_measured_and_always_on_all_ranks(bench: Bench) -> None:
    first = [spec for spec in bench.specs() if spec.iteration == 0]
    assert bench.fill(Group(specs=first, condition=EAGER), num_passes=2) == Filled(6, 12, 2, 0, ())
    assert bench.fill(num_passes=2) == Filled(NUM_ROWS, 24, 2, 0, ())
    assert bench.fill(num_passes=2) == Filled(NUM_ROWS, 0, 0, 0, ())
    counted = bench.samples().group_by("pass_id", "iteration").agg(pl.col("rank").n_unique())
    assert counted["rank"].to_list() == [2] * counted.height
    assert counted.group_by("iteration").len()["len"].to_list() == [2, 2, 2]


def test_force_measures_all_ranks_again_as_one_new_generation(bench: Bench) -> None:
    groups = [Group(specs=bench.specs(ITERATION, one), condition=EAGER) for one in ("counts_exact", "systematic")]
    first = bench.fill(*groups, num_passes=2)
    assert bench.fill(*groups, num_passes=2, force=True) == first
    assert first.num_missing == 0
    with open_profile_db(bench.db) as database:
        assert {row.generation for row in database.rows()} == {2}
        assert set(database.num_samples().values()) == {2}


def test_a_row_of_one_rank_that_two_groups_run_is_forced_into_one_new_generation(bench: Bench) -> None:
    first, other = ([spec for spec in bench.specs(kind) if spec.iteration == 0] for kind in (EXACT, ITERATION))
    mixed = [spec for spec in first if spec.rank == 0] + [spec for spec in other if spec.rank == 1]
    groups = [Group(specs=specs, condition=EAGER) for specs in (first, mixed)]
    for _ in range(2):
        assert bench.fill(*groups, num_passes=2, force=True) == Filled(9, 24, 4, 0, ())
    with open_profile_db(bench.db) as database:
        rows, have = database.rows(), list(database.num_samples().values())
    assert [row.generation for row in rows] == [2] * 9
    assert sorted(have) == [2] * 6 + [4] * 3, "rank 0 ran beside either input of rank 1"


@pytest.mark.parametrize("condition", [EAGER, GRAPH], ids=["eager", "graph"])
def test_a_rank_without_work_is_not_waited_for(bench: Bench, condition: RunCondition) -> None:
    absent = {(1, 0), (1, 1), (1, 2), (2, 0)}
    here = [spec for spec in bench.specs() if spec.rank == 0 or (spec.iteration, spec.layer) not in absent]
    here = [spec for spec in here if (spec.rank, spec.iteration) != (0, 2)]
    assert bench.fill(Group(specs=here, condition=condition), num_passes=2, works_at_once=3) == Filled(11, 22, 2, 0, ())
    places = bench.samples().group_by("rank", "iteration").len().sort("rank", "iteration").rows()
    assert places == [(0, 0, 6), (0, 1, 6), (1, 0, 6), (1, 2, 4)]


def test_ranks_with_the_same_input_and_experts_share_a_row_and_keep_their_samples_apart(tmp_path: Path) -> None:
    bench = bench_of(Recording(ranks=2), tmp_path)
    assert bench.fill(num_passes=2) == Filled(9, 36, 2, 0, ())
    samples = bench.samples().sort("pass_id", "iteration", "layer", "rank")
    assert samples["rank"].to_list() == [0, 1] * 18
    assert samples["ordinal"].to_list() == [0, 1] * 18
    assert samples["busy_ns"].to_list()[:2] == [bench.recording.busy_ns(0, 0, rank) for rank in (0, 1)]


# What fails on one rank fails on all


def test_a_rank_that_is_killed_fails_the_pass_for_all_ranks_and_nothing_of_it_is_kept(bench: Bench) -> None:
    text = "the process of rank 1 was ended by SIGKILL"
    assert bench.fill(fault="killed", num_passes=3) == Filled(NUM_ROWS, 18, 1, 18, (("LAUNCH_FAILED", text),))
    assert whole_passes(bench.samples()) == 1
    assert bench.statuses() == {("MEASURED", None): NUM_ROWS}
    assert bench.fill(num_passes=3) == Filled(NUM_ROWS, 36, 2, 0, ())
    assert whole_passes(bench.samples()) == 3


def test_a_rank_that_is_killed_before_anything_is_written_is_the_status_of_the_rows_on_all_ranks(bench: Bench) -> None:
    first = [spec for spec in bench.specs() if spec.iteration == 1]
    filled = bench.fill(Group(specs=first, condition=EAGER), Group(specs=first, condition=GRAPH), fault="killed")
    text = "the process of rank 1 was ended by SIGKILL"
    assert filled == Filled(12, 6, 1, 6, (("LAUNCH_FAILED", text),))
    assert bench.statuses() == {("MEASURED", None): 6, ("LAUNCH_FAILED", text): 6}


def test_a_rank_that_runs_out_of_memory_fails_the_pass_in_its_own_words(bench: Bench) -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB"
    filled = bench.fill(fault="out of memory", num_passes=2, works_at_once=3)
    # the second run_pass is the second chunk of the first pass: iteration 1
    assert filled == Filled(NUM_ROWS, 0, 0, NUM_ROWS, (("OUT_OF_MEMORY", text),))
    assert bench.statuses() == {("OUT_OF_MEMORY", text): 6}
    assert bench.samples().height == 0


def test_a_defect_of_a_runner_ends_its_rank_and_is_said(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    text = "the process of rank 1 ended with status 1"
    assert bench.fill(fault="defect") == Filled(NUM_ROWS, 0, 0, NUM_ROWS, (("LAUNCH_FAILED", text),))
    assert "TypeError: a defect of the runner" in capfd.readouterr().err


def test_weights_that_find_no_memory_on_a_rank_are_said_in_its_own_words(bench: Bench) -> None:
    with pytest.raises(KernelFailed, match="cannot allocate the weights") as failed:
        bench.fill(fault="no memory for weights")
    assert failed.value.status == RowStatus.OUT_OF_MEMORY
    assert not bench.db.exists()


def test_an_invocation_that_finds_no_memory_on_one_rank_is_left_out_on_all_and_the_others_are_measured(
    bench: Bench,
) -> None:
    text = "cannot allocate 8 bytes"
    filled = bench.fill(fault="no memory for iteration 0", num_passes=2)
    assert filled == Filled(NUM_ROWS, 24, 2, 6, (("OUT_OF_MEMORY", text),))
    assert bench.statuses() == {("OUT_OF_MEMORY", text): 6, ("MEASURED", None): 12}


def test_an_output_that_is_wrong_on_one_rank_is_refused_before_anything_is_timed(bench: Bench) -> None:
    with pytest.raises(errors.Inconsistent, match=r"relative error 1\.4") as refused:
        bench.fill(fault="wrong at first")
    assert refused.value.where == "runner vllm_triton_moe, iteration 2, layer 0, rank 1"
    assert bench.samples().height == 0
    assert bench.statuses() == {}


def test_an_output_that_turns_wrong_on_one_rank_spoils_what_all_ranks_measured(bench: Bench) -> None:
    with pytest.raises(errors.Inconsistent, match=r"relative error 1\.4") as refused:
        bench.fill(fault="wrong after the second pass", num_passes=3)
    assert bench.statuses() == {("WRONG_OUTPUT", str(refused.value)): NUM_ROWS}
    assert whole_passes(bench.samples()) == 1
    with open_profile_db(bench.db) as database:
        assert set(database.num_samples().values()) == {0}


def test_ids_that_a_runner_writes_to_on_one_rank_are_noticed(bench: Bench) -> None:
    with pytest.raises(errors.Inconsistent, match="expected routed ids routed-ids-v1") as refused:
        bench.fill(fault="rewrites ids")
    assert refused.value.where == "iteration 0, layer 0, rank 1"
    assert bench.samples().height == 0


def test_ranks_that_were_launched_in_different_ways_are_refused(bench: Bench) -> None:
    halves = [[spec for spec in bench.specs() if spec.rank == rank] for rank in (0, 1)]
    with pytest.raises(errors.MisuseError, match="iteration 0: eager on rank 0, graph on rank 1"):
        bench.fill(Group(specs=halves[0], condition=EAGER), Group(specs=halves[1], condition=GRAPH))
    assert not bench.db.exists()
