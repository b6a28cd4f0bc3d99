"""What the gate needs from outside, as protocols: a lane's host half, a device, a profiler, a clock.

Jobs hand the real ones in. A lane supplies :class:`Lane` and :class:`Devices`; one whose kernels take torch tensors
has the second from :mod:`moegauge.adapters.devices.torch_lane`, and supplies its arms alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from moegauge.gate.mutation import Mutant
from moegauge.gate.words import Words
from moegauge.numerics.words import UInt32Array
from moegauge.records.lane import CheckResult
from moegauge.records.observation import ArmName, ArmSample
from moegauge.records.packet import DeviceIdentity
from moegauge.records.registration import Registration

__all__ = [
    "Clock",
    "CounterSource",
    "Device",
    "DeviceFailure",
    "Devices",
    "Inputs",
    "Lane",
    "Outputs",
    "RoundingLane",
    "Words",
]

Inputs = Mapping[str, NDArray[Any]]
"""Inputs of one fixture by name; bfloat16 as uint16 words."""

Clock = Callable[[], int]
"""UTC time in ns since 1970."""


class Lane(Protocol):
    """The host half of a lane's code. Imports no device library."""

    def checks(self) -> Iterable[CheckResult]:
        """Stage-0 checks of the lane's own: guards, corruptions, the oracle against literal words."""
        ...

    def fixtures(self, subject: str) -> Sequence[str]:
        """Names ``<family>/<label>`` of every fixture of a subject, in the order they are run."""
        ...

    def inputs(self, subject: str, fixture: str) -> Inputs:
        """Inputs of a fixture; the same bytes at every call."""
        ...

    def oracle(self, subject: str, fixture: str) -> Mapping[str, Words]:
        """The literal words of a fixture at every boundary, computed on the host, independently of either arm."""
        ...

    def mutants(self, subject: str) -> Sequence[Mutant[Inputs]]:
        """Every wrong candidate of a subject; the registration has one kill for each, and stage 0 runs them."""
        ...

    def coverage(self, subject: str) -> Mapping[str, int]:
        """What the corpus covers, counted over its fixtures, by the names of the registered coverage bounds."""
        ...


@runtime_checkable
class RoundingLane(Protocol):
    """A lane that also says what its oracle rounded, so that a mismatch can be called a tie. No lane has to."""

    def before_rounding(self, subject: str, fixture: str) -> Mapping[str, UInt32Array]:
        """FP32 words that the oracle rounded, by bfloat16 boundary, in the boundary's shape."""
        ...


@dataclass(frozen=True)
class Outputs:
    """What one call gave: words by boundary, and the inputs as they lay on the device before and after it."""

    words: Mapping[str, Words]
    inputs_before: Inputs
    inputs_after: Inputs


class DeviceFailure(Exception):
    """The device or its driver refused. Adapters raise it; everything else counts as a fault of the runner."""


class Device(Protocol):
    """One open device. Every method but :meth:`close` may be a device action."""

    def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
        """Call an arm once on a fixture's inputs, its outputs filled with the poison word before."""
        ...

    def values_equal(self, dtype: str, left: Words, right: Words) -> bool:
        """What ``torch.equal`` says of two tensors with these bits."""
        ...

    def place(self, subject: str, fixtures: Sequence[Inputs]) -> None:
        """Put the fixtures of the timed rotation and every buffer in place; compile, capture and count launches."""
        ...

    def run_arm(self, subject: str, arm: ArmName, *, num_cycles: int, first_fixture: int) -> ArmSample:
        """Time an arm of whole cycles with device events; call i of a cycle takes fixture first + i, in turn.

        Nothing but the arm's calls lies between the events: fixtures are put in place before the first of them.
        """
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class CounterSource(Protocol):
    """A profiler."""

    def profile(self, subject: str, arm: ArmName, *, num_cycles: int, cache_control: str) -> bytes:
        """Profile whole cycles of an arm and return the profiler's own file."""
        ...


class Devices(Protocol):
    """What a lane's ``devices`` entry names. ``identify`` reads identities and touches no device."""

    def identify(self, registration: Registration, name: str) -> DeviceIdentity:
        """Identity of a registered device."""
        ...

    def open(self, registration: Registration, name: str) -> Device:
        """Open a registered device: the first device action."""
        ...

    def counters(self, registration: Registration, name: str) -> CounterSource:
        """The profiler of a registered device."""
        ...
