"""What a runner does on one device, as a stream of observations. It judges nothing; it may stop at a plain mismatch.

Order of phase a: every fixture of every family, repeats, A-B-B-A blocks, every fixture again. Order of phase b: arms
A1, B1, B2, A2 of each subject under the profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from moegauge.evidence.digest import arrays_digest
from moegauge.gate.counters import ARMS
from moegauge.gate.ports import CounterSource, Device, Lane, Outputs, RoundingLane, Words
from moegauge.gate.words import WORD_DTYPES, contains_nan, first_mismatch, unwritten_words
from moegauge.numerics.words import UInt32Array
from moegauge.records.observation import (
    ArmName,
    BlockObservation,
    BoundaryWords,
    EndObservation,
    ExactnessObservation,
    FixtureObservation,
    Moment,
    Observation,
    RepeatObservation,
)
from moegauge.records.registration import Registration
from moegauge.records.subject import Boundary, Subject

BOTH: tuple[ArmName, ArmName] = ("incumbent", "candidate")


class LayoutBreach(Exception):
    """An output has not the registered format or shape."""


@dataclass(frozen=True)
class Draft:
    """An observation without its place in the chain: its kind and its own fields."""

    kind: type[Observation]
    fields: dict[str, Any]


@dataclass(frozen=True)
class Profile:
    """A profiler's file of one arm, to be kept beside its observation."""

    subject: str
    arm: str
    data: bytes


def phase_a(registration: Registration, lane: Lane, device: Device) -> Iterator[Draft]:
    """Observe exactness, timing, and the complete exactness again.

    Raises:
        LayoutBreach, DeviceFailure: the run cannot go on.
    """
    differs = False
    for subject in registration.subjects:
        for draft in _exactness(subject, lane, device, "pre"):
            differs |= any(_differs(one) for one in draft.fields["fixtures"])
            yield draft
        for draft in _repeats(subject, lane, device):
            differs |= len(draft.fields["digests"]) > 1
            yield draft
    if differs:
        yield Draft(EndObservation, {"stopped_before": "timing"})
        return
    for subject in registration.subjects:
        if subject.timing is not None:
            yield from _blocks(subject, lane, device)
    for subject in registration.subjects:
        yield from _exactness(subject, lane, device, "post")
    yield Draft(EndObservation, {"stopped_before": None})


def phase_b(registration: Registration, counters: CounterSource) -> Iterator[Draft | Profile]:
    """Profile every arm; nothing is read or judged here."""
    protocol = registration.counters
    cycles = protocol.discarded_cycles + protocol.num_cycles
    for subject in registration.subjects:
        for arm in ARMS:
            side: ArmName = "incumbent" if arm[0] == "a" else "candidate"
            data = counters.profile(subject.name, side, num_cycles=cycles, cache_control=protocol.cache_control)
            yield Profile(subject.name, arm, data)
    yield Draft(EndObservation, {"stopped_before": None})


def _exactness(subject: Subject, lane: Lane, device: Device, moment: Moment) -> Iterator[Draft]:
    names = lane.fixtures(subject.name)
    for family in subject.corpus:
        fixtures = tuple(
            fixture_observation(subject, lane, name, device) for name in names if name.partition("/")[0] == family.name
        )
        fields = {"subject": subject.name, "moment": moment, "family": family.name, "fixtures": fixtures}
        yield Draft(ExactnessObservation, fields)


def fixture_observation(subject: Subject, lane: Lane, fixture: str, device: Device) -> FixtureObservation:
    """Call both arms on one fixture under both poison words, and compare them at every boundary."""
    inputs = lane.inputs(subject.name, fixture)
    calls = {
        arm: [
            _checked(subject, fixture, device.outputs(subject.name, arm, fixture, inputs, poison))
            for poison in subject.exactness.poison_words
        ]
        for arm in BOTH
    }
    return FixtureObservation(
        fixture=fixture,
        inputs_before=arrays_digest(calls["incumbent"][0].inputs_before),
        inputs_after=_inputs_after(calls),
        boundaries={
            one.name: _boundary(
                one,
                {arm: [out.words[one.name] for out in calls[arm]] for arm in BOTH},
                device,
                poisons=subject.exactness.poison_words,
                before=partial(_before, lane, subject.name, fixture, one.name),
            )
            for one in subject.boundaries
        },
    )


