"""moegauge gate: a lane, step by step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from moegauge.cli.arguments import Flag
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs import gate_draft, gate_explore, gate_export, gate_packets, gate_rehearse, gate_run, gate_stage0
from moegauge.jobs.gate_status import LaneView, lane_view
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.jobs.verify_lane import host_state
from moegauge.records.lane import Stage0Step
from moegauge.records.verdict import FAILED, NOT_JUDGED, LaneStatus
from moegauge.render.lane_text import show_devices, show_exploration, show_reasons, show_stage0, show_status

app = App(name="gate", help="May a new kernel replace the old one? By rules frozen before anyone measured.")

Phase = Literal["a", "b"]


def _open(folder: Path) -> OpenLane:
    return open_lane(folder, host_state(), time.time_ns)


def _show(lane: OpenLane, *, json: bool) -> LaneView:
    view = lane_view(lane)
    if json:
        print_json(view)
        return view
    console = stdout()
    show_status(console, lane.status)
    show_reasons(console, (("INVALID_EVIDENCE", line) for line in view.problems))
    show_reasons(console, ((why.code, why.sentence) for why in view.reasons))
    show_devices(console, view.devices)
    if view.devices:
        for one in lane.gate.registration.deviations:
            console.print(f"deviation: {one}", markup=False, soft_wrap=True)
    console.print(f"next: {view.next}", markup=False, soft_wrap=True)
    return view


@app.command
def new(lane: Path, *, like: Path, json: Flag = False) -> int:
    """Begin a lane: another registration's text as its draft, with the commits its sources are at now.

    Args:
        lane: Lane folder to make, inside a git repository.
        like: Registration (TOML) to start from.
        json: Print the result as JSON.
    """
    draft = gate_draft.new_lane(lane, like)
    if json:
        print_json({"draft": str(draft)})
    else:
        stdout().print(f"wrote {draft}; edit it, then register", markup=False, soft_wrap=True)
    return 0


@app.command
def register(lane: Path, *, json: Flag = False) -> int:
    """Freeze the draft registration. Nothing that decides can be changed afterwards.

    Args:
        lane: Lane folder.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    gate_draft.register(opened)
    _show(opened, json=json)
    return 0


@app.command
def amend(lane: Path, amended: Path, *, date: str, reason: str, json: Flag = False) -> int:
    """Amend the registration: evidence mechanics, or a narrower contract, before any device action.

    Args:
        lane: Lane folder.
        amended: The whole registration as amended (TOML).
        date: Day of the amendment.
        reason: Why.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    gate_draft.amend(opened, amended, date=date, reason=reason)
    _show(opened, json=json)
    return 0


@app.command
def check(lane: Path, *, json: Flag = False) -> int:
    """Run stage 0 in a process that cannot import a device library, and print what kills which wrong candidate.

    Exit status: 0 it passed, 1 it did not, 2 it could not be run.

    Args:
        lane: Lane folder.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    status = gate_stage0.check(opened)
    _show(opened, json=json)
    if not json:
        step = opened.steps[-1].record
        assert isinstance(step, Stage0Step)  # noqa: S101 - just taken
        show_stage0(stdout(), step)
    return 0 if status is LaneStatus.STAGE0_PASS else 1


@app.command
def audit(lane: Path, written: Path, *, json: Flag = False) -> int:
    """Take a read-only audit that somebody wrote; two are needed before the freeze.

    Args:
        lane: Lane folder.
        written: The audit (TOML): auditor, text, read, findings.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    gate_stage0.audit(opened, written)
    _show(opened, json=json)
    return 0


@app.command
def freeze(lane: Path, *, json: Flag = False) -> int:
    """Freeze sources, tool, code and fixtures.

    Args:
        lane: Lane folder.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    gate_stage0.freeze(opened)
    _show(opened, json=json)
    return 0


@app.command
def rehearse(lane: Path, *, json: Flag = False) -> int:
    """Run the whole campaign against a simulated device, once for each fault.

    Exit status: 0 every fault ended as it had to, 1 one did not, and the freeze is taken back.

    Args:
        lane: Lane folder.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    with progress_bar() as progress:
        status = gate_rehearse.rehearse(opened, progress=progress)
    _show(opened, json=json)
    return 0 if status is LaneStatus.REHEARSED else 1


@app.command
def authorize(lane: Path, *, phase: Phase, json: Flag = False) -> int:
    """Write the packet of a phase: device, binaries, sources, arguments and environment. Touches no device.

    Args:
        lane: Lane folder.
        phase: a (exactness and timing) or b (counters).
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    gate_packets.authorize(opened, phase)
    _show(opened, json=json)
    return 0


@app.command
def run(lane: Path, *, phase: Phase, json: Flag = False) -> int:
    """Consume the packet of a phase and run it, once; every failure from here on is terminal.

    Exit status: 0 the phase passed, 1 a measured negative, 2 no statement about the candidate.

    Args:
        lane: Lane folder.
        phase: a (exactness and timing) or b (counters).
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    with progress_bar() as progress:
        status = gate_run.run(opened, phase, progress=progress)
    _show(opened, json=json)
    return gate_run.exit_status(status)


@app.command
def status(lane: Path, *, json: Flag = False) -> int:
    """Say where a lane stands and what is next.

    Exit status: 1 a measured negative, 2 a terminal state that says nothing of the candidate, else 0.

    Args:
        lane: Lane folder.
        json: Print the lane's state as JSON.
    """
    opened = _open(lane)
    _show(opened, json=json)
    if opened.status in FAILED:
        return 1
    return 2 if opened.status in NOT_JUDGED else 0


@app.command
def explore(
    lane: Path,
    *,
    phase: Annotated[Phase, Parameter(help="a (exactness and timing) or b (counters).")] = "a",
    json: Flag = False,
) -> int:
    """Run a phase of the draft on the first device before registration; what was seen is kept and disclosed.

    Args:
        lane: Lane folder with a draft.
        json: Print what was seen as JSON.
    """
    seen = gate_explore.explore(_open(lane), phase, dict(os.environ))
    if json:
        print_json(seen)
    else:
        show_exploration(stdout(), seen)
    return 0


@app.command
def export(lane: Path, *, out: Path, json: Flag = False) -> int:
    """Write a lane's verdict as an in-toto test-result statement, unsigned.

    Args:
        lane: Lane folder.
        out: File to write, outside the lane folder.
        json: Print the result as JSON.
    """
    written = gate_export.export(_open(lane), out)
    if json:
        print_json({"statement": str(written)})
    else:
        stdout().print(f"wrote {written}", markup=False, soft_wrap=True)
    return 0
