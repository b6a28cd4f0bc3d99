"""From a simulated recording to a verdict, through the jobs a user calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.align import align, exit_status, ladder_settings
from moegauge.jobs.verify import verify
from moegauge.records.decision import Status
from simulator import Recording


def test_import_closes_every_invocation_and_sums_the_simulated_times(
    recording: Recording, capture: CaptureFolder
) -> None:
    coverage = capture.record.coverage
    assert (coverage.num_rank_invocations, coverage.num_rank_invocations_closed) == (9, 9)
    assert coverage.busy_ns == recording.total_ns()
    assert capture.invocations["variant"].unique().sort().to_list() == ["naive_block_assignment", "small_batch"]
    assert capture.iterations["launch_mode"].to_list() == ["eager", "graph", "graph"]


def test_one_pass_is_inconclusive_and_shows_the_point_estimate(
    recording: Recording, capture: CaptureFolder, one_pass: Path, tmp_path: Path
) -> None:
    report = align(capture.path, one_pass, tmp_path / "report", settings=ladder_settings())
    wide = report.rungs[0].capture_wide
    assert wide is not None
    assert (wide.status, wide.reason.code) == (Status.INCONCLUSIVE, "TOO_FEW_PASSES")
    assert wide.left_ns == recording.total_ns()
    assert wide.relative_ratio == pytest.approx(0.01, abs=1e-4)
    assert wide.num_invocations == 9
    assert [rung.status for rung in report.rungs[2:]] == [Status.UNAVAILABLE] * 3
    assert exit_status(report) == 2


def test_verify_derives_capture_and_report_again(capture: CaptureFolder, one_pass: Path, tmp_path: Path) -> None:
    align(capture.path, one_pass, tmp_path / "report", settings=ladder_settings())
    for path in (capture.path, tmp_path / "report"):
        assert verify(path).differences == ()
