"""moegauge gate authorize: the packet of a phase."""

from __future__ import annotations

from collections.abc import Callable

from moegauge import errors
from moegauge.jobs.gate_processes import runner_surroundings
from moegauge.jobs.lane_state import OpenLane
from moegauge.records.lane import Phase
from moegauge.records.observation import OBSERVATIONS
from moegauge.records.packet import PacketStep, Surroundings
from moegauge.records.verdict import LaneStatus


def authorize(lane: OpenLane, phase: Phase, *, read: Callable[[str], Surroundings] | None = None) -> LaneStatus:
    """Write the packet of a phase. Reads identities, and touches no device.

    Args:
        read: surroundings of a device's runner; its runner reads them where None. A rehearsal has its own.

    Raises:
        MisuseError: the phase is not next, was consumed here before, or something is not what was frozen.
    """
    lane.gate.require(PacketStep)
    lane.refuse_problems()
    gate = lane.gate
    refuse_consumed(lane, phase, None)
    step = lane.new_step(
        PacketStep,
        phase=phase,
        registration=gate.registration_digest,
        freeze=gate.freeze_digest,
        previous_packet=gate.packet_digest if gate.packet is not None else None,
        devices={
            name: runner_surroundings(gate.registration, lane.folder, phase, name) if read is None else read(name)
            for name in gate.registration.devices.names
        },
        expected_schema=tuple(kind.tag() for kind in OBSERVATIONS),
    )
    return lane.take(step)


def refuse_consumed(lane: OpenLane, phase: Phase, packet: str | None) -> None:
    """Refuse a phase whose packet was consumed on this host.

    Args:
        packet: digest of the packet; None where the phase has none yet.

    Raises:
        MisuseError: it was, by this folder or by another copy of it.
    """
    if lane.state.is_consumed(packet, lane.gate.lane_id or "", phase):
        raise errors.MisuseError(
            where=f"phase {phase}",
            expected="a phase that never ran on this host",
            found="a consumed packet of this lane and phase",
            remedy="A packet runs once, from whatever copy of the lane; there is no second run.",
        )
