"""From what a run observed to a status: one device alone, then the lane. Nothing averages a failure away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from moegauge.gate.bitwise import exactness_failures, missing_observations
from moegauge.gate.blocks import invalid_blocks, joint_failures, timing_failures
from moegauge.gate.counters import CounterTable, counter_failures
from moegauge.gate.surroundings import surroundings_differences
from moegauge.records.decision import Reason, reason
from moegauge.records.lane import FreezeStep
from moegauge.records.observation import (
    BindingObservation,
    BlockObservation,
    EndObservation,
    ExactnessObservation,
    FailureObservation,
    Observation,
    ProfileObservation,
    RepeatObservation,
)
from moegauge.records.packet import ConsumedMarker, PacketStep
from moegauge.records.registration import Registration
from moegauge.records.subject import Subject
from moegauge.records.verdict import CounterFigure, DeviceVerdict, LaneStatus, SubjectFigures

STATUS_OF: dict[str, LaneStatus] = {
    "EVIDENCE_DAMAGED": LaneStatus.INVALID_EVIDENCE,
    "CHAIN_BROKEN": LaneStatus.INVALID_EVIDENCE,
    "CLOCK_WENT_BACK": LaneStatus.INVALID_EVIDENCE,
    "OBSERVATION_MISSING": LaneStatus.INVALID_EVIDENCE,
    "INPUT_NOT_REGISTERED": LaneStatus.INVALID_EVIDENCE,
    "TIME_INVALID": LaneStatus.INVALID_EVIDENCE,
    "THROTTLED": LaneStatus.INVALID_EVIDENCE,
    "COUNTER_MISSING": LaneStatus.INVALID_EVIDENCE,
    "PROFILE_INVALID": LaneStatus.INVALID_EVIDENCE,
    "IDENTITY_DIFFERS": LaneStatus.PREFLIGHT_FAILED,
    "RUN_ENDED_EARLY": LaneStatus.INFRASTRUCTURE_ABORTED,
    "RUNNER_FAILED": LaneStatus.INFRASTRUCTURE_ABORTED,
    "INCUMBENT_NOT_REPEATABLE": LaneStatus.NOT_EVALUABLE,
    "ORACLE_INVALID": LaneStatus.NOT_EVALUABLE,
    "LAYOUT_BREACH": LaneStatus.NOT_EVALUABLE,
    "INPUT_CHANGED": LaneStatus.COMPONENT_FAILED,
    "NOT_FULLY_WRITTEN": LaneStatus.COMPONENT_FAILED,
    "WORDS_DIFFER": LaneStatus.COMPONENT_FAILED,
    "TORCH_UNEQUAL": LaneStatus.COMPONENT_FAILED,
    "CANDIDATE_NOT_REPEATABLE": LaneStatus.COMPONENT_FAILED,
    "LAUNCHES_DIFFER": LaneStatus.COMPONENT_FAILED,
    "TOO_FEW_WINS": LaneStatus.COMPONENT_FAILED,
    "SAVING_TOO_SMALL": LaneStatus.COMPONENT_FAILED,
    "JOINT_SAVING_TOO_SMALL": LaneStatus.COMPONENT_FAILED,
    "COUNTER_RULE_MISSED": LaneStatus.COUNTERS_FAILED,
}
"""What each reason makes of a device."""

_FIRST = (
    LaneStatus.INVALID_EVIDENCE,
    LaneStatus.PREFLIGHT_FAILED,
    LaneStatus.NOT_EVALUABLE,
    LaneStatus.COMPONENT_FAILED,
    LaneStatus.COUNTERS_FAILED,
    LaneStatus.INFRASTRUCTURE_ABORTED,
)
"""Which status a device with several reasons has: what makes evidence unusable comes before what it would say, and a
failure that was written down comes before the end of the process that saw it."""

_PASS_OF = {"a": LaneStatus.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS, "b": LaneStatus.COMPONENT_PASS}
_ObservationT = TypeVar("_ObservationT", bound=Observation)


@dataclass(frozen=True)
class Seen:
    """An observation and the digest of its file."""

    observation: Observation
    digest: str


@dataclass(frozen=True)
class RunEvidence:
    """Everything a phase left behind, as it was read.

    Attributes:
        marker: the consumed marker; None where there is none. marker_digest: digest of its file.
        devices: observations by device, in file order.
        profiles: profiles by (device, file name), as a reader understood them.
        problems: sentences about files that are missing, extra, changed or unreadable.
    """

    marker: ConsumedMarker | None
    marker_digest: str
    devices: Mapping[str, Sequence[Seen]]
    profiles: Mapping[tuple[str, str], CounterTable] = field(default_factory=dict)
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Judged:
    """Status of the lane after a phase, and of every device that ran."""

    status: LaneStatus
    devices: tuple[DeviceVerdict, ...]


@dataclass(frozen=True)
class Case:
    """A phase that is to be judged: what was registered, frozen and authorised, and what was observed."""

    registration: Registration
    freeze: FreezeStep
    packet: PacketStep
    packet_digest: str
    run: RunEvidence


def judge(case: Case) -> Judged:
    """Judge a phase: every device that ran, in the registered order, up to the first that did not pass."""
    whole = _whole_run(case)
    devices: list[DeviceVerdict] = []
    for name in case.registration.devices.names:
        if name not in case.run.devices and devices and devices[-1].status is not _PASS_OF[case.packet.phase]:
            break
        devices.append(_device(case, name, whole))
        whole = []  # said once
    return Judged(_lane_status(case, devices), tuple(devices))


def _lane_status(case: Case, devices: Sequence[DeviceVerdict]) -> LaneStatus:
    passed = _PASS_OF[case.packet.phase]
    num_registered = len(case.registration.devices.names)
    failed = [one.status for one in devices if one.status is not passed]
    if not failed:
        return passed if len(devices) == num_registered else LaneStatus.INVALID_EVIDENCE
    if failed[0] is LaneStatus.COMPONENT_FAILED and num_registered > 1:
        return LaneStatus.DEVICE_FAILED_STOP
    return failed[0]


def _whole_run(case: Case) -> list[Reason]:
    """What is wrong with the run as a whole."""
    found = [reason("EVIDENCE_DAMAGED", sentence) for sentence in case.run.problems]
    marker = case.run.marker
    if marker is None:
        found.append(reason("EVIDENCE_DAMAGED", "The consumed marker of the packet is not there."))
    elif (marker.packet, marker.phase) != (case.packet_digest, case.packet.phase):
        found.append(reason("CHAIN_BROKEN", "The consumed marker is that of another packet."))
    found += [
        reason("EVIDENCE_DAMAGED", f"{name}: a device that is not registered.")
        for name in case.run.devices
        if name not in case.registration.devices.names
    ]
    return found


def _device(case: Case, name: str, whole: Sequence[Reason]) -> DeviceVerdict:
    phase = case.packet.phase
    seen = case.run.devices.get(name, ())
    observations = [one.observation for one in seen]
    reasons = [*whole, *_chain(name, case.run, seen), *_binding(case.packet, name, observations)]
    figures: list[SubjectFigures] = []
    counters: list[CounterFigure] = []
    ended = _ended(observations)
    if not reasons:
        for subject in case.registration.subjects:
            if phase == "a":
                one, against = _phase_a(case, subject, observations, complete=ended is None)
                figures.append(one)
            else:
                rules, against = _phase_b(case, subject, name, observations, complete=ended is None)
                counters += rules
            reasons += against
        if phase == "a" and not reasons:
            reasons += joint_failures(case.registration.joint, figures)
        if ended is not None and (not reasons or ended.code != "OBSERVATION_MISSING"):
            reasons.insert(0, ended)
    status = next((one for one in _FIRST if one in {STATUS_OF[why.code] for why in reasons}), _PASS_OF[phase])
    if phase == "b" and status is LaneStatus.COMPONENT_FAILED:
        status = LaneStatus.COUNTERS_FAILED  # launches of a profile are a counter
    return DeviceVerdict(
        device=name,
        status=status,
        reasons=tuple(reasons) or (_passed(case.packet),),
        figures=tuple(figures),
        counters=tuple(counters),
    )


def _passed(packet: PacketStep) -> Reason:
    if packet.phase == "a":
        return reason("EXACT_AND_FAST_ENOUGH", "Every word agrees, and every registered bound of timing holds.")
    return reason("COUNTERS_HOLD", "Every counter rule holds for both matched pairs and for the aggregate.")


def _chain(name: str, run: RunEvidence, seen: Sequence[Seen]) -> Iterable[Reason]:
    """Observations are numbered, hold each other's digests, and are never earlier than the one before."""
    previous, at_ns = run.marker_digest, 0 if run.marker is None else run.marker.at_ns
    for number, one in enumerate(seen):
        found = one.observation
        if (found.number, found.previous, found.device) != (number, previous, name):
            yield reason("CHAIN_BROKEN", f"{name}, observation {number}: it does not follow the one before it.")
            return
        if found.at_ns < at_ns:
            yield reason("CLOCK_WENT_BACK", f"{name}, observation {number}: {at_ns - found.at_ns} ns before the last.")
            return
        if isinstance(found, EndObservation | FailureObservation) and number != len(seen) - 1:
            yield reason("CHAIN_BROKEN", f"{name}, observation {number}: the run goes on behind its end.")
            return
        previous, at_ns = one.digest, found.at_ns


