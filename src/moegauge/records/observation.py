"""What a runner saw, as it saw it: one file each, in order, each with the digest of the one before.

Raw values alone: digests of words, nanoseconds, launches, a profiler's own file. Whether they pass is judged
elsewhere, from these files. See docs/formats/lane.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from moegauge.records.capture import FileDigest
from moegauge.records.packet import Surroundings
from moegauge.records.schema import Record

ArmName = Literal["incumbent", "candidate"]
Moment = Literal["pre", "post"]


class Observation(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every observation says.

    Attributes:
        number: place in the device's run, from 0.
        previous: digest of the file before; of the consumed marker for the first.
        at_ns: UTC time, ns since 1970.
        device: the device's name in the registration.
    """

    number: int
    previous: str
    at_ns: int
    device: str


class BindingObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The surroundings as the runner read them, before its first device action."""

    kind: ClassVar[str] = "gate-binding"
    version: ClassVar[int] = 1

    surroundings: Surroundings


class Mismatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where two arms differ at a boundary.

    Attributes:
        num_words: words that differ. first_index: first of them, in row-major order.
        incumbent_word, candidate_word: the words there, in hexadecimal.
        word_class: class of the difference there (:data:`moegauge.gate.words.CLASSES`).
        num_by_class: how many words of each class; adds up to ``num_words``. None in evidence that did not count them.
    """

    num_words: int
    first_index: tuple[int, ...]
    incumbent_word: str
    candidate_word: str
    word_class: str
    num_by_class: dict[str, int] | None = None

    def __post_init__(self) -> None:
        counts = self.num_by_class
        if counts is not None and (sum(counts.values()) != self.num_words or self.word_class not in counts):
            raise ValueError("num_by_class: counts that add up to num_words, that of the first word among them")


class Unwritten(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of an arm that hold the poison of both its calls.

    Attributes:
        num_words: how many, at least 1. first_index: first of them, in row-major order.
    """

    num_words: int
    first_index: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_words < 1:
            raise ValueError("num_words: at least 1; an arm that wrote every word is not here")


class BoundaryWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Words at one boundary.

    Attributes:
        incumbent, candidate: digest of the words under each poison word.
        torch_equal: what ``torch.equal`` says of the first pair; None where a NaN makes it inapplicable.
        contains_nan: whether a word of either is a NaN.
        mismatch: where the first pair differs; None where it does not.
        unwritten: by arm, words that nobody wrote; empty where there are none, None in evidence that did not look.
    """

    incumbent: tuple[str, str]
    candidate: tuple[str, str]
    torch_equal: bool | None
    contains_nan: bool
    mismatch: Mismatch | None
    unwritten: dict[ArmName, Unwritten] | None = None


class FixtureObservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Both arms on one fixture.

    Attributes:
        inputs_before, inputs_after: digest of the inputs as they lay on the device, before the first call and after
            the last.
        boundaries: words by boundary.
    """

    fixture: str
    inputs_before: str
    inputs_after: str
    boundaries: dict[str, BoundaryWords]


class ExactnessObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of fixtures, before timing (``pre``) or after it (``post``)."""

    kind: ClassVar[str] = "gate-exactness"
    version: ClassVar[int] = 1

    subject: str
    moment: Moment
    family: str
    fixtures: tuple[FixtureObservation, ...]


class RepeatObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identical calls of one arm: how often each digest of all its boundaries came out."""

    kind: ClassVar[str] = "gate-repeat"
    version: ClassVar[int] = 1

    subject: str
    arm: ArmName
    fixture: str
    digests: dict[str, int]


class ArmSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of a block.

    Attributes:
        elapsed_ns: device time of the whole arm.
        num_launches: launches the arm made.
        throttle: reasons the device gave for running slower than it could, ``none`` or None where it cannot say.
    """

    elapsed_ns: int
    num_launches: int
    throttle: str | None


class BlockObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One A-B-B-A block; ``first_fixture`` is where the rotation of fixtures stood."""

    kind: ClassVar[str] = "gate-block"
    version: ClassVar[int] = 1

    subject: str
    block: int
    first_fixture: int
    a1: ArmSample
    b1: ArmSample
    b2: ArmSample
    a2: ArmSample


class ProfileObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profiler's file of one arm (A1, B1, B2, A2), kept beside this record as it was written.

    Attributes:
        file: name, digest and size of the profiler's file, beside this one.
    """

    kind: ClassVar[str] = "gate-profile"
    version: ClassVar[int] = 1

    subject: str
    arm: Literal["a1", "b1", "b2", "a2"]
    file_name: str
    file: FileDigest


class FailureObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runner could not go on.

    Attributes:
        what: ``layout`` (an output has not the registered format or shape), ``device`` (the device or its driver
            refused), ``runner`` (anything else).
        sentence: the error's own words.
    """

    kind: ClassVar[str] = "gate-failure"
    version: ClassVar[int] = 1

    what: Literal["layout", "device", "runner"]
    sentence: str


class EndObservation(Observation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runner ended by itself. ``stopped_before``: what it left out since a result before it was enough to stop."""

    kind: ClassVar[str] = "gate-end"
    version: ClassVar[int] = 1

    stopped_before: str | None


OBSERVATIONS: tuple[type[Observation], ...] = (
    BindingObservation,
    ExactnessObservation,
    RepeatObservation,
    BlockObservation,
    ProfileObservation,
    FailureObservation,
    EndObservation,
)
"""Every kind of observation."""
