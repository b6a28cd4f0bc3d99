"""Verifying a lane: every step through the gate again, every verdict from raw evidence, every file by its digest."""

from __future__ import annotations

import os
import time
from pathlib import Path

from moegauge import errors
from moegauge.evidence.host_state import HostState, state_folder
from moegauge.evidence.lane_folder import DRAFT, STEPS
from moegauge.jobs.gate_processes import stage0_answer
from moegauge.jobs.lane_code import code_digests
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.jobs.verification import Verification
from moegauge.records.verdict import VerdictStep


def is_lane(path: Path) -> bool:
    """Whether a folder is a lane's."""
    return (path / DRAFT).is_file() or (path / STEPS).is_dir()


def host_state() -> HostState:
    """Host state of the user who runs this."""
    return HostState(state_folder(os.environ))


def verify_lane(path: Path) -> Verification:
    """Derive a lane again; a recorded failure that is derived again is no difference.

    Raises:
        EvidenceError: a step cannot be read at all.
    """
    lane = open_lane(path, host_state(), time.time_ns)
    differences = list(lane.problems)
    checked = [f"{len(lane.steps)} steps", f"{_num_files(lane)} files"]
    verdicts = [kept.record for kept in lane.steps if isinstance(kept.record, VerdictStep)]
    checked += [f"verdict of phase {one.phase} ({one.status})" for one in verdicts]
    if lane.gate.freeze is not None:
        line, wrong = _fixtures(lane)
        checked.append(line)
        differences += wrong
    checked.append(f"standing {lane.status or 'not registered'}")
    return Verification(str(path), "lane", tuple(checked), tuple(differences))


def _num_files(lane: OpenLane) -> int:
    return len(lane.steps) + sum(len(getattr(kept.record, "files", {})) for kept in lane.steps)


def _fixtures(lane: OpenLane) -> tuple[str, list[str]]:
    """Inputs and oracle words computed again. Other words are a difference only if the frozen code gives them."""
    freeze = lane.gate.freeze
    assert freeze is not None  # noqa: S101 - asked for by the caller
    registration = lane.gate.registration
    total = sum(len(fixtures) for fixtures in freeze.fixtures.values())
    try:
        frozen = code_digests(registration, lane.folder) == freeze.code
        again = stage0_answer(registration, lane.folder, "fixtures").fixtures
    except errors.MoegaugeError as error:
        return f"{total} fixtures NOT computed again ({error.found})", []
    wrong = [
        f"{subject}, {name}: recorded inputs or oracle words are not those the lane's code gives"
        for subject, fixtures in freeze.fixtures.items()
        for name, digests in fixtures.items()
        if again.get(subject, {}).get(name) != digests
    ]
    line = f"inputs and oracle words of {total} fixtures"
    if frozen:
        return line, wrong
    if wrong:
        return f"{total} fixtures NOT computed again (the lane's code is not the frozen one and gives other words)", []
    return f"{line} (by code that is not the frozen one)", []
