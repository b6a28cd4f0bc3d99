"""A recorder that lost rows: the coverage is stated, nothing is rescaled, and the iteration is not exact.

https://github.com/sgl-project/sglang/issues/12823
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, import_passes, literal_kind, moegauge, replay_of, write_bundle

from moegauge.kernels.registry import KINDS
from simulator import TraceBuilder

KIND = literal_kind("one_a_layer", ["fused_moe"])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, num_rows: int, step: dict[str, int]
) -> tuple[Outcome, Path]:
    """Iteration 0 ran 40 tokens; iteration 1 is whole. One layer."""
    trace = TraceBuilder()
    for iteration in (0, 1):
        begin = EPOCH_NS + iteration * 1000 * US
        trace.device_scope(f"iteration I{iteration}", begin, 500 * US)
        trace.kernel("fused_moe", begin, 50 * US)
    rows = [[row % 8, (row + 1 + row // 8) % 8] for row in range(num_rows)]
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, **step}, {"iter": 1, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, rows), (1, 0, [[2, 5]])]],
        traces=[trace],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    return shown, capture


@pytest.mark.parametrize(
    ("step", "unit"),
    [({"tokens": 40, "padded": 40}, "rows"), ({"tokens": 40}, "logical tokens")],
    ids=["executed rows recorded", "tokens recorded"],
)
def test_32_of_40_rows_are_a_coverage_and_mark_the_iteration_incomplete(
    step: dict[str, int], unit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, num_rows=32, step=step)
    assert shown.status == 0
    iterations = pl.read_parquet(capture / "iterations.parquet")
    assert iterations["status"].to_list() == ["INCOMPLETE", "COMPLETE"]
    assert iterations["reason_code"].to_list() == ["ROUTED_ROWS_PARTIAL", None]
    assert iterations["logical_tokens"].to_list() == [40, 1]
    invocations = pl.read_parquet(capture / "invocations.parquet")
    assert invocations["routed_status"].to_list() == ["PARTIAL", "WRITTEN"]
    assert invocations["routed_reason"][0] == f"coverage 32/40 {unit}; nothing is rescaled"
    assert invocations["routed_digest"][0] is None
    assert pl.read_parquet(capture / "routed_inputs.parquet").filter(pl.col("iteration") == 0).height == 32


def test_the_difference_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, num_rows=32, step={"tokens": 40, "padded": 40})
    text = " ".join(moegauge(capsys, "capture", "show", capture).out.split())
    assert "ROUTED_ROWS_PARTIAL" in text
    assert "coverage 32/40 rows" in text


def test_the_iteration_is_in_no_exact_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, num_rows=32, step={"tokens": 40, "padded": 40})
    work = [(1, 0, [("fused_moe", 50 * US)])]
    db = import_passes(capsys, capture, lambda offset: [replay_of(work, offset_ns=offset)])
    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")
    assert answer.status == 2
    for rung in answer.json["rungs"][:2]:
        wide = rung["capture_wide"]
        assert (wide["status"], wide["num_iterations"]) == ("INCONCLUSIVE", 1)
        left = [(e["why"], e["num"], e["ns"]) for e in wide["unmatched"] if e["side"] == "left"]
        assert left == [("ROUTED_ROWS_PARTIAL", 1, 50_000)]


def test_a_replay_of_the_partial_rows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, num_rows=32, step={"tokens": 40, "padded": 40})
    replay = tmp_path / "replay.json"
    replay.write_bytes(replay_of([(0, 0, [("fused_moe", 50 * US)])]).data())
    refused = moegauge(capsys, "profile", "import", capture, replay, "--db", tmp_path / "profile.db")
    assert refused.status == 2
    assert "INCOMPLETE" in refused.err


def test_40_of_40_rows_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, capture = imported(tmp_path, capsys, num_rows=40, step={"tokens": 40, "padded": 40})
    assert shown.json["capture"]["findings"] == []
    assert pl.read_parquet(capture / "iterations.parquet")["status"].to_list() == ["COMPLETE", "COMPLETE"]
