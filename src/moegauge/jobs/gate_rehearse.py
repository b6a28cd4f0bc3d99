"""moegauge gate rehearse: every fault, through the whole runner, reader and analyser, in folders of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.adapters.counters.readers import READERS
from moegauge.evidence.host_state import HostState
from moegauge.evidence.store import read_bytes
from moegauge.gate.counters import CounterProblem, check_profile
from moegauge.gate.rehearsal import FAULTS, Fault, expected_status, fault_label
from moegauge.jobs.gate_packets import authorize
from moegauge.jobs.gate_processes import runner_surroundings
from moegauge.jobs.gate_run import conclude, run_packet
from moegauge.jobs.gate_runner import run_argv
from moegauge.jobs.lane_code import tool_digest
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.jobs.progress import Progress, silent
from moegauge.records.lane import RehearsalStep, Rehearsed
from moegauge.records.packet import Surroundings
from moegauge.records.registration import Registration
from moegauge.records.verdict import LaneStatus

READ = "read"
"""What a real profile has to come to."""


def rehearse(lane: OpenLane, *, progress: Progress = silent) -> LaneStatus:
    """Rehearse every fault and every real profile, and keep what each came to."""
    lane.gate.require(RehearsalStep)
    lane.refuse_problems()
    registration = lane.gate.registration
    campaigns = list(_profiles(registration, lane.folder))
    with tempfile.TemporaryDirectory(prefix="moegauge-rehearsal-") as scratch:
        stage = _Stage(lane, Path(scratch))
        for number, fault in enumerate(FAULTS):
            progress(f"rehearsing {fault_label(fault)}", number, len(FAULTS))
            campaigns.append(stage.campaign(fault))
    return lane.take(lane.new_step(RehearsalStep, tool_digest=tool_digest(), campaigns=tuple(campaigns)))


class _Stage:
    """Copies of a lane in which campaigns are rehearsed."""

    def __init__(self, lane: OpenLane, scratch: Path) -> None:
        self.lane, self.scratch = lane, scratch
        self.sources = ("--sources", str(lane.folder.resolve()))
        registration = lane.gate.registration
        self.surroundings = {
            name: runner_surroundings(
                registration, lane.folder, "a", name, options=(*self.sources, "--simulate", "none")
            )
            for name in registration.devices.names
        }
        self.passed: OpenLane | None = None
        self.ready = self._copy(lane.folder, None, "ready")
        self.ready.take(self._as_if_rehearsed())

    def campaign(self, fault: Fault) -> Rehearsed:
        """Rehearse one fault; whatever goes wrong is what it ended in."""
        expected = expected_status(fault, self.lane.gate.registration)
        try:
            copy = self._run(fault)
            found, sentence = str(copy.gate.status), copy.gate.reasons[0].sentence
            if fault == FAULTS[0]:
                self.passed = copy
        except (errors.MoegaugeError, OSError) as error:
            found, sentence = type(error).__name__, str(error)
        return Rehearsed(fault=fault_label(fault), expected=str(expected), found=found, sentence=sentence)

    def _run(self, fault: Fault) -> OpenLane:
        """Both phases need their packet, their marker and their verdict; phase b goes on from a passed phase a."""
        base = self.ready if fault.phase == "a" else self.passed
        if base is None:
            raise errors.MisuseError(
                where="phase b", expected="a passed phase a", found="none", remedy="Correct what phase a ended in."
            )
        copy = self._copy(base.folder, base.state, f"{fault.phase}-{fault.name}")
        options = (*self.sources, "--simulate", fault.name)

        def read(name: str) -> Surroundings:
            argv = run_argv(fault.phase, name, options=options)
            return msgspec.structs.replace(self.surroundings[name], argv=argv)

        authorize(copy, fault.phase, read=read)
        packet = copy.gate.packet
        assert packet is not None  # noqa: S101 - just authorised
        run_packet(copy, packet)
        conclude(copy)
        return open_lane(copy.folder, copy.state, copy.clock)

    def _copy(self, folder: Path, state: HostState | None, name: str) -> OpenLane:
        target, memory = self.scratch / name / "lane", self.scratch / name / "state"
        shutil.copytree(folder, target)
        if state is not None and state.folder.is_dir():
            shutil.copytree(state.folder, memory)
        return open_lane(target, HostState(memory), self.lane.clock)

    def _as_if_rehearsed(self) -> RehearsalStep:
        """What a passed rehearsal says, so that the copies may go on; it never leaves them."""
        campaigns = [
            Rehearsed(fault=fault_label(one), expected=str(status), found=str(status), sentence="")
            for one in FAULTS
            for status in [expected_status(one, self.lane.gate.registration)]
        ]
        return self.ready.new_step(RehearsalStep, tool_digest=tool_digest(), campaigns=tuple(campaigns))


def _profiles(registration: Registration, folder: Path) -> Iterator[Rehearsed]:
    """Every real profile that the registration names, through the registered reader and rules."""
    protocol = registration.counters
    for subject in registration.subjects:
        for name, arm in (("incumbent", subject.incumbent), ("candidate", subject.candidate)):
            if arm.profile_example is None:
                continue
            where = arm.profile_example
            found, sentence = READ, f"{where} is read"
            try:
                table = READERS[protocol.reader](read_bytes(folder / where), protocol.metric_names(), where=where)
                check_profile(protocol, arm, table, where=where)
            except errors.EvidenceError as error:
                found, sentence = error.code, str(error)
            except CounterProblem as problem:
                found, sentence = problem.why.code, problem.why.sentence
            yield Rehearsed(fault=f"profile/{subject.name}/{name}", expected=READ, found=found, sentence=sentence)
