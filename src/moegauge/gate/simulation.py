"""A simulated device and profiler: the oracle's words, made-up times and counters, and one fault.

Times and counters meet every registered bound unless the fault says otherwise. Nothing simulated is evidence about a
kernel; its identity says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from moegauge.gate.counters import CounterTable
from moegauge.gate.ports import DeviceFailure, Inputs, Lane, Outputs, Words
from moegauge.gate.words import values_equal
from moegauge.records.counter_rules import CounterProtocol, CounterRule, Quantity
from moegauge.records.observation import ArmName, ArmSample
from moegauge.records.packet import DeviceIdentity, Surroundings
from moegauge.records.ratio import parse_ratio
from moegauge.records.registration import Registration
from moegauge.records.subject import Subject

FIXTURE_WITH_FLIPPED_BIT = 217
"""Position of the fixture whose word is changed; the last one of a smaller corpus."""

_INCUMBENT_NS = 1_000_000_000
"""A simulated cycle of the incumbent: long enough for any absolute saving that is below a second."""


def simulated_identity(name: str, registration: Registration) -> DeviceIdentity:
    """Identity of the simulated device of a name; it says that it is simulated."""
    return DeviceIdentity(
        uuid=f"simulated-{name}",
        bus_id=f"simulated-bus-{name}",
        model="simulated",
        versions=dict.fromkeys(registration.identities, "simulated"),
        libraries={"simulated": "simulated"},
    )


def distorted(found: Surroundings, fault: str) -> Surroundings:
    """Surroundings as a runner would read them under a fault."""
    replace = msgspec.structs.replace
    if fault == "wrong-device":
        return replace(found, device=replace(found.device, uuid="simulated-other"))
    if fault == "changed-binary":
        return replace(found, device=replace(found.device, libraries={"simulated": "changed"}))
    if fault == "dirty-tree":
        return replace(found, uncommitted=("source: changed.py",))
    return found


@dataclass
class SimulatedDevice:
    """A device of integers. ``die`` ends the process as ``kill -9`` does."""

    registration: Registration
    lane: Lane
    fault: str
    die: Callable[[], None]
    num_calls: int = 0
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)
    _oracle: dict[tuple[str, str], Mapping[str, Words]] = field(default_factory=dict)

    def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
        """The oracle's words, with the fault in them."""
        self.num_calls += 1
        if self.fault == "killed" and self.num_calls > 3:
            self.die()
        if self.fault == "device-error" and self.num_calls > 3:
            raise DeviceFailure("the simulated driver lost its device")
        if (subject, fixture) not in self._oracle:
            self._oracle[subject, fixture] = self.lane.oracle(subject, fixture)
        words = {name: one.copy() for name, one in self._oracle[subject, fixture].items()}
        if arm == "candidate":
            self._spoil_candidate(subject, fixture, words, poison)
        elif self.fault == "unrepeatable-incumbent" and self.num_calls % 2:
            one = next(iter(words.values()))
            one.flat[-1] ^= one.dtype.type(1)
        return Outputs(words=words, inputs_before=inputs, inputs_after=inputs)

    def _spoil_candidate(self, subject: str, fixture: str, words: dict[str, Words], poison: int) -> None:
        boundary = self.registration.subject(subject).boundaries[-1].name
        one = words[boundary]
        times = self._seen[(subject, fixture)] = self._seen.get((subject, fixture), 0) + 1
        fixtures = self.lane.fixtures(subject)
        chosen = fixtures[min(FIXTURE_WITH_FLIPPED_BIT, len(fixtures) - 1)]
        if (self.fault == "flipped-bit" and fixture == chosen) or (self.fault == "stale-output" and times > 2):
            one.flat[-1] ^= one.dtype.type(1)
        if self.fault == "unwritten-output":
            one.flat[-1] = one.dtype.type(poison)
        if self.fault == "wrong-layout":
            words[boundary] = one.reshape(-1)[:-1]

    def values_equal(self, dtype: str, left: Words, right: Words) -> bool:
        """As numbers, on the host."""
        return values_equal(dtype, left, right)

    def place(self, subject: str, fixtures: Sequence[Inputs]) -> None:
        """Nothing to put in place."""

    def run_arm(self, subject: str, arm: ArmName, *, num_cycles: int, first_fixture: int) -> ArmSample:
        """A made-up time, longer at every call under drift."""
        self.num_calls += 1
        one = self.registration.subject(subject)
        side = one.incumbent if arm == "incumbent" else one.candidate
        slow = arm == "incumbent" or self.fault == "slow-candidate"
        per_cycle = _INCUMBENT_NS if slow else candidate_ns(self.registration, one)
        drift = self.num_calls * num_cycles if self.fault == "linear-drift" else 0
        wrong = 1 if self.fault == "launch-count" and arm == "candidate" else 0
        return ArmSample(
            elapsed_ns=per_cycle * num_cycles + drift,
            num_launches=side.launches_per_cycle * num_cycles + wrong,
            throttle="hw_thermal" if self.fault == "throttling" and arm == "candidate" else "none",
        )

    def close(self) -> None:
        """Nothing to give back."""


