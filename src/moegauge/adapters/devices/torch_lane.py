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
from moegauge.adapters.devices.torch_words import Tensors, fill, read_words, same_words, words_of
from moegauge.evidence.digest import file_digest
from moegauge.gate.ports import CounterSource, DeviceFailure, Inputs, Outputs, Words
from moegauge.records.observation import ArmName, ArmSample
from moegauge.records.packet import DeviceIdentity
from moegauge.records.registration import Registration
from moegauge.records.subject import Arm

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
    timed: dict[ArmName, bool] = field(default_factory=lambda: dict.fromkeys(BOTH, False))
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
            before = read_words(tensors, inputs)
            buffers = self._buffers(subject, arm)
            fill(buffers, poison)
            self.arms.call(subject, arm, tensors, buffers)
            found = self.arms.boundaries(subject, arm, tensors, buffers)
            words = {name: words_of(one) for name, one in found.items()}
            return Outputs(words=words, inputs_before=before, inputs_after=read_words(tensors, inputs))

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
            placed.timed[arm] = True
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
        """Hold the last block's words against calls, and let the slots go."""
        placed, self._placed = self._placed, None
        if placed is not None:
            with driver_errors():
                self._check_replayed(placed)

    def _launches(self, subject: str, arm: ArmName, seen: Sequence[str]) -> int:
        one = self.registration.subject(subject)
        side: Arm = one.incumbent if arm == "incumbent" else one.candidate
        if not seen:
            raise DeviceFailure(f"{subject}, {arm}: the profiler has no kernel records; that is not 0 launches")
        missing = [name for name in side.kernels if name not in seen]
        if missing:
            found = ", ".join(dict.fromkeys(seen))
            raise DeviceFailure(f"{subject}, {arm}: no kernel is called {', '.join(missing)}; seen: {found}")
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
        self._check_replayed(placed)
        for i, slot in enumerate(placed.inputs):
            for name, tensor in placed.fixtures[(first_fixture + i) % len(placed.fixtures)].items():
                slot[name].copy_(tensor)
            for arm in BOTH:
                fill(placed.buffers[arm][i], poison)
        placed.first_fixture = first_fixture

    def _check_replayed(self, placed: _Placed) -> None:
        """What the timed cycles of a block left in their buffers is what calls on the same inputs write, bit by bit.

        Raises:
            DeviceFailure: it is not.
        """
        poison = self.registration.subject(placed.subject).exactness.poison_words[1]
        for arm in [arm for arm in BOTH if placed.timed[arm]]:
            for i, (inputs, timed) in enumerate(zip(placed.inputs, placed.buffers[arm], strict=True)):
                called = {name: one.clone() for name, one in timed.items()}
                fill(called, poison)
                self.arms.call(placed.subject, arm, inputs, called)
                if not same_words(timed, called):
                    raise DeviceFailure(
                        f"{placed.subject}, {arm}, slot {i}: a timed cycle wrote other words than a call"
                    )
            placed.timed[arm] = False

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


def _torch_libraries(backend: str) -> dict[str, Path]:
    """torch's own library of the backend, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    name = f"libtorch_{backend}.so"
    path = Path(spec.origin).parent / "lib" / name
    return {f"torch/lib/{name}": path} if path.is_file() else {}