def _inputs_after(calls: dict[ArmName, list[Outputs]]) -> str:
    """Digest of the inputs after the last call, or of the first that an arm left otherwise than it found them."""
    first = arrays_digest(calls["incumbent"][0].inputs_before)
    digests = [arrays_digest(out.inputs_after) for arm in BOTH for out in calls[arm]]
    return next((digest for digest in digests if digest != first), digests[-1])


def _before(lane: Lane, subject: str, fixture: str, boundary: str) -> UInt32Array | None:
    """What the oracle rounded; None where the lane does not say."""
    return lane.before_rounding(subject, fixture).get(boundary) if isinstance(lane, RoundingLane) else None


def _boundary(
    boundary: Boundary,
    words: dict[ArmName, list[Words]],
    device: Device,
    *,
    poisons: tuple[int, int],
    before: Callable[[], UInt32Array | None],
) -> BoundaryWords:
    """Compare the arms' first calls, and each arm's two. ``before`` is asked only where words differ."""
    left, right = words["incumbent"][0], words["candidate"][0]
    nan = contains_nan(boundary.dtype, left) or contains_nan(boundary.dtype, right)
    digests = {arm: [arrays_digest({boundary.name: one}) for one in words[arm]] for arm in BOTH}
    differ = digests["incumbent"][0] != digests["candidate"][0]
    unwritten = {arm: unwritten_words(words[arm][0], words[arm][1], poisons) for arm in BOTH}
    return BoundaryWords(
        incumbent=(digests["incumbent"][0], digests["incumbent"][1]),
        candidate=(digests["candidate"][0], digests["candidate"][1]),
        torch_equal=None if nan else device.values_equal(boundary.dtype, left, right),
        contains_nan=nan,
        mismatch=first_mismatch(boundary.dtype, left, right, before=before()) if differ else None,
        unwritten={arm: one for arm, one in unwritten.items() if one is not None},
    )


def _checked(subject: Subject, fixture: str, out: Outputs) -> Outputs:
    for boundary in subject.boundaries:
        words = out.words.get(boundary.name)
        wanted = (WORD_DTYPES[boundary.dtype], boundary.shape)
        found = None if words is None else (words.dtype, words.shape)
        if found != wanted:
            shown = "no words" if found is None else f"{found[0]} {list(found[1])}"
            raise LayoutBreach(
                f"{subject.name}, {fixture}, {boundary.name}: {shown}, not {wanted[0]} {list(boundary.shape)}"
            )
    return out


def _differs(seen: FixtureObservation) -> bool:
    return seen.inputs_before != seen.inputs_after or any(
        len({*words.incumbent, *words.candidate}) > 1 for words in seen.boundaries.values()
    )


def _repeats(subject: Subject, lane: Lane, device: Device) -> Iterator[Draft]:
    poison = subject.exactness.poison_words[0]
    for fixture in subject.exactness.repeat_fixtures:
        inputs = lane.inputs(subject.name, fixture)
        for arm in BOTH:
            digests: dict[str, int] = {}
            for _ in range(subject.exactness.num_repeats):
                out = _checked(subject, fixture, device.outputs(subject.name, arm, fixture, inputs, poison))
                digest = arrays_digest({one.name: out.words[one.name] for one in subject.boundaries})
                digests[digest] = digests.get(digest, 0) + 1
            yield Draft(
                RepeatObservation, {"subject": subject.name, "arm": arm, "fixture": fixture, "digests": digests}
            )


def _blocks(subject: Subject, lane: Lane, device: Device) -> Iterator[Draft]:
    timing = subject.timing
    assert timing is not None  # noqa: S101 - only timed subjects come here
    names = lane.fixtures(subject.name)
    device.place(subject.name, [lane.inputs(subject.name, name) for name in names])
    for arm in BOTH:
        device.run_arm(subject.name, arm, num_cycles=timing.warmup_cycles, first_fixture=0)
    for block in range(timing.num_blocks):
        first = block * subject.calls_per_cycle % len(names)
        samples = {
            name: device.run_arm(
                subject.name,
                "incumbent" if name[0] == "a" else "candidate",
                num_cycles=timing.cycles_per_arm,
                first_fixture=first,
            )
            for name in ("a1", "b1", "b2", "a2")
        }
        fields = {"subject": subject.name, "block": block, "first_fixture": first, **samples}
        yield Draft(BlockObservation, fields)
