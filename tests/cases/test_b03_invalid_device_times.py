"""Kernel rows with start = end = 0 or end < start are counted, listed and kept out of every sum.

https://github.com/parca-dev/parcagpu/issues/23
https://github.com/pytorch/kineto/issues/109
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from literal_bundle import import_passes, moegauge, write_bundle

from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.timing.intervals import busy_union
from simulator import NAMES, Recording, TraceBuilder

# name, start and end in ns, as recorded on device 0
ROWS = [
    ("align_small", 0, 0),
    ("gemm", 0, 0),
    ("act", 5_000, 4_000),
    ("gemm", 10_000, 30_000),
    ("sum", 40_000, 50_000),
]


def five_kernels() -> TraceBuilder:
    """The five rows; each kernel's launch call has a normal time inside iteration 0."""
    trace = TraceBuilder()
    trace.host_scope("iteration I0", 1_000, 8_000)
    for role, start, end in ROWS:
        trace.kernel(NAMES[role], start, end - start, correlation=trace.launch(2_000))
    return trace


def eager() -> Recording:
    """Two eager iterations of three layers."""
    steps = [{"iter": i, "tokens": 6, "padded": 6, "reqs": 2, "graph": False} for i in range(2)]
    return Recording(steps=steps)


def test_three_rows_are_put_aside_and_the_span_does_not_start_at_zero() -> None:
    trace = parse_kineto(five_kernels().data(), source="trace.json")
    assert (len(trace.ops), len(trace.invalid.name)) == (2, 3)
    assert busy_union(trace.ops.start_ns, trace.ops.end_ns) == 30_000
    assert (int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())) == (10_000, 50_000)
    (finding,) = trace.findings
    assert (finding.code, finding.num, len(finding.examples)) == ("INVALID_TIMESTAMPS", 3, 3)
    assert "ts=b'0.0' dur=b'0.0'" in finding.examples[0]
    assert "ts=b'5.0' dur=b'-1.0'" in finding.examples[2]


def test_the_iteration_is_incomplete_with_two_of_five_rows_covered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 6, "padded": 6}],
        routes=[[(0, 0, [[0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3]])]],
        traces=[five_kernels()],
    )
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture", "--json")
    coverage = shown.json["capture"]["coverage"]
    assert (coverage["num_ops_invalid"], coverage["num_ops_in_boundary"], coverage["num_ops_unknown"]) == (3, 0, 2)
    assert (coverage["num_iterations"], coverage["num_iterations_closed"], coverage["busy_ns"]) == (1, 0, 0)
    assert ("INVALID_TIMESTAMPS", 3) in [(f["code"], f["num"]) for f in shown.json["capture"]["findings"]]
    row = pl.read_parquet(tmp_path / "capture" / "iterations.parquet").row(0, named=True)
    assert (row["status"], row["reason_code"], row["unattributed_ns"]) == ("INCOMPLETE", "INVALID_TIMESTAMPS", 30_000)
    assert row["reason"] == "iteration 0: 3 of its kernels have no usable time stamps"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_rung_with_an_invalid_row_does_not_match(
    damaged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = eager()
    trace = recording.serving(0)
    if damaged:
        gemm = [event for event in trace.events if event["name"] == NAMES["gemm"]][6]  # the first of iteration 1
        gemm["ts"], gemm["dur"] = Decimal(0), Decimal(0)
    bundle = recording.write(tmp_path / "bundle")
    (bundle / "serving_trace.json").write_bytes(trace.data())
    capture = tmp_path / "capture"
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--out", capture).status == 0
    db = import_passes(capsys, capture, lambda offset: [recording.replay(offset_ns=offset)])
    report = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json").json
    statuses = [rung["status"] for rung in report["rungs"][:2]]
    assert statuses == (["INCONCLUSIVE", "INCONCLUSIVE"] if damaged else ["MATCH", "MATCH"])
    unmatched = {entry["why"] for entry in report["rungs"][0]["capture_wide"]["unmatched"] if entry["side"] == "left"}
    assert unmatched == ({"INVALID_TIMESTAMPS"} if damaged else set())
