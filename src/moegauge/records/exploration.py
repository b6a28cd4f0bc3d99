"""A trial before registration: what was seen, so that a registration can disclose it. Never evidence for a verdict."""

from __future__ import annotations

from typing import ClassVar

from moegauge.records.packet import DeviceIdentity
from moegauge.records.schema import Record
from moegauge.records.verdict import SubjectFigures


class Exploration(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial on one device.

    Attributes:
        at_ns: UTC time, ns since 1970. phase: ``a`` or ``b``. device: its name in the draft.
        differing: boundaries at which the arms differ, as ``subject, fixture, boundary``.
        figures: by subject, where it was timed.
        profiles: files of the profiler, beside this one.
    """

    kind: ClassVar[str] = "gate-exploration"
    version: ClassVar[int] = 1

    at_ns: int
    phase: str
    device: str
    identity: DeviceIdentity
    differing: tuple[str, ...]
    figures: tuple[SubjectFigures, ...]
    profiles: tuple[str, ...]
