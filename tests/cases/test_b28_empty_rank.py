"""A rank without tokens: a row of its own, neither missing nor averaged in, and its dummy rows no popularity.

https://github.com/vllm-project/vllm/pull/51984
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, Rows, import_passes, literal_kind, moegauge, replay_of, write_bundle

from moegauge.kernels.registry import KINDS
from moegauge.routing.expert_load import expert_load
from simulator import TraceBuilder

KIND = literal_kind("one_a_layer", ["fused_moe"])
TOKENS = [[row % 8, (row + 1 + row // 8 % 7) % 8] for row in range(64)]
DUMMY = [[-1, -1]]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def serving(rank: int, moe_us: int | None) -> TraceBuilder:
    """Iteration 7 of a rank, with the MoE kernel where it runs one; in iteration 8 both ranks have a token."""
    trace = TraceBuilder(device=rank, rank=rank, world_size=2)
    for number, length in ((7, moe_us), (8, 50)):
        begin = EPOCH_NS + number * 1000 * US
        trace.device_scope(f"iteration I{number}", begin, 500 * US)
        trace.kernel("ncclDevKernel_AllReduce", begin + 300 * US, 5 * US)
        if length is not None:
            trace.kernel("fused_moe", begin + 100 * US, length * US)
    return trace


def imported(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    dummy_us: int | None,
    dummy_rows: Rows,
    declared: bool,
) -> tuple[Outcome, Path]:
    steps: list[dict[str, Any]] = [{"iter": 7, "tokens": 64}, {"iter": 8, "tokens": 2}]
    if declared:
        steps = [steps[0] | {"rank_tokens": [64, 0]}, steps[1] | {"rank_tokens": [1, 1]}]
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=steps,
        routes=[
            [(7, 0, TOKENS), (8, 0, [[0, 1]])],
            [(7, 0, dummy_rows), (8, 0, [[2, 3]])] if dummy_rows else [(8, 0, [[2, 3]])],
        ],
        traces=[serving(0, 120), serving(1, dummy_us)],
        routed_scope="local",
        parallel={"dp": 2},
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    assert shown.status == 0
    return shown, capture


def aligned(tmp_path: Path, capsys: pytest.CaptureFixture[str], capture: Path) -> Outcome:
    """Seven passes that took what serving took, and the ladder with iteration 7 selected."""
    rank_0 = [(7, 0, [("fused_moe", 120 * US)]), (8, 0, [("fused_moe", 50 * US)])]
    rank_1 = [(8, 0, [("fused_moe", 50 * US)])]
    db = import_passes(
        capsys,
        capture,
        lambda offset: [
            replay_of(work, offset_ns=offset, rank=rank, ranks=2) for rank, work in enumerate((rank_0, rank_1))
        ],
    )
    out = tmp_path / "report"
    return moegauge(capsys, "align", capture, "--db", db, "--out", out, "--select", "iteration=7,layer=0", "--json")


EMPTY_RANKS = pytest.mark.parametrize(
    ("dummy_us", "dummy_rows", "rank_1_ns"), [(None, [], 0), (15, DUMMY, 15_000)], ids=["skipped step", "dummy forward"]
)


@EMPTY_RANKS
def test_a_declared_empty_rank_is_a_row_of_its_own(
    dummy_us: int | None, dummy_rows: Rows, rank_1_ns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, dummy_us=dummy_us, dummy_rows=dummy_rows, declared=True)
    rows = pl.read_parquet(capture / "invocations.parquet").filter(pl.col("iteration") == 7)
    assert rows["rank"].to_list() == [0, 1]
    assert rows["timing_status"].to_list() == ["CLOSED", "ZERO_TOKENS"]
    assert rows["busy_ns"].to_list() == [120_000, rank_1_ns]
    coverage = shown.json["capture"]["coverage"]
    assert (coverage["num_iterations"], coverage["num_iterations_closed"]) == (2, 2)
    assert coverage["num_rank_invocations_zero_tokens"] == 1
    assert shown.json["capture"]["findings"] == []
    iterations = pl.read_parquet(capture / "iterations.parquet").filter(pl.col("iteration") == 7)
    assert iterations["logical_tokens"].to_list() == [64, 0]


@EMPTY_RANKS
def test_the_critical_rank_is_120_us_and_the_iteration_is_compared(
    dummy_us: int | None, dummy_rows: Rows, rank_1_ns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, capture = imported(tmp_path, capsys, dummy_us=dummy_us, dummy_rows=dummy_rows, declared=True)
    for rung in aligned(tmp_path, capsys, capture).json["rungs"][:2]:
        selected = rung["selected"]
        assert (selected["status"], selected["left_ns"], selected["right_ns"]) == ("MATCH", 120_000, 120_000)
        assert (rung["capture_wide"]["status"], rung["capture_wide"]["left_ns"]) == ("MATCH", 170_000)
        assert [entry for entry in rung["capture_wide"]["unmatched"] if entry["side"] == "left"] == []
        assert {rank["rank"]: rank["left_ns"] for rank in selected["corresponding_ranks"]} == {0: 120_000, 1: rank_1_ns}


def test_dummy_rows_enter_no_popularity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, dummy_us=15, dummy_rows=DUMMY, declared=True)
    iterations = pl.read_parquet(capture / "iterations.parquet")
    rows = pl.read_parquet(capture / "routed_inputs.parquet").filter(pl.col("iteration") == 7)
    assert rows.height == 65
    tokens = rows.join(iterations, on=["iteration", "rank"]).filter(pl.col("row") < pl.col("logical_tokens"))
    counted = expert_load(np.array(tokens["topk_ids"].to_list(), dtype=np.int32), num_experts=8)
    assert (counted.num_tokens, counted.num_skipped, int(counted.counts.sum())) == (64, 0, 128)


def test_a_rank_without_kernels_that_was_not_declared_empty_leaves_the_iteration_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, dummy_us=None, dummy_rows=[], declared=False)
    assert shown.json["capture"]["coverage"]["num_iterations_closed"] == 1
    iterations = pl.read_parquet(capture / "iterations.parquet").filter(pl.col("iteration") == 7)
    assert iterations["status"].to_list() == ["COMPLETE", "INCOMPLETE"]
    invocations = pl.read_parquet(capture / "invocations.parquet").filter(pl.col("iteration") == 7)
    assert invocations["timing_status"].to_list() == ["CLOSED", "UNAVAILABLE"]
    assert invocations["busy_ns"].to_list() == [120_000, None]
    answer = aligned(tmp_path, capsys, capture)
    assert answer.status == 2
    selected = answer.json["rungs"][0]["selected"]
    assert (selected["status"], selected["left_ns"], selected["right_ns"]) == ("UNAVAILABLE", None, None)
    assert selected["lower_bound_ns"]["left"] == 120_000
    left = [(e["why"], e["num"], e["ns"]) for e in selected["unmatched"] if e["side"] == "left"]
    assert left == [("TIME_NOT_CAPTURED", 1, 120_000)]
