"""The rehearsal: faults, and the status each has to end in.

Most lanes of this kind were lost to their own tooling, not to their kernel. So the whole runner, reader and analyser
run first against a simulated device (simulation.py), once for each fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from moegauge.records.decision import Reason, reason
from moegauge.records.lane import FreezeStep, Phase, RehearsalStep
from moegauge.records.registration import Registration
from moegauge.records.verdict import LaneStatus


@dataclass(frozen=True)
class Fault:
    """One fault. ``expected`` is the status of a lane with one device."""

    name: str
    phase: Phase
    expected: LaneStatus


_S = LaneStatus
_PENDING = _S.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS

FAULTS = (
    Fault("none", "a", _PENDING),
    Fault("linear-drift", "a", _PENDING),
    Fault("launch-count", "a", _S.COMPONENT_FAILED),
    Fault("slow-candidate", "a", _S.COMPONENT_FAILED),
    Fault("throttling", "a", _S.INVALID_EVIDENCE),
    Fault("flipped-bit", "a", _S.COMPONENT_FAILED),
    Fault("stale-output", "a", _S.COMPONENT_FAILED),
    Fault("unwritten-output", "a", _S.COMPONENT_FAILED),
    Fault("unrepeatable-incumbent", "a", _S.NOT_EVALUABLE),
    Fault("wrong-layout", "a", _S.NOT_EVALUABLE),
    Fault("wrong-device", "a", _S.PREFLIGHT_FAILED),
    Fault("changed-binary", "a", _S.PREFLIGHT_FAILED),
    Fault("dirty-tree", "a", _S.PREFLIGHT_FAILED),
    Fault("device-error", "a", _S.INFRASTRUCTURE_ABORTED),
    Fault("killed", "a", _S.INFRASTRUCTURE_ABORTED),
    Fault("none", "b", _S.COMPONENT_PASS),
    Fault("counter-limit", "b", _S.COUNTERS_FAILED),
    Fault("profiled-launches", "b", _S.COUNTERS_FAILED),
    Fault("missing-counter", "b", _S.INVALID_EVIDENCE),
    Fault("schema-drift", "b", _S.INVALID_EVIDENCE),
    Fault("killed", "b", _S.INFRASTRUCTURE_ABORTED),
)
"""Every fault that a rehearsal puts in."""

_OF_TIMING = frozenset({"launch-count", "slow-candidate", "throttling"})


def expected_status(fault: Fault, registration: Registration) -> LaneStatus:
    """The status a fault has to end in under a registration: without timing there is nothing to be slow in."""
    timed = any(one.timing is not None for one in registration.subjects)
    if fault.name in _OF_TIMING and not timed:
        return _PENDING
    if fault.name == "throttling" and registration.devices.throttle == "recorded":
        return _PENDING
    if fault.name == "slow-candidate" and not _time_decides(registration):
        return _PENDING
    if fault.expected is _S.COMPONENT_FAILED and len(registration.devices.names) > 1:
        return _S.DEVICE_FAILED_STOP
    return fault.expected


def _time_decides(registration: Registration) -> bool:
    return registration.joint is not None or any(one.timing is not None for one in registration.subjects)


def rehearsal_failures(step: RehearsalStep, freeze: FreezeStep) -> tuple[Reason, ...]:
    """Everything that keeps a rehearsal from passing."""
    found = []
    if step.tool_digest != freeze.tool_digest:
        found.append(reason("REHEARSAL_FAILED", "The rehearsed tool is not the frozen one."))
    rehearsed = [one.fault for one in step.campaigns]
    wanted = [fault_label(one) for one in FAULTS]
    missing = [one for one in wanted if one not in rehearsed]
    if missing:
        found.append(reason("REHEARSAL_FAILED", f"Not rehearsed: {', '.join(missing)}."))
    found += [
        reason("REHEARSAL_FAILED", f"{one.fault} ended in {one.found}, not in {one.expected}: {one.sentence}")
        for one in step.campaigns
        if not one.passed
    ]
    return tuple(found)


def fault_label(fault: Fault) -> str:
    """Name of a fault with its phase."""
    return f"{fault.phase}/{fault.name}"
