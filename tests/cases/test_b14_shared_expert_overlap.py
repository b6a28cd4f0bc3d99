"""A shared expert on an auxiliary stream beside the subject: shown as co-running work, never part of the subject.

https://github.com/vllm-project/vllm/pull/28406
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, literal_kind, moegauge, write_bundle

from moegauge.adapters.profile_db import open_profile_db
from moegauge.kernels.registry import KINDS
from simulator import TraceBuilder

KIND = literal_kind("routed_only", ["routed_fused_moe"])
SHARED = "triton_poi_fused_silu_mul_0"


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def trace_with(annotation: str, shared: list[tuple[int, int]]) -> TraceBuilder:
    """Routed fused MoE on stream 7 at [0, 80) us; other kernels on stream 23."""
    trace = TraceBuilder()
    trace.host_scope(annotation, EPOCH_NS - 100 * US, 90 * US)
    correlation = trace.launch(EPOCH_NS - 50 * US)
    trace.kernel("routed_fused_moe", EPOCH_NS, 80 * US, stream=7, correlation=correlation)
    for start, end in shared:
        correlation = trace.launch(EPOCH_NS - 40 * US)
        trace.kernel(SHARED, EPOCH_NS + start * US, (end - start) * US, stream=23, correlation=correlation)
    return trace


BESIDE = [(10, 60), (75, 95)]


def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str], shared: list[tuple[int, int]]) -> tuple[dict, Path]:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [[0, 1]])]],
        traces=[trace_with("iteration I0", shared)],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    assert shown.status == 0
    return shown.json["capture"], capture


def test_the_subject_is_80_us_with_55_us_of_foreign_work_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, capture = imported(tmp_path, capsys, BESIDE)
    coverage = record["coverage"]
    assert (coverage["busy_ns"], coverage["span_ns"], coverage["foreign_ns"]) == (80_000, 80_000, 55_000)
    assert (coverage["num_ops_in_boundary"], coverage["num_ops_foreign"]) == (1, 2)
    intervals = pl.read_parquet(capture / "intervals.parquet")
    assert intervals.filter(pl.col("name") == SHARED)["op_class"].to_list() == ["FOREIGN", "FOREIGN"]
    assert intervals.filter(pl.col("name") == SHARED)["layer"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("shared", "foreign_ns"),
    [
        ([], 0),
        ([(80, 95)], 0),  # touches the end only
        ([(10, 60), (20, 50)], 50_000),  # two foreign kernels at once count once
        ([(-20, 100)], 80_000),  # beyond the span on both sides
    ],
)
def test_foreign_time_is_the_union_inside_the_span(
    shared: list[tuple[int, int]], foreign_ns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coverage = imported(tmp_path, capsys, shared)[0]["coverage"]
    assert (coverage["busy_ns"], coverage["foreign_ns"]) == (80_000, foreign_ns)


def test_the_report_shows_the_co_running_work_and_the_replay_holds_the_subject_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, capture = imported(tmp_path, capsys, BESIDE)
    replay = tmp_path / "replay.json"
    replay.write_bytes(trace_with("exact L0 I0", [(10, 60)]).data())
    db = tmp_path / "profile.db"
    assert moegauge(capsys, "profile", "import", capture, replay, "--db", db).status == 0
    with open_profile_db(db) as database:
        sample = database.samples().row(0, named=True)
    assert (sample["busy_ns"], sample["foreign_ns"], sample["num_kernels"]) == (80_000, 50_000, 1)
    served = pl.read_parquet(capture / "invocations.parquet")["kernels_digest"]
    assert served.to_list() == [sample["kernels_digest"]]

    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")
    assert answer.json["served"] == {"busy_ns": 80_000, "span_ns": 80_000, "foreign_ns": 55_000}
    wide = answer.json["rungs"][0]["capture_wide"]
    assert (wide["left_ns"], wide["right_ns"]) == (80_000, 80_000)
    text = " ".join(moegauge(capsys, "report", tmp_path / "report").out.split())
    assert "foreign work on other streams inside those spans 55.000 µs" in text
