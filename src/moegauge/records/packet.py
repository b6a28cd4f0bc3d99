"""A packet: what one authorised, one-shot phase may do, where, and with which bytes. See docs/formats/lane.md."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from moegauge.records.lane import Phase, Step
from moegauge.records.schema import Record


class DeviceIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A physical device and the software that drives it.

    Attributes:
        uuid, bus_id: identity of the device; an index is none, for masks renumber it.
        versions: driver, runtime, compiler and whatever else the registration asks for, by name.
        libraries: digest of every kernel or library file, by path.
    """

    uuid: str
    bus_id: str
    model: str
    versions: dict[str, str]
    libraries: dict[str, str]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a packet freezes of one device's runner, and a runner reads again before it touches the device.

    Attributes:
        boot_id: of the running kernel.
        commits: commit of each source. uncommitted: files that differ from it, as ``source: path``.
        tool_digest, code: as in the source freeze.
        argv, environment: of the runner's process, whole.
    """

    device: DeviceIdentity
    boot_id: str
    commits: dict[str, str]
    uncommitted: tuple[str, ...]
    tool_digest: str
    code: dict[str, str]
    argv: tuple[str, ...]
    environment: dict[str, str]


class PacketStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The authorisation of one phase, once.

    Attributes:
        phase: ``a`` (exactness, timing, exactness again) or ``b`` (counters).
        registration: digest of the registration in force. freeze: digest of the source freeze.
        previous_packet: phase b: digest of the packet of phase a; None for phase a.
        devices: surroundings by device name, in the order they are run.
        expected_schema: schema of every record the run may write.
        num_campaigns, retry_authorized, endpoint_authorized: always 1, false, false.
    """

    kind: ClassVar[str] = "gate-packet"
    version: ClassVar[int] = 1

    phase: Phase
    registration: str
    freeze: str
    previous_packet: str | None
    devices: dict[str, Surroundings]
    expected_schema: tuple[str, ...]
    num_campaigns: Literal[1] = 1
    retry_authorized: Literal[False] = False
    endpoint_authorized: Literal[False] = False


class ConsumedMarker(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That a packet has been consumed. Written before the first device action, in host state and in the lane folder."""

    kind: ClassVar[str] = "gate-consumed"
    version: ClassVar[int] = 1

    packet: str
    registration: str
    phase: Phase
    at_ns: int
    boot_id: str
