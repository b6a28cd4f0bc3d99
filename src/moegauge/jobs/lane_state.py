"""Reading a lane: its steps through the gate, its inventory, and what this host remembers of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from moegauge import __version__, errors
from moegauge.adapters.counters.readers import READERS
from moegauge.evidence.digest import bytes_digest
from moegauge.evidence.host_state import HostState
from moegauge.evidence.lane_folder import (
    MARKER,
    Kept,
    inventory_differences,
    present_files,
    read_marker,
    read_observations,
    read_steps,
    run_folder,
    step_path,
    write_step,
)
from moegauge.evidence.store import read_bytes
from moegauge.gate.counters import CounterTable
from moegauge.gate.ports import Clock
from moegauge.gate.protocol import Gate
from moegauge.gate.verdict import RunEvidence, Seen
from moegauge.records.capture import FileDigest
from moegauge.records.lane import Phase, Step
from moegauge.records.observation import Observation, ProfileObservation
from moegauge.records.packet import ConsumedMarker
from moegauge.records.registration import Registration
from moegauge.records.schema import canonical_bytes
from moegauge.records.verdict import LaneStatus, VerdictStep

StepT = TypeVar("StepT", bound=Step)


@dataclass
class OpenLane:
    """A lane as it was read.

    Attributes:
        folder: where it lies. state: what this host remembers. clock: UTC time in ns.
        gate: its steps, as far as they were accepted. steps: their files.
        problems: sentences about files, steps and host memory that do not fit; any makes the evidence invalid.
    """

    folder: Path
    state: HostState
    clock: Clock
    gate: Gate = field(default_factory=Gate)
    steps: list[Kept] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def status(self) -> LaneStatus | None:
        """Where the lane stands; None where it is not registered."""
        return LaneStatus.INVALID_EVIDENCE if self.problems else self.gate.status

    @property
    def open_phase(self) -> Phase | None:
        """The phase whose packet was consumed and has no verdict; None where there is none."""
        packet = self.gate.packet
        if packet is None or self.gate.status not in {LaneStatus.PHASE_A_AUTHORIZED, LaneStatus.PHASE_B_AUTHORIZED}:
            return None
        consumed = read_marker(self.folder, packet.phase) is not None
        return packet.phase if consumed else None

    def refuse_problems(self) -> None:
        """Refuse to go on with evidence that is invalid.

        Raises:
            Inconsistent: naming the first problem.
        """
        if self.problems:
            raise errors.Inconsistent(
                where=str(self.folder),
                expected="a lane folder as its steps left it",
                found=self.problems[0],
                remedy="Restore the folder; with evidence missing or changed the lane is INVALID_EVIDENCE.",
            )

    def new_step(self, kind: type[StepT], *, files: dict[str, FileDigest] | None = None, **fields: Any) -> StepT:
        """The next step, of a kind, with its own fields."""
        return kind(
            schema=kind.tag(),
            number=self.gate.number,
            previous=self.gate.head,
            at_ns=self.clock(),
            tool_version=__version__,
            files=files or {},
            **fields,
        )

    def take(self, step: Step, run: RunEvidence | None = None) -> LaneStatus:
        """Take a step: accept it, write it, and let this host remember it.

        Raises:
            MisuseError, Inconsistent: it is not accepted; nothing is written then.
        """
        self.refuse_problems()
        digest = bytes_digest(canonical_bytes(step))
        known = self.gate.lane_id or digest
        remembered = self.state.step_digest(known, step.number)
        if remembered is not None:
            self.state.remember(known, step.number, digest)
        status = self.gate.accept(step, digest, run)
        write_step(self.folder, step)
        self.state.remember(known, step.number, digest)
        self.steps.append(Kept(step_path(step), digest, step))
        return status


def open_lane(folder: Path, state: HostState, clock: Clock) -> OpenLane:
    """Read a lane through the gate.

    Raises:
        MisuseError: no such folder.
        EvidenceError: a step cannot be read at all.
    """
    if not folder.is_dir():
        raise errors.MisuseError(
            where=str(folder), expected="a lane folder", found="no folder", remedy="moegauge gate new LANE"
        )
    lane = OpenLane(folder, state, clock)
    for kept in read_steps(folder):
        step = kept.record
        if not isinstance(step, Step) or not _accepted(lane, kept, step):
            break
    if lane.gate.lane_id is None:
        lane.problems += [f"{name}: a run, and no step that names it" for name in present_files(folder, "runs")]
    else:
        lane.problems += _inventory(lane)
        lane.problems += state.lost_steps(lane.gate.lane_id, [kept.digest for kept in lane.steps])
    return lane


def _accepted(lane: OpenLane, kept: Kept, step: Step) -> bool:
    """Take a step that is on file; False, with a problem, where it cannot be accepted."""
    run = None
    try:
        if kept.path != step_path(step):
            raise errors.Inconsistent(
                where=kept.path, expected=step_path(step), found="another name", remedy="Restore the file's name."
            )
        if isinstance(step, VerdictStep):
            run = read_run(lane.folder, step.phase, lane.gate.registration, recorded=step.files)
        lane.gate.accept(step, kept.digest, run)
    except errors.MoegaugeError as error:
        lane.problems.append(f"{kept.path}: expected {error.expected}, found {error.found}")
        lane.problems += [] if run is None else list(run.problems)
        return False
    lane.steps.append(kept)
    return True


def _inventory(lane: OpenLane) -> list[str]:
    recorded: dict[str, FileDigest] = {}
    for kept in lane.steps:
        step = kept.record
        assert isinstance(step, Step)  # noqa: S101 - read as one
        recorded |= step.files
        path = lane.folder / kept.path
        recorded[kept.path] = FileDigest(digest=kept.digest, num_bytes=path.stat().st_size)
    packet = lane.gate.packet
    authorized = lane.gate.status in {LaneStatus.PHASE_A_AUTHORIZED, LaneStatus.PHASE_B_AUTHORIZED}
    open_under = [f"runs/phase-{packet.phase}"] if packet is not None and authorized else []
    unmarked = [
        f"{name}: a run, and no consumed marker before it"
        for under in open_under
        if not (lane.folder / under / MARKER).exists()
        for name in present_files(lane.folder, under)
    ]
    return [*unmarked, *inventory_differences(lane.folder, recorded, open_under=open_under)]


def read_run(
    folder: Path, phase: Phase, registration: Registration, *, recorded: dict[str, FileDigest] | None = None
) -> RunEvidence:
    """Everything a phase left behind.

    Args:
        folder: the lane. phase: which. registration: whose reader the profiles are in.
        recorded: files the verdict names; None where there is no verdict yet.
    """
    under = f"runs/phase-{phase}"
    present = present_files(folder, under)
    problems = [] if recorded is None else _differences(present, recorded)
    marker = None
    try:
        marker = read_marker(folder, phase)
    except errors.EvidenceError as error:
        problems.append(f"{under}/{MARKER}: {error.found}")
    observations, unreadable = read_observations(folder, phase)
    problems += unreadable
    devices: dict[str, list[Seen]] = {
        name: [Seen(one.record, one.digest) for one in kept if isinstance(one.record, Observation)]
        for name, kept in observations.items()
    }
    profiles: dict[tuple[str, str], CounterTable] = {}
    for name, seen in devices.items():
        for profile in (one.observation for one in seen if isinstance(one.observation, ProfileObservation)):
            path = run_folder(folder, phase) / name / profile.file_name
            table, wrong = _read_profile(path, f"{under}/{name}/{profile.file_name}", registration, profile)
            problems += wrong
            if table is not None:
                profiles[name, profile.file_name] = table
    return RunEvidence(
        marker=marker.record if marker is not None and isinstance(marker.record, ConsumedMarker) else None,
        marker_digest="" if marker is None else marker.digest,
        devices=devices,
        profiles=profiles,
        problems=tuple(problems),
    )


def _differences(present: dict[str, FileDigest], recorded: dict[str, FileDigest]) -> list[str]:
    lines = [f"{name}: recorded but missing" for name in sorted(recorded.keys() - present.keys())]
    lines += [f"{name}: not recorded" for name in sorted(present.keys() - recorded.keys())]
    lines += [
        f"{name}: changed" for name in sorted(present.keys() & recorded.keys()) if present[name] != recorded[name]
    ]
    return lines


def _read_profile(
    path: Path, where: str, registration: Registration, seen: ProfileObservation
) -> tuple[CounterTable | None, list[str]]:
    """A profile as the registered reader understands it, and what is wrong with its file."""
    if path.name != seen.file_name:
        return None, [f"{where}: not a file beside its observation"]
    protocol = registration.counters
    try:
        data = read_bytes(path)
        table = READERS[protocol.reader](data, protocol.metric_names(), where=where)
    except errors.EvidenceError as error:
        return None, [f"{where}: expected {error.expected}, found {error.found}"]
    same = FileDigest(digest=bytes_digest(data), num_bytes=len(data)) == seen.file
    return table, [] if same else [f"{where}: changed since it was observed"]
