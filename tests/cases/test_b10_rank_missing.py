"""A declared rank without a trace: its time is a lower bound at best, and the rank is named.

https://github.com/vllm-project/vllm/issues/10365
https://github.com/NVIDIA-NeMo/RL/pull/4090
"""

from __future__ import annotations

from pathlib import Path

import pytest
from literal_bundle import import_passes, moegauge

from simulator import Recording

TIME_NS = [{"gemm": 30_000, "other": 8_000}, {"gemm": 40_000, "other": 12_000}]
RANK_1_FILES = ["absent", "empty"]


def two_ranks() -> Recording:
    """World size 2, experts split; one iteration, one layer: seven kernels of 100 us on rank 0, of 140 us on rank 1."""
    return Recording(
        steps=[{"iter": 0, "tokens": 6, "padded": 6, "reqs": 2, "graph": False}],
        layers=(0,),
        ranks=2,
        expert_parallel=True,
        time=lambda iteration, layer, rank, role: TIME_NS[rank]["gemm" if role == "gemm" else "other"],
        gap_ns=0,
    )


def bundle_of(folder: Path, rank_1_file: str) -> Path:
    bundle = two_ranks().write(folder)
    if rank_1_file == "absent":
        (bundle / "rank1.serving_trace.json").unlink()
    elif rank_1_file == "empty":
        (bundle / "rank1.serving_trace.json").write_bytes(b"")
    return bundle


@pytest.mark.parametrize(
    ("rank_1_file", "named"),
    [("absent", "rank 1 missing (no trace file)"), ("empty", "rank 1 missing (rank1.serving_trace.json is empty)")],
)
def test_import_is_refused_and_names_the_rank(
    rank_1_file: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(tmp_path / "bundle", rank_1_file)
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture")
    assert refused.status == 2
    assert "INCOMPLETE" in refused.err
    assert named in refused.err
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize("rank_1_file", RANK_1_FILES)
def test_a_partial_import_says_that_every_time_is_a_lower_bound(
    rank_1_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(tmp_path / "bundle", rank_1_file)
    shown = moegauge(
        capsys, "capture", "import", "bundle", bundle, "--partial", "--out", tmp_path / "capture", "--json"
    )
    assert shown.status == 0
    capture = shown.json["capture"]
    assert capture["partial"] is True
    assert [(rank["rank"], rank["recorded"]) for rank in capture["topology"]["ranks"]] == [(0, True), (1, False)]
    assert "critical-rank times: rank 1 is missing, so every time is a lower bound" in shown.json["unavailable"]


@pytest.mark.parametrize("rank_1_file", RANK_1_FILES)
def test_the_critical_rank_time_is_unavailable_with_a_lower_bound_of_100_us(
    rank_1_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, capture = bundle_of(tmp_path / "bundle", rank_1_file), tmp_path / "capture"
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--partial", "--out", capture).status == 0
    db = import_passes(capsys, capture, lambda offset: [two_ranks().replay(0, offset_ns=offset)])
    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")
    assert answer.status == 2
    for rung in answer.json["rungs"][:2]:
        for pair in (rung["selected"], rung["capture_wide"]):
            assert pair["status"] == "UNAVAILABLE"
            assert (pair["left_ns"], pair["right_ns"], pair["relative_ratio"]) == (None, None, None)
        wide = rung["capture_wide"]
        assert wide["reason"]["code"] == "RANK_MISSING"
        assert "(rank 1 missing" in wide["reason"]["sentence"]
        assert "left is at least 100000 ns" in wide["reason"]["sentence"]
        assert wide["lower_bound_ns"]["left"] == 100_000
        left = [entry for entry in wide["unmatched"] if entry["side"] == "left"]
        assert [(entry["why"], entry["num"], entry["ns"]) for entry in left] == [("RANK_MISSING", 1, 100_000)]
        assert "(rank 1 missing" in left[0]["what"]
    text = " ".join(moegauge(capsys, "report", tmp_path / "report", "--format", "markdown").out.split())
    assert "≥ 100.000 µs" in text
    assert "rank 1 missing" in text


def test_with_both_ranks_the_critical_time_is_140_us(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording, capture = two_ranks(), tmp_path / "capture"
    bundle = bundle_of(tmp_path / "bundle", "there")
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--out", capture).status == 0
    db = import_passes(capsys, capture, lambda offset: [recording.replay(r, offset_ns=offset) for r in range(2)])
    wide = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json").json["rungs"][0]
    assert (wide["capture_wide"]["left_ns"], wide["capture_wide"]["right_ns"]) == (140_000, 140_000)
