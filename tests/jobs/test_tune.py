"""moegauge tune: what is searched, on which invocations, what wins, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cases.literal_bundle import moegauge
from fake_runner import WRONG
from fake_trials import FOUND, HEURISTIC, FakeTrials, Time, config
from moegauge import errors
from moegauge.adapters.runners.kernel_config import Config, read_kernel_config
from moegauge.adapters.runners.work import Work
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.store import read_record, write_head
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.tune import TuneChoice, tune
from moegauge.jobs.tuning_plan import candidates, places_of, search_space
from moegauge.jobs.verify import verify
from moegauge.records.identity import ModelShape
from moegauge.records.tuning import Place, Stage, TunedSize, TuningRecord
from moegauge.render.tuning_text import arm_difference
from moegauge.timing.tuned import Compared, best, difference
from simulator import Recording

BEST = config(64, stages=3)
"""In the search space of few rows, and none of the incumbents."""
QWEN = ModelShape(hidden_size=2048, intermediate_size=768, num_experts=128, top_k=8)


class Bench:
    """A capture of 18 layers: two iterations of 6 rows, and one of 3."""

    def __init__(self, folder: Path) -> None:
        rows = (6, 6, 3)
        steps = [{"iter": i, "tokens": n, "padded": n, "reqs": 1, "graph": False} for i, n in enumerate(rows)]
        recording = Recording(steps=steps, layers=tuple(range(18)))
        self.capture: CaptureFolder = import_serving(recording.write(folder / "bundle"), folder / "capture")
        self.out = folder / "tuned"
        self.trials = FakeTrials(lambda work, config, number: 100)

    def tune(self, time: Time, **choice: Any) -> TuningRecord:
        self.trials.time = time
        asked = TuneChoice(**{"kind": "vllm_triton_moe", "num_invocations": 6} | choice)
        return tune(self.capture.path, self.out, asked, make=lambda name, model: self.trials)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fastest(*best_first: Config, step: int = 10) -> Time:
    """Configurations in order of speed, 100 ns for each row and up; every other takes twice as long."""

    def time(work: Work, config: Config, number: int) -> int:
        place = next((place for place, one in enumerate(best_first) if one == config), 10)
        return (100 + step * place) * len(work.topk_ids)

    return time


def of_rows(record: TuningRecord, rows: int) -> TunedSize:
    return next(one for one in record.sizes if one.executed_rows == rows)


def config_of(size: TunedSize, arm: str) -> Config:
    return size.candidates[size.arms[arm]].config


# what wins, and what is written


def test_the_fastest_configuration_is_written_as_vllm_reads_it_under_the_name_vllm_looks_for(bench: Bench) -> None:
    record = bench.tune(fastest(BEST, FOUND))
    name = "E=8,N=32,device_name=Simulated_GPU.json"
    assert {path.relative_to(bench.out).as_posix() for path in bench.out.rglob("*.json")} == {
        "tuning.json", f"found/{name}", f"default/{name}", f"served/{name}",
    }  # fmt: skip
    written = read_kernel_config(bench.out / "served" / name)
    assert written.by_rows == {3: BEST, 6: BEST}
    assert written.digest == record.files[f"served/{name}"]
    assert json.loads((bench.out / "default" / name).read_text()) == {"3": HEURISTIC, "6": HEURISTIC}
    assert read_record(bench.out / "tuning.json", TuningRecord) == record


def test_every_candidate_is_kept_with_every_time_of_it(bench: Bench) -> None:
    size = of_rows(bench.tune(fastest(BEST)), 6)
    assert [one.config for one in size.candidates[:2]] == [FOUND, HEURISTIC]
    assert len(size.candidates) == 34  # both incumbents are among the 34 of the space
    search = size.trials[0]
    assert np.array(search.busy_ns).shape == (3, 34, 6)
    assert sorted(search.candidates) == list(range(34))
    times = {index: np.unique(np.array(search.busy_ns)[:, index]).tolist() for index in search.candidates}
    assert times[size.arms["served"]] == [600]
    assert [one for index, one in times.items() if index != size.arms["served"]] == [[1200]] * 33


def test_incumbents_are_in_the_finals_so_that_a_worse_winner_cannot_be_written(bench: Bench) -> None:
    # In the search the winner looks fast; in every later pass it is slow.
    def time(work: Work, config: Config, number: int) -> int:
        quick = config == FOUND if number > 3 else config not in (FOUND, HEURISTIC)
        return 100 if quick else 300

    record = bench.tune(time)
    assert config_of(of_rows(record, 6), "served") == FOUND
    assert arm_difference(record.sizes, "found", "served").ratio == 0.0


def test_the_gain_is_that_on_invocations_which_chose_nothing(bench: Bench) -> None:
    # Every candidate but FOUND is 100 ns by luck on one layer; BEST wins where there is no luck, by 10 %.
    def time(work: Work, config: Config, number: int) -> int:
        lucky = number <= 3 and config["BLOCK_SIZE_N"] == 64
        return 10 if lucky else 900 if config == BEST else 1000

    record = bench.tune(time)
    assert config_of(of_rows(record, 3), "served") == BEST
    found = arm_difference(record.sizes, "found", "served")
    assert found.ratio == pytest.approx(-0.1)
    assert found.interval == pytest.approx((-0.1, -0.1))


def test_each_size_weighs_as_many_invocations_as_were_served(bench: Bench) -> None:
    # 36 invocations of 6 rows and 18 of 3; BEST halves the time of 3 rows alone.
    def time(work: Work, config: Config, number: int) -> int:
        return 500 if config == BEST and len(work.topk_ids) == 3 else 1000

    record = bench.tune(time)
    assert [(one.executed_rows, one.num_served) for one in record.sizes] == [(3, 18), (6, 36)]
    found = arm_difference(record.sizes, "found", "served")
    assert (found.base_ns, found.head_ns) == (54_000.0, 45_000.0)
    assert found.ratio == pytest.approx(-1 / 6)


def test_a_search_under_uniform_routing_is_judged_under_served_routing(bench: Bench) -> None:
    ids = bench.capture.routed_inputs.sort("iteration", "layer", "row")["topk_ids"].to_numpy()
    known = {ids[first : first + 6].astype(np.int32).tobytes() for first in range(0, 216, 6)}

    def time(work: Work, config: Config, number: int) -> int:
        mine = work.topk_ids.tobytes() in known or len(work.topk_ids) == 3
        return 100 if config == (BEST if mine else HEURISTIC) else 200

    record = bench.tune(time, routings=("served", "uniform"))
    size = of_rows(record, 6)
    assert config_of(size, "served") == BEST
    assert config_of(size, "uniform") == HEURISTIC
    assert [(one.stage, one.routing) for one in size.trials] == [
        ("search", "served"), ("finals", "served"), ("search", "uniform"), ("finals", "uniform"),
        ("verdict", "served"),
    ]  # fmt: skip
    assert arm_difference([size], "uniform", "served").ratio == pytest.approx(-0.5)


# verification


def verified(out: Path, change: Callable[[dict[str, Any]], None] = lambda record: None) -> tuple[str, ...]:
    """What verify finds in a folder whose record was changed, and whose head digest was refreshed."""
    record = json.loads((out / "tuning.json").read_text())
    change(record)
    for path in out.glob("tuning.json*"):
        path.unlink()
    write_head(out, "tuning.json", msgspec.convert(record, TuningRecord))
    return verify(out).differences


def test_choices_and_files_follow_from_the_times(bench: Bench) -> None:
    bench.tune(fastest(BEST), routings=("served", "uniform"))
    found = verify(bench.out)
    # Each of 2 sizes on 6 places: 3 x 34 and 5 x 4 times under each routing, and 7 x 3 of the three arms that differ.
    assert found.kind == "tuning"
    assert found.differences == ()
    assert found.checked == ("2 numbers of rows from 3180 raw times (no trace kept)", "4 files")


def test_a_faster_time_that_was_written_in_changes_the_winner(bench: Bench) -> None:
    bench.tune(fastest(BEST, FOUND))

    def change(record: dict[str, Any]) -> None:
        for one in record["sizes"][0]["trials"][1]["busy_ns"]:
            one[-1] = [1] * len(one[-1])

    assert any(line.startswith("3 rows, arm served: recorded") for line in verified(bench.out, change))


def test_a_file_that_was_changed_differs_from_what_the_times_lead_to(bench: Bench) -> None:
    bench.tune(fastest(BEST))
    path = next((bench.out / "served").iterdir())
    path.write_text(path.read_text().replace('"num_stages": 3', '"num_stages": 4'))
    (difference,) = verified(bench.out)
    assert difference.startswith(f"served/{path.name}: recorded sha256:")


def test_an_invocation_that_chose_and_judges_is_found(bench: Bench) -> None:
    bench.tune(fastest(BEST))

    def change(record: dict[str, Any]) -> None:
        trials = record["sizes"][1]["trials"]
        trials[2]["places"][0] = trials[0]["places"][0]

    assert verified(bench.out, change) == ("6 rows, invocations of the three stages: recorded 18, derived 17",)


# what is run


def test_no_invocation_serves_two_stages_and_each_stage_has_as_many_layers_as_it_can(bench: Bench) -> None:
    for size in bench.tune(fastest(BEST), routings=("served", "uniform")).sizes:
        by_stage = {one.stage: one.places for one in size.trials}
        assert [len(by_stage[stage]) for stage in Stage] == [6, 6, 6]
        every = [place for places in by_stage.values() for place in places]
        assert len(set(every)) == 18
        assert all(len({place.layer for place in places}) == 6 for places in by_stage.values())


def test_in_a_pass_every_candidate_runs_on_every_invocation_once_and_in_another_order_than_before(bench: Bench) -> None:
    bench.tune(fastest(BEST))
    first, second = bench.trials.passes[:2]
    key = [(work.layer, len(work.topk_ids), tuple(config.items())) for work, config in first]
    other = [(work.layer, len(work.topk_ids), tuple(config.items())) for work, config in second]
    assert len(key) == 2 * 34 * 6
    assert sorted(key) == sorted(other)
    assert key != other
    assert [work.iteration for work, _ in first] == list(range(408))
    assert all(one[0].layer != following[0].layer for one, following in pairwise(first))


def test_passes_are_three_for_the_search_five_for_the_finals_and_those_asked_for(bench: Bench) -> None:
    four = (BEST, config(64), config(64, stages=4), config(64, stages=5))  # the fifth of the finals is FOUND
    size = of_rows(bench.tune(fastest(*four), num_passes=4), 3)
    assert [(one.stage, len(one.busy_ns), len(one.candidates)) for one in size.trials] == [
        ("search", 3, 34), ("finals", 5, 5), ("verdict", 4, 3),
    ]  # fmt: skip


def test_every_candidate_is_checked_on_states_that_no_timed_call_sees(bench: Bench) -> None:
    bench.tune(fastest(BEST), num_processes=3)
    assert [draw for _, _, draw in bench.trials.checked] == [1] * 68
    assert bench.trials.compiled == [(68, 3)]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (WRONG, "relative error 1.4, bound 0.02"),
        (RuntimeError("OutOfResources: out of resource: shared memory"), "OutOfResources: out of resource"),
    ],
)
def test_what_is_wrong_or_does_not_run_is_named_and_never_timed(bench: Bench, found: Any, why: str) -> None:
    bench.trials.checks[64] = found
    size = of_rows(bench.tune(fastest(BEST, FOUND)), 6)
    refused = [one for one in size.candidates if one.refused is not None]
    assert {one.config["BLOCK_SIZE_N"] for one in refused} == {64}
    assert all(why in (one.refused or "") for one in refused)
    assert config_of(size, "served") == FOUND
    assert {config["BLOCK_SIZE_N"] for _, config in bench.trials.passes[0]} == {32, 128}


def test_an_incumbent_that_is_wrong_ends_the_search(bench: Bench) -> None:
    bench.trials.checks[32] = WRONG
    with pytest.raises(errors.Inconsistent, match="an incumbent"):
        bench.tune(fastest(BEST))
    assert not bench.out.exists()


def test_a_device_that_fails_in_a_pass_ends_the_search_and_nothing_is_written(bench: Bench) -> None:
    def time(work: Work, config: Config, number: int) -> int:
        if number == 5:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return 100

    with pytest.raises(errors.Incomplete, match="illegal memory access"):
        bench.tune(time)
    assert not bench.out.exists()


def test_numbers_of_rows_that_are_left_out_are_listed_with_their_weight(bench: Bench) -> None:
    record = bench.tune(fastest(BEST), rows=frozenset({6}))
    assert [one.executed_rows for one in record.sizes] == [6]
    assert [(one.executed_rows, one.num_served, one.why) for one in record.left_out] == [(3, 18, "not among --rows")]
    bench.out = bench.out.with_name("other")
    with pytest.raises(errors.MisuseError, match=r"out of \[3, 6\]"):
        bench.tune(fastest(BEST), rows=frozenset({7}))


# the plan


@pytest.mark.parametrize(
    ("rows", "blocks"), [(1, {16}), (16, {16}), (24, {16, 32}), (659, {32, 64, 128}), (4096, {128})]
)
def test_blocks_of_rows_lie_between_half_the_mean_rows_of_an_expert_and_all_rows(rows: int, blocks: set[int]) -> None:
    # 659 rows x 8 of 128 experts: 41 rows an expert, 64 as a power of two.
    assert {one["BLOCK_SIZE_M"] for one in search_space(rows, QWEN, "bfloat16")} == blocks


def test_the_space_of_few_rows_is_the_product_of_its_values_less_what_needs_too_much_shared_memory() -> None:
    space = search_space(8, QWEN, "bfloat16")
    # 3 x 3 x 4 values; K 256, N 128 in 4 and 5 stages needs 294912 and 368640 bytes of the 232448.
    assert len(space) == 34
    assert {"BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 256, "num_stages": 3}.items() <= space[-1].items()
    assert {one["num_warps"] for one in space} == {4}
    assert {one["num_warps"] for one in search_space(4096, QWEN, "bfloat16") if one["BLOCK_SIZE_N"] >= 128} == {8}


def test_weights_in_blocks_are_read_a_block_at_a_time() -> None:
    assert {one["BLOCK_SIZE_K"] for one in search_space(1024, QWEN, "fp8_w8a8_block")} == {128}


def test_incumbents_come_first_and_nothing_stands_twice() -> None:
    space = [config(32, stages=5), config(64)]
    assert candidates(FOUND | {"SPLIT_K": 1}, FOUND, space) == [FOUND, config(64)]


def test_fewer_than_three_invocations_are_not_tuned_on() -> None:
    places = [Place(iteration=0, layer=layer) for layer in range(5)]
    assert places_of(places[:2], 8, 0) is None
    assert [len(one) for one in (places_of(places, 8, 0) or {}).values()] == [1, 1, 1]


# arithmetic


def test_one_disturbed_pass_does_not_decide() -> None:
    quiet, disturbed = [[100, 100], [110, 110]], [[9000, 9000], [110, 110]]
    assert best([7, 3], np.array([quiet, disturbed, quiet])) == [7]
    assert best([7, 3], np.array([quiet] * 3), 2) == [7, 3]


def test_an_interval_holds_what_passes_and_places_leave_open() -> None:
    generator = np.random.default_rng(0)
    drift = generator.normal(0.0, 30.0, size=(7, 1))
    base = (1000 + drift + generator.normal(0.0, 20.0, size=(1, 8))).round().astype(np.int64)
    head = (base * 0.95 + generator.normal(0.0, 5.0, size=base.shape)).round().astype(np.int64)
    found = difference([Compared(10, base, head), Compared(3, 2 * base, 2 * head)])
    assert found.interval is not None
    low, high = found.interval
    assert low < -0.05 < high
    assert high - low < 0.01


def test_five_passes_or_five_places_have_no_interval() -> None:
    times = np.full((7, 8), 100, dtype=np.int64)
    assert difference([Compared(1, times, times)]).interval == (0.0, 0.0)
    assert difference([Compared(1, times[:5], times[:5])]).interval is None
    assert difference([Compared(1, times, times), Compared(1, times[:, :5], times[:, :5])]).interval is None


# the command line


@pytest.fixture
def refused(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object) -> str:
        outcome = moegauge(capsys, "tune", bench.capture.path, "--out", bench.out, "--json", *arguments)
        assert outcome.status == 2
        assert not bench.out.exists()
        return str(outcome.json["error"]["where"])

    return run


def test_what_makes_no_sense_is_refused_before_anything_runs(refused: Callable[..., str]) -> None:
    assert refused("--kind", "torch_moe") == "--kind"
    assert refused("--kind", "nothing") == "--runner"
    assert refused("--kind", "vllm_triton_moe", "--search", "skewed") == "--search"
    assert refused("--kind", "vllm_triton_moe", "--passes", "0") == "--passes"


def test_tables_name_every_arm_with_its_difference(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console  # noqa: PLC0415 - for this test alone

    from moegauge.render.tuning_text import show_tuning  # noqa: PLC0415

    show_tuning(Console(width=160), bench.tune(fastest(BEST, FOUND, HEURISTIC), routings=("served", "uniform")))
    shown = capsys.readouterr().out
    # Means of 6 rows: 600, 660 and 720 ns; 18 x 3 + 36 x 6 = 270 rows served.
    assert "16 64 64 1 4 3" in shown
    assert "served (searched under served routing): 27.000 µs as served, -9.09% [-9.09%, -9.09%] against found" in shown
    assert (
        "default (vLLM's heuristic, no tuned file): 32.400 µs as served, +9.09% [+9.09%, +9.09%] against found" in shown
    )
    assert "served against uniform: +0.00% [+0.00%, +0.00%]" in shown
