"""The runner vllm_cpu_moe, on vLLM's own operation: against float64, and through ``moegauge profile run``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from vllm._custom_ops import cpu_prepack_moe_weight

from cases.literal_bundle import moegauge
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.registry import runner_identity
from moegauge.adapters.runners.torch_moe import Inputs, TorchMoeRunner
from moegauge.adapters.runners.vllm_cpu_moe import VllmCpuMoeRunner
from moegauge.adapters.runners.work import ModelSpec, RunCondition, Work
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile import RowStatus
from simulator import Recording

WARM = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="warm")
SHAPE = ModelShape(hidden_size=256, intermediate_size=96, num_experts=16, top_k=4)


def model(shape: ModelShape = SHAPE, numeric_format: str = "bfloat16") -> ModelSpec:
    return ModelSpec(
        shape=shape, num_local_experts=shape.num_experts, numeric_format=numeric_format, layers=(0, 1),
        num_weight_sets=2, seed=0,
    )  # fmt: skip


def work(rows: int, *, layer: int = 0, ids: Sequence[Sequence[int]] = (), with_map: bool = False) -> Work:
    """Distinct experts and uneven weights in every row, unless ids are given."""
    rng = np.random.default_rng(rows)
    drawn = [rng.permutation(SHAPE.num_experts)[: SHAPE.top_k] for _ in range(rows)]
    topk_ids = np.array(ids if len(ids) else drawn, dtype=np.int32)
    return Work(
        iteration=3, layer=layer, rank=0, topk_ids=topk_ids,
        topk_weights=rng.random(topk_ids.shape, dtype=np.float32),
        expert_map=np.arange(SHAPE.num_experts, dtype=np.int32) if with_map else None,
    )  # fmt: skip


@pytest.mark.parametrize("numeric_format", ["bfloat16", "float32"])
@pytest.mark.parametrize("rows", [1, 8, 101])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_operation_agrees_with_float64(rows: int, layer: int, numeric_format: str) -> None:
    runner = VllmCpuMoeRunner(model(numeric_format=numeric_format))
    for draw in (0, 1):
        checked = runner.check(work(rows, layer=layer), draw=draw)
        assert checked.passed
        assert 0 < checked.relative_error < checked.bound


def test_it_is_not_plain_torch_that_was_checked() -> None:
    one = work(8)
    given = VllmCpuMoeRunner(model()).weights.inputs(one)
    ours, plain = (kind(model())._call(one, given)() for kind in (VllmCpuMoeRunner, TorchMoeRunner))
    assert ours.shape == plain.shape
    assert not torch.equal(ours, plain)


def test_weights_of_another_layer_are_found_out() -> None:
    runner = VllmCpuMoeRunner(model())
    runner._packed.reverse()
    assert not runner.check(work(8)).passed


def test_gate_and_up_exchanged_are_found_out() -> None:
    runner = VllmCpuMoeRunner(model())
    gate, up = runner.weights.w13[0].chunk(2, dim=1)
    exchanged = torch.cat((up, gate), dim=1)
    runner._packed[0] = (cpu_prepack_moe_weight(exchanged, runner.instruction_set), runner._packed[0][1])
    assert not runner.check(work(8)).passed


def test_a_row_that_the_operation_leaves_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is filled with NaN beforehand, so nothing that lay there can pass for a result."""
    runner = VllmCpuMoeRunner(model())
    right: Callable[[Work, Inputs], Callable[[], torch.Tensor]] = runner._call

    def all_but_the_last(one: Work, given: Inputs) -> Callable[[], torch.Tensor]:
        rows = len(one.topk_ids) - 1
        fewer = Inputs(given.hidden_states[:rows], given.topk_ids[:rows], given.topk_weights[:rows])
        short = right(one, fewer)
        output = torch.full_like(given.hidden_states, float("nan"))

        def call() -> torch.Tensor:
            output[:rows] = short()
            return output

        return call

    monkeypatch.setattr(runner, "_call", all_but_the_last)
    assert not runner.check(work(8)).passed


