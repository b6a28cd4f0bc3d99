"""The runner: one process a device and phase, with exactly the packet's arguments and environment.

    python -m moegauge.jobs.gate_runner surroundings|run PHASE DEVICE [--sources ROOT] [--simulate FAULT]

It runs in the lane folder. ``surroundings`` prints what a packet freezes, and touches no device. ``run`` reads the
surroundings again, writes them as its first observation, ends there if they are not the packet's, and goes on to the
device. It judges nothing and writes nothing but observations; whoever started it judges from their files.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moegauge.adapters.counters.readers import WRITERS
from moegauge.adapters.git import source_commit, uncommitted
from moegauge.evidence.host_state import boot_id
from moegauge.evidence.lane_folder import read_marker, read_steps, run_folder, write_new, write_observation
from moegauge.gate.ports import DeviceFailure, Devices, Lane
from moegauge.gate.running import Draft, LayoutBreach, Profile, phase_a, phase_b
from moegauge.gate.simulation import SimulatedCounters, SimulatedDevice, distorted, simulated_identity
from moegauge.gate.surroundings import surroundings_differences
from moegauge.jobs.lane_code import code_digests, entry, put_on_path, registration_in_force, source_paths, tool_digest
from moegauge.records.lane import Phase
from moegauge.records.observation import BindingObservation, FailureObservation, Observation, ProfileObservation
from moegauge.records.packet import PacketStep, Surroundings
from moegauge.records.registration import Registration

MODULE = "moegauge.jobs.gate_runner"


@dataclass(frozen=True)
class Order:
    """What a runner was told: the words of its command line."""

    what: str
    phase: Phase
    device: str
    sources: Path
    fault: str | None

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Order:
        """Read the command line; the packet fixed it, so it is never wrong by accident."""
        what, phase, device, *rest = arguments
        options = dict(zip(rest[::2], rest[1::2], strict=True))
        checked: Phase = "a" if phase == "a" else "b"
        return cls(what, checked, device, Path(options.get("--sources", ".")), options.get("--simulate"))


def run_argv(phase: Phase, device: str, *, options: Sequence[str] = ()) -> tuple[str, ...]:
    """The command line of a run."""
    return (sys.executable, "-m", MODULE, "run", phase, device, *options)


def main(arguments: Sequence[str]) -> int:
    """Print surroundings, or run a phase; 0 unless it could not even begin."""
    order = Order.parse(arguments)
    folder = Path.cwd()
    registration, packet = _in_force(folder)
    put_on_path(registration, order.sources)
    if order.what == "surroundings":
        options = arguments[3:]
        found = read_surroundings(registration, folder, order, run_argv(order.phase, order.device, options=options))
        sys.stdout.buffer.write(msgspec.json.encode(found))
        return 0
    if packet is None or packet.phase != order.phase:
        sys.stderr.write(f"no packet of phase {order.phase} authorises this run\n")
        return 2
    _Run(registration, packet, order, folder).go()
    return 0


def _in_force(folder: Path) -> tuple[Registration, PacketStep | None]:
    """The registration and the packet in force; whether they were taken in order is the gate's to judge."""
    steps = read_steps(folder)
    registration = registration_in_force(steps)
    packets = [kept.record for kept in steps if isinstance(kept.record, PacketStep)]
    if registration is None:
        sys.stderr.write("the lane is not registered\n")
        raise SystemExit(2)
    return registration, packets[-1] if packets else None


def read_surroundings(registration: Registration, folder: Path, order: Order, argv: Sequence[str]) -> Surroundings:
    """Everything a packet freezes of this runner, as it is now. Touches no device."""
    if order.fault is None:
        devices: Devices = entry(registration.code.devices)
        identity = devices.identify(registration, order.device)
    else:
        identity = simulated_identity(order.device, registration)
    paths = source_paths(registration, order.sources)
    lane = order.sources.resolve()
    return Surroundings(
        device=identity,
        boot_id=boot_id(),
        commits={name: source_commit(path, lane=lane) for name, path in paths.items()},
        uncommitted=tuple(f"{name}: {one}" for name, path in paths.items() for one in uncommitted(path, lane=lane)),
        tool_digest=tool_digest(),
        code=code_digests(registration, order.sources),
        argv=tuple(argv),
        environment=dict(os.environ),
    )


class _Run:
    """One run: observations in a chain, each on disk before the next action."""

    def __init__(self, registration: Registration, packet: PacketStep, order: Order, folder: Path) -> None:
        self.registration, self.packet, self.order, self.folder = registration, packet, order, folder
        self.target = run_folder(folder, order.phase)
        marker = read_marker(folder, order.phase)
        if marker is None:
            sys.stderr.write("the packet was not consumed; no device was touched\n")
            raise SystemExit(2)
        self.number, self.previous = 0, marker.digest

    def go(self) -> None:
        """Write the surroundings and, where they are the packet's, everything the phase observes."""
        found = read_surroundings(self.registration, self.folder, self.order, sys.orig_argv)
        if self.order.fault is not None:
            found = distorted(found, self.order.fault)
        self.write(BindingObservation, {"surroundings": found})
        if surroundings_differences(self.packet.devices[self.order.device], found):
            return
        try:
            for draft in self.drafts():
                self.keep(draft)
        except LayoutBreach as error:
            self.write(FailureObservation, {"what": "layout", "sentence": str(error)})
        except DeviceFailure as error:
            self.write(FailureObservation, {"what": "device", "sentence": str(error)})
        except Exception as error:
            self.write(FailureObservation, {"what": "runner", "sentence": f"{type(error).__name__}: {error}"})

    def drafts(self) -> Iterator[Draft | Profile]:
        """The observations of the phase, as they are made."""
        fault, registration = self.order.fault, self.registration
        lane: Lane = entry(registration.code.lane)
        if fault is not None:
            if self.order.phase == "a":
                yield from phase_a(registration, lane, SimulatedDevice(registration, lane, fault, _die))
            else:
                written = WRITERS[registration.counters.reader]
                yield from phase_b(registration, SimulatedCounters(registration, fault, _die, written))
            return
        devices: Devices = entry(registration.code.devices)
        if self.order.phase == "b":
            yield from phase_b(registration, devices.counters(registration, self.order.device))
            return
        device = devices.open(registration, self.order.device)
        try:
            yield from phase_a(registration, lane, device)
        finally:
            device.close()

    def keep(self, draft: Draft | Profile) -> None:
        """Put a draft on disk; a profiler's file comes before the observation that names it."""
        if isinstance(draft, Draft):
            self.write(draft.kind, draft.fields)
            return
        name = f"{draft.subject}-{draft.arm}.profile"
        file = write_new(self.target / self.order.device / name, draft.data)
        fields = {"subject": draft.subject, "arm": draft.arm, "file_name": name, "file": file}
        self.write(ProfileObservation, fields)

    def write(self, kind: type[Observation], fields: dict[str, Any]) -> None:
        """Write the next observation of the chain."""
        observation = kind(
            schema=kind.tag(),
            number=self.number,
            previous=self.previous,
            at_ns=time.time_ns(),
            device=self.order.device,
            **fields,
        )
        self.previous = write_observation(self.target, observation)
        self.number += 1


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
