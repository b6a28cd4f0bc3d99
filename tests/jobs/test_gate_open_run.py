"""A run without its verdict: whatever is taken from it, it never stands better, and never runs again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence.host_state import HostState
from moegauge.jobs.gate_run import conclude, run, run_packet
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.records.verdict import LaneStatus
from tiny_lane import TinyLane


def open_run(root: Path, kind: str) -> TinyLane:
    """A lane whose packet of phase a was consumed and ran, and that has no verdict yet."""
    lane = TinyLane(root).start().to_rehearsed(kind).authorized("a")
    opened = lane.open()
    packet = opened.gate.packet
    assert packet is not None
    run_packet(opened, packet)
    return lane


def copied(lane: TinyLane, root: Path) -> OpenLane:
    shutil.copytree(lane.repository, root / "work")
    return open_lane(root / "work" / "lane", HostState(root / "fresh"), lane.clock)


@pytest.mark.parametrize("kind", ["right", "wrong", "slow", "greedy"])
def test_taking_the_end_of_a_run_away_never_improves_its_verdict(tmp_path: Path, kind: str) -> None:
    lane = open_run(tmp_path / "lane", kind)
    whole = conclude(copied(lane, tmp_path / "whole"))
    files = sorted((lane.folder / "runs" / "phase-a" / "one").iterdir())
    for keep in range(len(files)):
        opened = copied(lane, tmp_path / f"{keep}")
        for path in files[keep:]:
            (opened.folder / "runs" / "phase-a" / "one" / path.name).unlink()
        assert conclude(opened).standing >= whole.standing


def test_observations_without_the_marker_are_invalid_evidence_on_any_host(tmp_path: Path) -> None:
    lane = open_run(tmp_path / "lane", "wrong")
    opened = copied(lane, tmp_path / "other")
    (opened.folder / "runs" / "phase-a" / "consumed.json").unlink()
    again = open_lane(opened.folder, opened.state, lane.clock)
    assert again.status is LaneStatus.INVALID_EVIDENCE
    assert again.problems[0].endswith("a run, and no consumed marker before it")
    with pytest.raises(errors.Inconsistent, match="no consumed marker before it"):
        run(again, "a")
