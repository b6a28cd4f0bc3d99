"""A lane's device half for arms that take torch tensors: the lane writes its arms, everything else is here.

Words go to tensors and back without a conversion. Every buffer an arm writes is poisoned before a call. Timing goes on
in slots, one a call of a cycle, each with inputs and buffers of its own: fixtures are copied into them before a block,
and an arm runs over them eagerly, or as one graph that is captured once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from moegauge import errors
from moegauge.adapters.counters.command import CommandCounters
from moegauge.adapters.devices.torch_backends import BACKENDS, Backend, driver_errors
from moegauge.evidence.digest import file_digest
from moegauge.gate.ports import CounterSource, DeviceFailure, Inputs, Outputs, Words
from moegauge.records.observation import ArmName, ArmSample
from moegauge.records.packet import DeviceIdentity
from moegauge.records.registration import Registration
from moegauge.records.subject import Arm

Tensors = Mapping[str, Any]
"""torch tensors by name."""

BOTH: tuple[ArmName, ArmName] = ("incumbent", "candidate")


class Arms(Protocol):
    """What a lane supplies.

    Attributes:
        input_dtypes: torch's name of the number format of each input of a fixture.
    """

    input_dtypes: Mapping[str, str]

    def buffers(self, subject: str, arm: ArmName) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Number format and shape of everything the arm writes, scratch included, by name."""
        ...

    def call(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> None:
        """Launch the arm's kernels on the current stream; no allocation, no synchronisation. This is what is timed."""
        ...

    def boundaries(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> Tensors:
        """Tensors at every registered boundary, after a call; may launch what stands behind or beside the arm."""
        ...

    def files(self) -> Mapping[str, Path]:
        """Kernel and library files whose digests belong to the identity. Imports no torch."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Versions besides those of driver, torch and kernel. Imports no torch."""
        ...


@dataclass(frozen=True)
class TorchDevices:
    """What ``code.devices`` of a registration names, with a lane's arms in it.

    Attributes:
        counted: the profiler where the registration has no ``counters.command``; None where there is none.
    """

    arms: Arms
    backend: str
    counted: Callable[[TorchDevice, Registration], CounterSource] | None = None

    def identify(self, registration: Registration, name: str) -> DeviceIdentity:
        """The visible device, with torch's and the lane's own files."""
        del registration, name
        found = BACKENDS[self.backend]().identity()
        files = {**_torch_libraries(self.backend), **self.arms.files()}
        return msgspec.structs.replace(
            found,
            versions={**found.versions, **self.arms.versions()},
            libraries={one: file_digest(path) for one, path in files.items()},
        )

    def open(self, registration: Registration, name: str) -> TorchDevice:
        """Import torch and take the device."""
        backend = BACKENDS[self.backend]()
        backend.open(self.identify(registration, name).uuid)
        return TorchDevice(registration, self.arms, backend)

    def counters(self, registration: Registration, name: str) -> CounterSource:
        """The registered command, else the lane's own profiler."""
        if registration.counters.command:
            return CommandCounters(registration.counters, name)
        if self.counted is None:
            raise errors.MisuseError(
                where="counters.command",
                expected="a command that profiles, or a profiler of the lane's own",
                found="neither",
                remedy="Register another lane with counters.command.",
            )
        return self.counted(self.open(registration, name), registration)


@dataclass
class _Placed:
    """The timed slots of a subject."""

    subject: str
    fixtures: Sequence[Tensors]
    inputs: Sequence[Tensors]
    buffers: Mapping[ArmName, Sequence[Tensors]]
    run: dict[ArmName, Callable[[], None]] = field(default_factory=dict)
    launches: dict[ArmName, int] = field(default_factory=dict)
    first_fixture: int | None = None


@dataclass
class TorchDevice:
    """One open device."""

    registration: Registration
    arms: Arms
    backend: Backend
    _placed: _Placed | None = None

    def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
        """One call on poisoned buffers."""
        del fixture
        with driver_errors():
            tensors = self._inputs(inputs)
            before = _read(tensors, inputs)
            buffers = self._buffers(subject, arm)
            _fill(buffers, poison)
            self.arms.call(subject, arm, tensors, buffers)
            found = self.arms.boundaries(subject, arm, tensors, buffers)
            words = {name: words_of(one) for name, one in found.items()}
            return Outputs(words=words, inputs_before=before, inputs_after=_read(tensors, inputs))

    def values_equal(self, dtype: str, left: Words, right: Words) -> bool:
        """torch.equal, on the device."""
        import torch  # noqa: PLC0415

        with driver_errors():
            return bool(torch.equal(self._tensor(dtype, left), self._tensor(dtype, right)))

    def place(self, subject: str, fixtures: Sequence[Inputs]) -> None:
        """Slots, graphs where they are registered, and the launches of one cycle of each arm.

        Raises:
            DeviceFailure: the profiler saw no kernel, or none of an arm's.
        """
        with driver_errors():
            self._placed = self._slots(subject, fixtures)
            timing = self.registration.subject(subject).timing
            for arm in BOTH:
                run = self._eager(self._placed, arm)
                run()  # compiles what is compiled at the first call
                graph = timing is not None and timing.launch_mode == "graph"
                self._placed.run[arm] = self.backend.captured(run) if graph else run
                self._placed.launches[arm] = self._launches(subject, arm, self.backend.launched(self._placed.run[arm]))

    def run_arm(self, subject: str, arm: ArmName, *, num_cycles: int, first_fixture: int) -> ArmSample:
        """Device time of whole cycles; slots are filled and buffers poisoned before, where a block begins."""
        placed = self._placed
        if placed is None or placed.subject != subject:
            raise DeviceFailure(f"{subject}: nothing is in place")
        with driver_errors():
            if placed.first_fixture != first_fixture:
                self._rotate(placed, first_fixture)
            run = placed.run[arm]

            def cycles() -> None:
                for _ in range(num_cycles):
                    run()

            elapsed_ns = self.backend.elapsed_ns(cycles)
            return ArmSample(
                elapsed_ns=elapsed_ns,
                num_launches=placed.launches[arm] * num_cycles,
                throttle=self.backend.throttle(),
            )

    def run_profiled(self, subject: str, arm: ArmName, fixtures: Sequence[Inputs], *, num_cycles: int) -> None:
        """Run whole cycles eagerly while an outer profiler is on; everything is compiled and in place before."""
        with driver_errors():
            placed = self._slots(subject, fixtures)
            self._rotate(placed, 0)
            run = self._eager(placed, arm)
            run()

            def cycles() -> None:
                for _ in range(num_cycles):
                    run()

            self.backend.under_profiler(cycles)

    def close(self) -> None:
        """Let the slots go."""
        self._placed = None

    def _launches(self, subject: str, arm: ArmName, seen: Sequence[str]) -> int:
        one = self.registration.subject(subject)
        side: Arm = one.incumbent if arm == "incumbent" else one.candidate
        if not seen:
            raise DeviceFailure(f"{subject}, {arm}: the profiler has no kernel records; that is not 0 launches")
        if not set(seen) & set(side.kernels):
            wanted, found = ", ".join(side.kernels), ", ".join(dict.fromkeys(seen))
            raise DeviceFailure(f"{subject}, {arm}: no kernel is called {wanted}; seen: {found}")
        return len(seen)

    def _slots(self, subject: str, fixtures: Sequence[Inputs]) -> _Placed:
        num = self.registration.subject(subject).calls_per_cycle
        tensors = [self._inputs(one) for one in fixtures]
        return _Placed(
            subject,
            tensors,
            [{name: one.clone() for name, one in tensors[0].items()} for _ in range(num)],
            {arm: [self._buffers(subject, arm) for _ in range(num)] for arm in BOTH},
        )

    def _rotate(self, placed: _Placed, first_fixture: int) -> None:
        poison = self.registration.subject(placed.subject).exactness.poison_words[0]
        for i, slot in enumerate(placed.inputs):
            for name, tensor in placed.fixtures[(first_fixture + i) % len(placed.fixtures)].items():
                slot[name].copy_(tensor)
            for arm in BOTH:
                _fill(placed.buffers[arm][i], poison)
        placed.first_fixture = first_fixture

    def _eager(self, placed: _Placed, arm: ArmName) -> Callable[[], None]:
        call, slots = self.arms.call, list(zip(placed.inputs, placed.buffers[arm], strict=True))

        def run() -> None:
            for inputs, buffers in slots:
                call(placed.subject, arm, inputs, buffers)

        return run

    def _inputs(self, inputs: Inputs) -> Tensors:
        return {name: self._tensor(self.arms.input_dtypes[name], one) for name, one in inputs.items()}

    def _buffers(self, subject: str, arm: ArmName) -> Tensors:
        import torch  # noqa: PLC0415

        return {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=self.backend.device)
            for name, (dtype, shape) in self.arms.buffers(subject, arm).items()
        }

    def _tensor(self, dtype: str, words: np.ndarray[Any, Any]) -> Any:
        """A tensor with these bits; torch has few unsigned formats, so they go through signed ones."""
        import torch  # noqa: PLC0415

        signed = np.array(words, order="C").view(f"i{words.dtype.itemsize}")
        return torch.from_numpy(signed).view(getattr(torch, dtype)).to(self.backend.device)


def words_of(tensor: Any) -> Words:
    """Bits of a tensor, on the host."""
    signed = tensor.contiguous().view(_signed(tensor)).cpu().numpy()
    return np.array(signed.view(f"u{tensor.element_size()}"))


def _read(tensors: Tensors, like: Inputs) -> Inputs:
    return {name: words_of(one).view(like[name].dtype) for name, one in tensors.items()}


def _fill(buffers: Tensors, poison: int) -> None:
    for one in buffers.values():
        bits = 8 * one.element_size()
        word = poison & ((1 << bits) - 1)
        one.view(_signed(one)).fill_(word - (1 << bits) if word >> (bits - 1) else word)


def _signed(tensor: Any) -> Any:
    import torch  # noqa: PLC0415

    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]


def _torch_libraries(backend: str) -> dict[str, Path]:
    """torch's own library of the backend, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    name = f"libtorch_{backend}.so"
    path = Path(spec.origin).parent / "lib" / name
    return {f"torch/lib/{name}": path} if path.is_file() else {}
