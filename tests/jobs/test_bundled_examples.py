"""moegauge demo shows either recording that comes with the package, with its ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases.literal_bundle import moegauge
from moegauge.evidence.capture_folder import open_capture
from moegauge.jobs.demo import BUNDLED

FOLDER = Path(__file__).parents[2] / "src" / "moegauge" / "bundled"


def test_the_two_gpu_example_compares_critical_ranks_and_is_derived_again(capsys: pytest.CaptureFixture[str]) -> None:
    shown = moegauge(capsys, "demo", "--example", "h200x2-qwen3-ep2")
    assert shown.status == 0
    assert "same critical rank on both sides in 598 of 624 invocations" in shown.out
    assert "ranks ran together, in processes and on devices of their own" in shown.out
    assert "1248 rows of rank_rows" in shown.out
    assert "takes -0.16% of serving's time" in shown.out


def test_an_example_that_does_not_come_with_the_package_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused = moegauge(capsys, "demo", "--example", "h100")
    assert refused.status == 2
    assert "expected h200-qwen3-live or h200x2-qwen3-ep2" in " ".join(refused.err.split())


def test_an_example_is_no_live_recording(capsys: pytest.CaptureFixture[str]) -> None:
    refused = moegauge(capsys, "demo", "--live", "--example", "h200-qwen3-live")
    assert refused.status == 2
    assert "Leave one out: --live records anew." in " ".join(refused.err.split())


@pytest.mark.parametrize("name", BUNDLED)
def test_every_example_comes_with_a_capture_whose_ranks_were_all_recorded(name: str) -> None:
    ranks = open_capture(FOLDER / name / "capture").record.topology.ranks
    assert [(rank.rank, rank.recorded) for rank in ranks] == [(rank, True) for rank in range(2 if "x2" in name else 1)]
