"""A real vLLM on the host, recorded while it serves."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cases.literal_bundle import moegauge
from moegauge.cli.main import run
from moegauge.evidence.capture_folder import CaptureFolder, open_capture


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> CaptureFolder:
    """Five requests, at most four at once, of which one is longer than an iteration may be."""
    folder = tmp_path_factory.mktemp("live")
    lines = [(1, 4), (8, 2), (70, 3), (5, 6), (20, 2)]
    workload = folder / "workload.jsonl"
    workload.write_text("".join(f'{{"prompt_tokens": {n}, "max_tokens": {m}}}\n' for n, m in lines))
    out = folder / "capture"
    limits = ("--engine-argument", "max_num_seqs=4", "--engine-argument", "max_num_batched_tokens=32")
    assert run(["capture", "vllm", "--out", str(out), "--workload", str(workload), *limits]) == 0
    return open_capture(out)


def test_every_invocation_of_a_live_engine_has_a_time_and_its_exact_input(captured: CaptureFolder) -> None:
    coverage = captured.record.coverage
    assert captured.record.kernel.kind == "vllm_cpu_moe"
    assert coverage.num_rank_invocations == coverage.num_rank_invocations_closed == coverage.num_rank_invocations_routed
    assert coverage.num_iterations == coverage.num_iterations_closed > 6
    assert [finding.code for finding in captured.record.findings] == []


def test_a_long_prompt_is_seen_in_chunks_and_rows_add_up(captured: CaptureFolder) -> None:
    requests = captured.requests
    assert requests is not None
    rows = requests.group_by("phase").agg(pl.col("num_rows").sum()).sort("phase")
    counted = dict(rows.iter_rows())
    assert counted["decode"] == 3 + 1 + 2 + 5 + 1
    assert counted["chunk"] >= 70
    assert counted["chunk"] + counted.get("prefill", 0) == 1 + 8 + 70 + 5 + 20
    logical = captured.iterations["logical_tokens"].sum()
    assert logical == requests["num_rows"].sum()


def test_a_live_capture_is_derived_again_from_its_frames(
    captured: CaptureFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moegauge(capsys, "verify", str(captured.path)).status == 0


def test_its_invocations_are_measured_and_aligned(
    captured: CaptureFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "p.db"
    words = ("--runner", "vllm_cpu_moe", "--launch-mode", "eager", "--cache-state", "served_order", "--passes", "2")
    assert moegauge(capsys, "profile", "run", "--capture", str(captured.path), "--db", str(db), *words).status == 0
    report = moegauge(capsys, "align", str(captured.path), "--db", str(db), "--out", str(tmp_path / "r"), "--json")
    assert report.status == 2, "two passes are too few for a verdict"
    rung = report.json["rungs"][1]["capture_wide"]
    assert rung["num_invocations"] == captured.record.coverage.num_rank_invocations
