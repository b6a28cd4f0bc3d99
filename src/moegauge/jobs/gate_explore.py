"""moegauge gate explore: the whole of a phase on a real device before registration, kept so that it is disclosed.

The device code, the profiler and its reader run here as they will later, which is what a rehearsal cannot do. After
registration a device is touched by packets alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.evidence.lane_folder import DRAFT, write_new
from moegauge.evidence.toml import read_toml
from moegauge.gate.blocks import timing_failures
from moegauge.gate.ports import Devices, Lane
from moegauge.gate.running import Draft, Profile, phase_a, phase_b
from moegauge.jobs.gate_processes import runner_environment
from moegauge.jobs.lane_code import entry, put_on_path
from moegauge.jobs.lane_state import OpenLane
from moegauge.records.exploration import Exploration
from moegauge.records.lane import Phase
from moegauge.records.observation import BlockObservation, ExactnessObservation
from moegauge.records.registration import Registration
from moegauge.records.schema import canonical_bytes
from moegauge.records.verdict import SubjectFigures

FOLDER = "explorations"


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """What the process found: the record, and the profiler's files by name."""

    record: Exploration
    profiles: dict[str, bytes]


def explore(lane: OpenLane, phase: Phase, environment: dict[str, str]) -> Exploration:
    """Explore every registered device, and keep what was seen in the lane folder.

    Raises:
        MisuseError: the lane is registered. Incomplete: the process did not come to its end.
    """
    if lane.gate.status is not None:
        raise errors.MisuseError(
            where="explore",
            expected="a lane that is not registered",
            found=str(lane.gate.status),
            remedy="After registration a device is touched by packets alone; a trial would invalidate stage 0.",
        )
    registration = read_toml(lane.folder / DRAFT, Registration)
    name = registration.devices.names[0]
    number = len(list((lane.folder / FOLDER).glob("*.json")))
    done = subprocess.run(  # noqa: S603 - this interpreter and our own module
        [sys.executable, "-m", "moegauge.jobs.gate_explore", phase, name, f"{number:04d}", str(lane.clock())],
        cwd=lane.folder,
        env=runner_environment(registration, environment),
        capture_output=True,
        check=False,
    )
    try:
        explored = msgspec.msgpack.decode(done.stdout, type=Explored)
    except msgspec.MsgspecError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise errors.Incomplete(
            where=f"device {name}",
            expected="a trial that comes to its end",
            found=said[-1] if said else f"status {done.returncode}",
            remedy="Correct the lane's code; nothing was written.",
        ) from error
    for file, data in explored.profiles.items():
        write_new(lane.folder / FOLDER / file, data)
    write_new(lane.folder / FOLDER / f"{number:04d}-{phase}.json", canonical_bytes(explored.record))
    return explored.record


def main(arguments: Sequence[str]) -> int:
    """Run a phase of the draft and write what was found to stdout."""
    phase: Phase = "a" if arguments[0] == "a" else "b"
    name, number, at_ns = arguments[1], arguments[2], int(arguments[3])
    registration = read_toml(Path.cwd() / DRAFT, Registration)
    put_on_path(registration, Path())
    devices: Devices = entry(registration.code.devices)
    lane: Lane = entry(registration.code.lane)
    drafts: list[Draft | Profile]
    if phase == "a":
        device = devices.open(registration, name)
        drafts = list(phase_a(registration, lane, device))
        device.close()
    else:
        drafts = list(phase_b(registration, devices.counters(registration, name)))
    profiles = {f"{number}-{one.subject}-{one.arm}.profile": one.data for one in drafts if isinstance(one, Profile)}
    record = Exploration(
        schema=Exploration.tag(),
        at_ns=at_ns,
        phase=phase,
        device=name,
        identity=devices.identify(registration, name),
        differing=_differing(drafts),
        figures=_figures(registration, drafts),
        profiles=tuple(profiles),
    )
    sys.stdout.buffer.write(msgspec.msgpack.encode(Explored(record=record, profiles=profiles)))
    return 0


def _differing(drafts: Sequence[Draft | Profile]) -> tuple[str, ...]:
    found = {
        f"{one.fields['subject']}, {fixture.fixture}, {boundary}"
        for one in drafts
        if isinstance(one, Draft) and one.kind is ExactnessObservation
        for fixture in one.fields["fixtures"]
        for boundary, words in fixture.boundaries.items()
        if words.mismatch is not None
    }
    return tuple(sorted(found))


def _figures(registration: Registration, drafts: Sequence[Draft | Profile]) -> tuple[SubjectFigures, ...]:
    found = []
    for subject in registration.subjects:
        blocks = [
            BlockObservation(
                schema=BlockObservation.tag(), number=0, previous="", at_ns=0, device="explored", **one.fields
            )
            for one in drafts
            if isinstance(one, Draft) and one.kind is BlockObservation and one.fields["subject"] == subject.name
        ]
        if blocks:
            found.append(timing_failures(subject, blocks)[0])
    return tuple(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
