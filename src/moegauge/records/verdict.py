"""Statuses of a lane, their order, and the verdict of a phase. See docs/formats/lane.md."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

from moegauge.records.decision import Reason
from moegauge.records.lane import Phase, Step


class LaneStatus(StrEnum):
    """Where a lane stands. The order of this list is the order of standing, best first: losing or damaging evidence
    never moves a lane up in it. A run that was aborted stands below every measured failure: whoever takes away the
    end of a failed run has an aborted one."""

    COMPONENT_PASS = "COMPONENT_PASS"  # noqa: S105 - a status
    PHASE_B_AUTHORIZED = "PHASE_B_AUTHORIZED"
    COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"  # noqa: S105
    PHASE_A_AUTHORIZED = "PHASE_A_AUTHORIZED"
    REHEARSED = "REHEARSED"
    SOURCE_FROZEN = "SOURCE_FROZEN"
    STAGE0_PASS = "STAGE0_PASS"  # noqa: S105
    REGISTERED = "REGISTERED"
    NOT_EVALUABLE = "NOT_EVALUABLE"
    PREFLIGHT_FAILED = "PREFLIGHT_FAILED"
    COUNTERS_FAILED = "COUNTERS_FAILED"
    DEVICE_FAILED_STOP = "DEVICE_FAILED_STOP"
    COMPONENT_FAILED = "COMPONENT_FAILED"
    INFRASTRUCTURE_ABORTED = "INFRASTRUCTURE_ABORTED"
    INVALID_EVIDENCE = "INVALID_EVIDENCE"

    @property
    def standing(self) -> int:
        """0 for the best; larger is worse."""
        return list(LaneStatus).index(self)

    @property
    def terminal(self) -> bool:
        """Whether the state has no exits."""
        return self in TERMINAL


FAILED = frozenset({LaneStatus.COMPONENT_FAILED, LaneStatus.DEVICE_FAILED_STOP, LaneStatus.COUNTERS_FAILED})
"""Measured negatives."""

NOT_JUDGED = frozenset(
    {
        LaneStatus.PREFLIGHT_FAILED,
        LaneStatus.INFRASTRUCTURE_ABORTED,
        LaneStatus.INVALID_EVIDENCE,
        LaneStatus.NOT_EVALUABLE,
    }
)
"""Terminal, and no statement about the candidate."""

TERMINAL = FAILED | NOT_JUDGED | {LaneStatus.COMPONENT_PASS}
"""States without exits: no retry, rescue, source change or replacement packet."""


class SubjectFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of one subject on one device. None throughout where it was not timed.

    Attributes:
        num_wins, num_blocks: blocks with a saving above 0, and all blocks.
        median_saving_ns: median saving per cycle, exact, as text.
        median_saving_ratio: median of saving / incumbent time, exact, as text.
        incumbent_launches, candidate_launches: launches per cycle, exact, as text.
    """

    subject: str
    num_wins: int | None = None
    num_blocks: int | None = None
    median_saving_ns: str | None = None
    median_saving_ratio: str | None = None
    incumbent_launches: str | None = None
    candidate_launches: str | None = None


class CounterFigure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One counter rule on one pair: ``A1B1``, ``A2B2`` or ``aggregate``; values exact, as text."""

    subject: str
    pair: str
    quantity: str
    rule: str
    limit: str
    incumbent: str
    candidate: str
    passed: bool


class DeviceVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device, judged alone. ``status`` is what the lane would have had with this device alone."""

    device: str
    status: LaneStatus
    reasons: tuple[Reason, ...]
    figures: tuple[SubjectFigures, ...] = ()
    counters: tuple[CounterFigure, ...] = ()


class VerdictStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a phase. ``files`` holds every file the run wrote.

    Attributes:
        packet: digest of the packet that was consumed.
        status: of the lane.
        devices: in the order they ran; a device that did not run is not there.
        endpoint_authorized: always false: a component says nothing about a served model.
    """

    kind: ClassVar[str] = "gate-verdict"
    version: ClassVar[int] = 1

    phase: Phase
    packet: str
    status: LaneStatus
    devices: tuple[DeviceVerdict, ...]
    endpoint_authorized: Literal[False] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status is LaneStatus.COMPONENT_PASS and (self.phase == "a" or not self.devices):
            raise ValueError("phase a alone, or no device at all, is no component pass")
