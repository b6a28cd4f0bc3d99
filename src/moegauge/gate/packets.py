"""What a packet has to agree with before it may authorise a phase."""

from __future__ import annotations

from moegauge.gate.surroundings import surroundings_differences
from moegauge.records.lane import FreezeStep
from moegauge.records.packet import PacketStep, Surroundings
from moegauge.records.registration import Registration


def packet_failures(
    packet: PacketStep,
    registration: Registration,
    freeze: FreezeStep,
    *,
    registration_digest: str,
    freeze_digest: str,
    before: PacketStep | None,
    before_digest: str,
) -> list[str]:
    """Sentences about everything in a packet that is not what was registered and frozen.

    Args:
        before: the packet of phase a, for one of phase b; None for one of phase a. before_digest: of its file.
    """
    found = []
    if (packet.registration, packet.freeze) != (registration_digest, freeze_digest):
        found.append("It names another registration or another source freeze.")
    if packet.previous_packet != (before_digest if before is not None else None):
        found.append("It does not name the packet of the phase before.")
    if tuple(packet.devices) != registration.devices.names:
        found.append(f"Its devices are {list(packet.devices)}; {list(registration.devices.names)} are registered.")
    uuids = [one.device.uuid for one in packet.devices.values()]
    if len(set(uuids)) != len(uuids):
        found.append("Two of its devices are one physical device.")
    for name, one in packet.devices.items():
        found += [f"{name}: {line}" for line in _not_frozen(one, registration, freeze)]
        if before is not None and name in before.devices:
            found += [f"{name}: {line}" for line in _other_than_before(before.devices[name], one)]
    return found


def _not_frozen(one: Surroundings, registration: Registration, freeze: FreezeStep) -> list[str]:
    found = []
    if one.commits != freeze.commits:
        found.append(f"the sources are at {one.commits}; {freeze.commits} are frozen.")
    if one.uncommitted:
        found.append(f"{one.uncommitted[0]} is not as committed.")
    if one.tool_digest != freeze.tool_digest:
        found.append(f"moegauge is {one.tool_digest}; {freeze.tool_digest} was frozen and rehearsed.")
    if one.code != freeze.code:
        found.append("the lane's code is not the frozen one.")
    found += [f"no version of {name}." for name in registration.identities if not one.device.versions.get(name)]
    if not one.device.libraries:
        found.append("no kernel or library file.")
    return found


def _other_than_before(before: Surroundings, after: Surroundings) -> list[str]:
    """Phase b runs on the device, driver and binaries of phase a; its arguments alone are its own."""
    lines = surroundings_differences(before, after)
    return [line for line in lines if not line.startswith("argv ")]
