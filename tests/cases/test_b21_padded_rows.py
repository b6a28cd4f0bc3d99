"""Rows beyond the real tokens: stale or zero-filled, excluded by count and never by value.

https://github.com/sgl-project/sglang/pull/36404
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, import_passes, literal_kind, moegauge, replay_of, write_bundle

from moegauge.kernels.registry import KINDS
from moegauge.routing.expert_load import expert_load, suspicious_padding
from simulator import TraceBuilder

KIND = literal_kind("one_a_layer", ["fused_moe"])
LAYERS = (0, 1)
CHUNK_1 = [[0, 1], [2, 3], [4, 5], [6, 7]]
CHUNK_2 = [[1, 0], [3, 2], [5, 4], [7, 6], [0, 2], [4, 6]]
STALE = [[3, 7], [3, 7]]
ZEROS = [[0, 0], [0, 0]]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], padding: list[list[int]], *, counted: bool
) -> tuple[Outcome, Path]:
    """Two chunks in buffers of 6 rows: 4 tokens and the padding, then 6 tokens."""
    trace = TraceBuilder()
    for chunk in (1, 2):
        begin = EPOCH_NS + chunk * 1000 * US
        trace.device_scope(f"iteration I{chunk}", begin, 500 * US)
        for layer in LAYERS:
            trace.kernel("fused_moe", begin + 100 * layer * US, 50 * US)
    steps: list[dict[str, Any]] = [{"iter": 1, "tokens": 4, "padded": 6}, {"iter": 2, "tokens": 6, "padded": 6}]
    if not counted:
        steps = [{"iter": step["iter"], "padded": 6} for step in steps]
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=steps,
        routes=[[(c, x, rows) for c, rows in ((1, CHUNK_1 + padding), (2, CHUNK_2)) for x in LAYERS]],
        traces=[trace],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    return shown, capture


@pytest.mark.parametrize("padding", [STALE, ZEROS], ids=["stale", "zero-filled"])
def test_logical_tokens_are_10_of_12_rows_and_counts_come_from_them(
    padding: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, padding, counted=True)
    assert shown.status == 0
    iterations = pl.read_parquet(capture / "iterations.parquet")
    assert iterations["logical_tokens"].to_list() == [4, 6]
    assert iterations["executed_rows"].to_list() == [6, 6]
    rows = pl.read_parquet(capture / "routed_inputs.parquet").join(iterations, on=["iteration", "rank"])
    tokens = rows.filter((pl.col("row") < pl.col("logical_tokens")) & (pl.col("layer") == 0))
    counted = expert_load(np.array(tokens["topk_ids"].to_list(), dtype=np.int32), num_experts=8)
    assert (counted.num_tokens, counted.num_skipped) == (10, 0)
    assert counted.counts.tolist() == [3, 2, 3, 2, 3, 2, 3, 2]


@pytest.mark.parametrize("padding", [STALE, ZEROS], ids=["stale", "zero-filled"])
def test_the_kernel_input_keeps_its_padded_rows(
    padding: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, capture = imported(tmp_path, capsys, padding, counted=True)
    rows = pl.read_parquet(capture / "routed_inputs.parquet").filter(
        (pl.col("iteration") == 1) & (pl.col("layer") == 0)
    )
    assert rows["topk_ids"].to_list() == CHUNK_1 + padding
    invocations = pl.read_parquet(capture / "invocations.parquet")
    assert invocations["routed_status"].to_list() == ["WRITTEN"] * 4


def test_without_the_token_count_a_run_of_identical_rows_is_reported_and_not_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, STALE, counted=False)
    assert shown.status == 0
    invocations = pl.read_parquet(capture / "invocations.parquet")
    assert invocations["routed_status"].to_list() == ["UNVERIFIED", "UNVERIFIED", "WRITTEN", "WRITTEN"]
    assert invocations["routed_digest"].is_null().to_list() == [True, True, False, False]
    (finding,) = [f for f in shown.json["capture"]["findings"] if f["code"] == "ROUTED_ROWS_UNVERIFIED"]
    assert finding["num"] == 2
    where, why = finding["examples"][0].split(": ")
    assert where == "iteration 1, layer 0"
    assert why == "no logical token count, and 2 neighbouring rows are alike in every layer (stale padding?)"


def test_without_the_token_count_no_exact_rung_covers_the_chunk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, capture = imported(tmp_path, capsys, STALE, counted=False)
    work = [(chunk, layer, [("fused_moe", 50 * US)]) for chunk in (2,) for layer in LAYERS]
    db = import_passes(capsys, capture, lambda offset: [replay_of(work, offset_ns=offset)])
    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")
    assert answer.status == 2
    wide = answer.json["rungs"][0]["capture_wide"]
    assert (wide["status"], wide["num_invocations"]) == ("INCONCLUSIVE", 2)
    left = [(e["why"], e["num"], e["ns"]) for e in wide["unmatched"] if e["side"] == "left"]
    assert left == [("NO_EXACT_INPUT", 2, 100_000)]


def test_zero_filled_rows_without_a_token_count_are_refused_with_what_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, capture = imported(tmp_path, capsys, ZEROS, counted=False)
    assert refused.status == 2
    assert "id 0 twice in row 4" in refused.err
    assert "record the logical token counts" in refused.err
    assert not capture.exists()


def test_a_token_routed_to_expert_0_is_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, ZEROS, counted=True)
    rows = pl.read_parquet(capture / "routed_inputs.parquet").filter(pl.col("row") < 4)
    assert [0, 1] in rows["topk_ids"].to_list()


def test_a_run_counts_only_where_every_layer_repeats() -> None:
    stale = np.array([[0, 1], [3, 7], [3, 7], [3, 7]], dtype=np.int32)
    fresh = np.array([[0, 1], [3, 7], [3, 7], [2, 4]], dtype=np.int32)
    distinct = np.array([[0, 1], [1, 2], [2, 3], [3, 4]], dtype=np.int32)
    assert suspicious_padding([stale, stale]) == 3
    assert suspicious_padding([stale, fresh]) == 2
    assert suspicious_padding([stale, distinct]) == 0
