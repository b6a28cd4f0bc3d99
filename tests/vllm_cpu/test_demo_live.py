"""moegauge demo --live, end to end and small, in the environment that the tests run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cases.literal_bundle import moegauge
from moegauge.evidence.report_folder import RECORD_NAME
from moegauge.evidence.store import read_record
from moegauge.records.comparison import LadderReport

REPORTS = ("report-in-order", "report-warm-by-order", "report-warm-by-cold", "report-cold")


def test_the_live_demo_serves_measures_and_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "live"
    words = [sys.executable, "-m", "moegauge", "demo", "--live", "--out", str(out), "--requests", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "every number was derived again" in done.stdout
    assert "The warm replay takes" in done.stdout
    reports = [read_record(out / name / RECORD_NAME, LadderReport) for name in REPORTS]
    for report in reports:
        found = report.explanation
        assert found is not None
        (effect,) = found.effects
        assert effect.effect_ns is not None
        assert effect.interval_ns is not None, "seven passes give an interval"
        assert effect.effect_ns + found.residual_ns == found.diff_ns == found.right_ns - found.left_ns
        assert found.num_invocations == found.num_captured_invocations > 0
    assert [report.rungs[1].status for report in reports if report.rungs[1].status == "UNAVAILABLE"] == []
    assert [rung.status for rung in reports[0].rungs if rung.status == "UNAVAILABLE"] == []
    assert {str(rung.status) for rung in reports[1].rungs[2:]} == {"UNAVAILABLE"}
    assert reports[1].settings.cache_state == reports[2].settings.cache_state == "warm"
    assert moegauge(capsys, "verify", out / "report-cold").status == 0
