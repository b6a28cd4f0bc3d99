"""moegauge gate run: consume a packet, run every device, and take the verdict from what they left behind."""

from __future__ import annotations

from moegauge import errors
from moegauge.adapters.git import refuse_uncommitted
from moegauge.evidence.host_state import boot_id, is_writable
from moegauge.evidence.lane_folder import MARKER, present_files, run_folder, step_path, write_new
from moegauge.jobs.gate_packets import refuse_consumed
from moegauge.jobs.gate_processes import run_device
from moegauge.jobs.lane_state import OpenLane, read_run
from moegauge.jobs.progress import Progress, silent
from moegauge.records.lane import Phase
from moegauge.records.packet import ConsumedMarker, PacketStep
from moegauge.records.schema import canonical_bytes
from moegauge.records.verdict import FAILED, LaneStatus, VerdictStep

PASSED = frozenset({LaneStatus.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS, LaneStatus.COMPONENT_PASS})


def run(lane: OpenLane, phase: Phase, *, progress: Progress = silent) -> LaneStatus:
    """Run an authorised phase, once.

    Where the packet was consumed by a run that never came to a verdict, nothing runs: the verdict is taken from what
    that run left behind.

    Raises:
        MisuseError: not authorised, the packet is not committed, consumed from another copy, or running now.
    """
    lane.gate.require(VerdictStep)
    lane.refuse_problems()
    packet = _packet(lane, phase)
    with lane.state.lock(lane.gate.lane_id or ""):
        if lane.open_phase is None:
            refuse_consumed(lane, phase, lane.gate.packet_digest)
            refuse_uncommitted(lane.folder / step_path(packet))
            run_packet(lane, packet, progress=progress)
        return conclude(lane)


def _packet(lane: OpenLane, phase: Phase) -> PacketStep:
    packet = lane.gate.packet
    if packet is None or packet.phase != phase:
        raise errors.MisuseError(
            where=f"phase {phase}",
            expected=f"the authorised phase, {'none' if packet is None else packet.phase}",
            found=f"phase {phase}",
            remedy="Run the phase that gate status names.",
        )
    return packet


def run_packet(lane: OpenLane, packet: PacketStep, *, progress: Progress = silent) -> None:
    """Consume a packet, then run its devices one after the other, up to the first that does not pass."""
    if not is_writable(lane.state.folder):
        raise errors.MisuseError(
            where=str(lane.state.folder),
            expected="host state that can be written",
            found="no permission",
            remedy="Set MOEGAUGE_STATE_DIR; nothing was consumed.",
        )
    marker = ConsumedMarker(
        schema=ConsumedMarker.tag(),
        packet=lane.gate.packet_digest,
        registration=lane.gate.registration_digest,
        phase=packet.phase,
        at_ns=lane.clock(),
        boot_id=boot_id(),
    )
    folder = run_folder(lane.folder, packet.phase)
    write_new(folder / MARKER, canonical_bytes(marker))
    lane.state.consume(marker, lane.gate.lane_id or "")
    names = list(packet.devices)
    for number, name in enumerate(names):
        progress(f"phase {packet.phase}: {name}", number, len(names))
        run_device(packet.devices[name], lane.folder)
        judged = lane.gate.judge(read_run(lane.folder, packet.phase, lane.gate.registration))
        if not any(one.device == name and one.status in PASSED for one in judged.devices):
            return


def conclude(lane: OpenLane) -> LaneStatus:
    """Take the verdict of a consumed packet from its evidence."""
    packet = lane.gate.packet
    assert packet is not None  # noqa: S101 - a phase is authorised
    evidence = read_run(lane.folder, packet.phase, lane.gate.registration)
    judged = lane.gate.judge(evidence)
    step = lane.new_step(
        VerdictStep,
        files=present_files(lane.folder, f"runs/phase-{packet.phase}"),
        phase=packet.phase,
        packet=lane.gate.packet_digest,
        status=judged.status,
        devices=judged.devices,
    )
    return lane.take(step, evidence)


def exit_status(status: LaneStatus) -> int:
    """Exit status of a phase: 0 passed, 1 a measured negative, 2 no statement about the candidate."""
    if status in PASSED:
        return 0
    return 1 if status in FAILED else 2
