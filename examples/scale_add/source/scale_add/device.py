"""The device half: the host processor through torch, on one thread."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from moegauge.adapters.counters.torch_profiler import profile_bytes
from moegauge.adapters.devices.cpu import model_name
from moegauge.evidence.digest import file_digest
from moegauge.gate.ports import Inputs, Outputs, Words
from moegauge.records.observation import ArmName, ArmSample
from moegauge.records.packet import DeviceIdentity
from moegauge.records.registration import Registration
from scale_add.host import SCALES, SHAPE


class HostDevices:
    """What the registration's ``code.devices`` names."""

    def identify(self, registration: Registration, name: str) -> DeviceIdentity:
        """The machine, and the library that holds the operators."""
        del registration, name
        machine = Path("/etc/machine-id")
        known = machine.read_bytes() if machine.is_file() else b""
        origin = importlib.util.find_spec("torch")
        assert origin is not None
        assert origin.origin is not None
        library = Path(origin.origin).parent / "lib" / "libtorch_cpu.so"
        return DeviceIdentity(
            uuid=f"CPU-{hashlib.sha256(known + platform.node().encode()).hexdigest()[:32]}",
            bus_id="processor 0",
            model=model_name(),
            versions={"torch": importlib.metadata.version("torch"), "kernel": platform.release()},
            libraries={f"torch/lib/{library.name}": file_digest(library)},
        )

    def open(self, registration: Registration, name: str) -> HostDevice:
        """Import torch, on one thread."""
        del registration, name
        return HostDevice()

    def counters(self, registration: Registration, name: str) -> HostProfiler:
        """torch's own profiler."""
        return HostProfiler(self.open(registration, name), registration)


class HostDevice:
    """Both arms on the host."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - importing torch is the first device action

        from scale_add import candidate, incumbent  # noqa: PLC0415

        torch.set_num_threads(1)
        self.torch = torch
        self.arms: dict[str, ModuleType] = {"incumbent": incumbent, "candidate": candidate}
        self.placed: list[tuple[object, object]] = []
        self.out = torch.empty(SHAPE, dtype=torch.bfloat16)

    def tensor(self, words: Words) -> object:
        """BF16 tensor with these words."""
        return self.torch.from_numpy(words.copy()).view(self.torch.bfloat16)

    def words(self, tensor: object) -> Words:
        """Words of a BF16 tensor."""
        return np.array(tensor.view(self.torch.uint16).numpy())  # type: ignore[attr-defined]

    def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
        """One call on a poisoned output."""
        del fixture
        tensors = {name: self.tensor(words) for name, words in inputs.items()}
        before = {name: self.words(one) for name, one in tensors.items()}
        out = self.tensor(np.full(SHAPE, poison, dtype=np.uint16))
        self.arms[arm].run(tensors["routed"], tensors["shared"], SCALES[subject], out)
        after = {name: self.words(one) for name, one in tensors.items()}
        return Outputs(words={"final": self.words(out)}, inputs_before=before, inputs_after=after)

    def values_equal(self, dtype: str, left: Words, right: Words) -> bool:
        """torch.equal."""
        del dtype
        return bool(self.torch.equal(self.tensor(left), self.tensor(right)))

    def place(self, subject: str, fixtures: Sequence[Inputs]) -> None:
        """Tensors of the rotation."""
        del subject
        self.placed = [(self.tensor(one["routed"]), self.tensor(one["shared"])) for one in fixtures]

    def run_arm(self, subject: str, arm: ArmName, *, num_cycles: int, first_fixture: int) -> ArmSample:
        """Time whole cycles of CALLS calls by the processor time of this thread: the host is its own device.

        Time in which the thread had no processor is not device time, so other work on the machine counts less.
        """
        module, scale, out = self.arms[arm], SCALES[subject], self.out
        calls = num_cycles * CALLS
        turns = [self.placed[(first_fixture + i) % len(self.placed)] for i in range(calls)]
        run = module.run
        start = time.thread_time_ns()
        for routed, shared in turns:
            run(routed, shared, scale, out)
        elapsed = time.thread_time_ns() - start
        return ArmSample(elapsed_ns=elapsed, num_launches=calls * module.NUM_LAUNCHES, throttle=None)

    def close(self) -> None:
        """Nothing to give back."""


CALLS = 12
"""Calls in one cycle, as registered."""


class HostProfiler:
    """Operators that were called from outside any other, and the memory each allocated."""

    def __init__(self, device: HostDevice, registration: Registration) -> None:
        self.device, self.registration = device, registration

    def profile(self, subject: str, arm: ArmName, *, num_cycles: int, cache_control: str) -> bytes:
        """Profile whole cycles; nothing is done to caches."""
        del cache_control
        inputs = {name: np.zeros(SHAPE, dtype=np.uint16) for name in ("routed", "shared")}
        self.device.place(subject, [inputs])
        profiler = self.device.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
            self.device.run_arm(subject, arm, num_cycles=num_cycles, first_fixture=0)
        launches = [
            (event.name, {"allocated_bytes": event.cpu_memory_usage})
            for event in sorted(seen.events(), key=lambda event: event.time_range.start)
            if event.cpu_parent is None and event.name.startswith("aten::")
        ]
        return profile_bytes(launches, {"allocated_bytes": "byte"})


DEVICES = HostDevices()
