"""moegauge gate status: where a lane stands, why, and what is next."""

from __future__ import annotations

import msgspec

from moegauge.jobs.lane_state import OpenLane
from moegauge.records.decision import Reason
from moegauge.records.verdict import DeviceVerdict, LaneStatus, VerdictStep


class LaneView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What there is to say of a lane.

    Attributes:
        lane: its name; None before registration. status: None before registration.
        reasons: why the last step left that status. problems: what is wrong with its evidence.
        consumed: phase whose packet was consumed and has no verdict; None where there is none.
        steps: files of the steps taken.
        devices: verdicts of every phase that has one, in order.
        next: what may be done now.
    """

    lane: str | None
    status: str | None
    reasons: tuple[Reason, ...]
    problems: tuple[str, ...]
    consumed: str | None
    steps: tuple[str, ...]
    devices: tuple[DeviceVerdict, ...]
    endpoint_authorized: bool
    next: str


_NEXT: dict[LaneStatus | None, str] = {
    None: "write registration.toml, then register",
    LaneStatus.REGISTERED: "commit the sources, then check",
    LaneStatus.STAGE0_PASS: "two audits, then freeze",
    LaneStatus.SOURCE_FROZEN: "rehearse",
    LaneStatus.REHEARSED: "authorize --phase a",
    LaneStatus.PHASE_A_AUTHORIZED: "commit the packet, then run --phase a",
    LaneStatus.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS: "authorize --phase b",
    LaneStatus.PHASE_B_AUTHORIZED: "commit the packet, then run --phase b",
    LaneStatus.COMPONENT_PASS: "nothing; the component passed, and nothing is said of a served model",
}


def lane_view(lane: OpenLane) -> LaneView:
    """Say where a lane stands."""
    gate = lane.gate
    status = lane.status
    following = _NEXT.get(status, "nothing; the state is terminal")
    consumed = lane.open_phase
    if consumed is not None and not lane.problems:
        following = f"run --phase {consumed} takes the verdict from what the consumed packet left; nothing runs again"
    return LaneView(
        lane=None if gate.status is None else gate.registration.lane,
        status=None if status is None else str(status),
        reasons=gate.reasons,
        problems=tuple(lane.problems),
        consumed=consumed,
        steps=tuple(kept.path for kept in lane.steps),
        devices=() if gate.verdict is None else _verdicts(lane),
        endpoint_authorized=False,
        next=following,
    )


def _verdicts(lane: OpenLane) -> tuple[DeviceVerdict, ...]:
    taken = [kept.record for kept in lane.steps]
    return tuple(device for step in taken if isinstance(step, VerdictStep) for device in step.devices)