@pytest.mark.parametrize(
    ("refused", "found"),
    [(work(2, with_map=True), "an expert map"), (work(1, ids=[[0, 1, 2, -1]]), "a routed id below 0")],
)
def test_what_would_read_outside_the_weights_is_refused(refused: Work, found: str) -> None:
    runner = VllmCpuMoeRunner(model())
    for attempt in (
        lambda: runner.check(refused),
        lambda: runner.run_pass([refused], WARM),
        lambda: runner.facts(WARM, [work(2), refused]),
    ):
        with pytest.raises(errors.MisuseError) as caught:
            attempt()
        assert caught.value.found == found
        assert caught.value.where == "vllm_cpu_moe, iteration 3, layer 0, rank 0"


@pytest.mark.parametrize(("hidden", "intermediate", "name"), [(250, 96, "hidden size"), (256, 90, "intermediate size")])
def test_a_size_that_the_operation_does_not_take_is_refused(hidden: int, intermediate: int, name: str) -> None:
    shape = ModelShape(hidden_size=hidden, intermediate_size=intermediate, num_experts=4, top_k=2)
    with pytest.raises(errors.MisuseError) as caught:
        VllmCpuMoeRunner(model(shape))
    assert caught.value.expected == f"a {name} that is a multiple of 32"


def test_graphs_are_refused_in_its_own_name() -> None:
    with pytest.raises(errors.MisuseError) as caught:
        VllmCpuMoeRunner(model()).facts(RunCondition(launch_mode=LaunchMode.GRAPH, cache_state="warm"), [work(2)])
    assert caught.value.where == "vllm_cpu_moe"


# Through the command line


def fill(capsys: pytest.CaptureFixture[str], capture: CaptureFolder, db: Path, *arguments: object) -> dict[str, int]:
    found = moegauge(
        capsys, "profile", "run", "--capture", capture.path, "--db", db, "--runner", "vllm_cpu_moe", "--launch-mode",
        "eager", "--cache-state", "warm", "--passes", 2, "--json", *arguments,
    )  # fmt: skip
    assert found.status == 0
    return {name: found.json[name] for name in ("num_rows", "num_measured", "num_missing")}


def test_a_capture_is_measured_and_nothing_is_measured_twice(
    capture: CaptureFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "profile.db"
    assert fill(capsys, capture, db) == {"num_rows": 9, "num_measured": 18, "num_missing": 0}
    assert fill(capsys, capture, db) == {"num_rows": 9, "num_measured": 0, "num_missing": 0}
    with open_profile_db(db) as database:
        rows, samples = database.rows(), database.samples()
    assert samples.height == 18
    assert (samples["busy_ns"] > 0).all()
    assert {row.status for row in rows} == {RowStatus.MEASURED}
    subject, setting = rows[0].key.match.subject, rows[0].key.setting
    assert (subject.kernel_kind, subject.backend) == (VllmCpuMoeRunner.kernel_kind, VllmCpuMoeRunner.backend)
    assert (subject.kernel_kind, subject.backend) == runner_identity("vllm_cpu_moe")
    assert setting.conditions["vllm"].value == "0.32.0"
    assert setting.conditions["kernel_config_digest"].value
    assert setting.conditions["profiler"].value == "none (monotonic clock)"


def test_a_rank_with_its_own_experts_leaves_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording(ranks=2, expert_parallel=True)
    capture = import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")
    db = tmp_path / "profile.db"
    outcome = moegauge(
        capsys, "profile", "run", "--capture", capture.path, "--db", db, "--runner", "vllm_cpu_moe", "--launch-mode",
        "eager", "--cache-state", "warm", "--json",
    )  # fmt: skip
    assert outcome.status == 2
    assert outcome.json["error"]["found"] == "an expert map"
    assert not db.exists()