def candidate_ns(registration: Registration, subject: Subject) -> int:
    """A cycle of the candidate that meets every bound, half-way between the bound and no time at all."""
    timing = subject.timing
    wanted = Fraction(0)
    if timing is not None:
        absolute = Fraction(timing.min_median_saving_ns or 0, _INCUMBENT_NS)
        wanted = max(parse_ratio(timing.min_median_saving_ratio or "0"), absolute)
    if registration.joint is not None:
        wanted = max(wanted, Fraction(registration.joint.min_sum_of_median_savings_ns, _INCUMBENT_NS))
    return int(_INCUMBENT_NS * (1 - wanted) / 2)


@dataclass
class SimulatedCounters:
    """A profiler of made-up counters. ``written`` writes a table in the registered reader's format."""

    registration: Registration
    fault: str
    die: Callable[[], None]
    written: Callable[[CounterTable], bytes]

    def profile(self, subject: str, arm: ArmName, *, num_cycles: int, cache_control: str) -> bytes:
        """A profile of an arm, with the fault in it."""
        del num_cycles, cache_control
        if self.fault == "killed" and arm == "candidate":
            self.die()
        one = self.registration.subject(subject)
        data = self.written(simulated_profile(self.registration, one, arm, fault=self.fault))
        return drifted(data) if self.fault == "schema-drift" else data


def drifted(data: bytes) -> bytes:
    """A profiler's file after its format changed: the column or field that names launches is called otherwise."""
    return data.replace(b"Kernel", b"Function").replace(b'"launches"', b'"calls"')


def simulated_profile(registration: Registration, subject: Subject, arm: ArmName, *, fault: str) -> CounterTable:
    """A profile that meets every counter rule, or misses the first one under a fault."""
    protocol = registration.counters
    side = subject.incumbent if arm == "incumbent" else subject.candidate
    cycles = protocol.discarded_cycles + protocol.num_cycles
    candidate = arm == "candidate"
    num = cycles * side.launches_per_cycle - (1 if fault == "profiled-launches" and candidate else 0)
    metrics: dict[str, tuple[Fraction | None, ...]] = {name: (Fraction(0),) * num for name in protocol.metric_names()}
    for quantity in protocol.quantities:
        level = _level(protocol, quantity)
        if fault == "counter-limit" and candidate and protocol.rules[0].quantity == quantity.name:
            level = beyond(protocol.rules[0], level)
        metrics |= _columns(quantity, level, num, side.launches_per_cycle)
    if fault == "missing-counter":
        metrics.pop(protocol.quantities[0].metrics[0])
    units = {name: one.unit for one in protocol.quantities for name in one.metrics}
    return CounterTable(tuple(side.kernels[i % len(side.kernels)] for i in range(num)), metrics, units)


def _columns(
    quantity: Quantity, level: Fraction, num: int, launches_per_cycle: int
) -> dict[str, tuple[Fraction | None, ...]]:
    """Columns that put a quantity at a level: its first metric carries it, in the first launch of a cycle if added."""
    value = level / parse_ratio(quantity.scale) * max(1, len(quantity.divided_by))
    added = quantity.over_launches == "sum_per_cycle"
    carried = tuple(value if not added or i % launches_per_cycle == 0 else Fraction(0) for i in range(num))
    ones = (Fraction(1),) * num
    weight = {} if quantity.weight is None else {quantity.weight: ones}
    return {**dict.fromkeys(quantity.divided_by, ones), **weight, quantity.metrics[0]: carried}


def _level(protocol: CounterProtocol, quantity: Quantity) -> Fraction:
    """A level of both arms at which every rule on the quantity holds; 1 where no rule names one."""
    fixed = [rule for rule in protocol.rules if rule.quantity == quantity.name and rule.rule in {"equal", "at_most"}]
    limits: Mapping[str, list[Fraction]] = {
        kind: [parse_ratio(rule.limit) for rule in fixed if rule.rule == kind] for kind in ("equal", "at_most")
    }
    if limits["equal"]:
        return limits["equal"][0]
    return min([Fraction(1), *limits["at_most"]])


def beyond(rule: CounterRule, level: Fraction) -> Fraction:
    """A level of the candidate that misses a rule, the incumbent being at ``level``."""
    limit = parse_ratio(rule.limit)
    return {
        "at_most_ratio": limit * level + 1,
        "at_most_rise": level + limit + 1,
        "at_most_fall": level - limit - 1,
        "equal": limit + 1,
        "at_most": limit + 1,
    }[rule.rule]