def _binding(packet: PacketStep, name: str, observations: Sequence[Observation]) -> Iterable[Reason]:
    if not observations:
        return
    first = observations[0]
    if not isinstance(first, BindingObservation):
        yield reason("CHAIN_BROKEN", f"{name}: the run does not begin with the surroundings.")
        return
    for line in surroundings_differences(packet.devices[name], first.surroundings):
        yield reason("IDENTITY_DIFFERS", f"{name}: {line}")


def _ended(observations: Sequence[Observation]) -> Reason | None:
    """Why the run is not complete; None where it came to its end."""
    last = observations[-1] if observations else None
    if isinstance(last, EndObservation):
        if last.stopped_before is None:
            return None
        return reason("OBSERVATION_MISSING", f"{last.device}: the run stopped before {last.stopped_before}.")
    if isinstance(last, FailureObservation):
        return reason("LAYOUT_BREACH" if last.what == "layout" else "RUNNER_FAILED", f"{last.device}: {last.sentence}")
    return reason("RUN_ENDED_EARLY", "The run has no end: its process was stopped, or died.")


def _phase_a(
    case: Case, subject: Subject, observations: Sequence[Observation], *, complete: bool
) -> tuple[SubjectFigures, list[Reason]]:
    seen = _of(ExactnessObservation, subject, observations)
    repeats = _of(RepeatObservation, subject, observations)
    blocks = _of(BlockObservation, subject, observations)
    frozen = case.freeze.fixtures[subject.name]
    reasons = exactness_failures(subject, frozen, seen, repeats)
    figures = SubjectFigures(subject=subject.name)
    if complete:
        reasons += missing_observations(subject, frozen, seen, repeats)
        unusable = invalid_blocks(subject, blocks, throttle=case.registration.devices.throttle)
        reasons += unusable
        if not unusable:
            figures, slow = timing_failures(subject, blocks)
            reasons += slow
    return figures, reasons


def _phase_b(
    case: Case, subject: Subject, device: str, observations: Sequence[Observation], *, complete: bool
) -> tuple[list[CounterFigure], list[Reason]]:
    if not complete:
        return [], []
    seen = _of(ProfileObservation, subject, observations)
    if [one.arm for one in seen] != ["a1", "b1", "b2", "a2"]:
        return [], [reason("OBSERVATION_MISSING", f"{subject.name}: profiles of {[one.arm for one in seen]}.")]
    read = case.run.profiles
    profiles = {str(one.arm): read[device, one.file_name] for one in seen if (device, one.file_name) in read}
    return counter_failures(case.registration.counters, subject, profiles)


def _of(kind: type[_ObservationT], subject: Subject, observations: Sequence[Observation]) -> list[_ObservationT]:
    return [one for one in observations if isinstance(one, kind) and getattr(one, "subject", None) == subject.name]
