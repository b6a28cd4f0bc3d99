"""What the comparison of bits found: words, inputs, unwritten outputs, and which wrong candidates were killed.

A word is written as text, ``0x`` and four upper-case hexadecimal digits. An index counts from 0, one number a
dimension. A field that is called ``mismatch``, ``first_index`` or ``reason`` is None where there is nothing to tell.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from moegauge.records.decision import Reason
from moegauge.records.schema import Record


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of an exactness record."""


class Run(StrEnum):
    """Where words come from. An arm runs again on the same input for its repeat."""

    ORACLE = "oracle"
    INCUMBENT = "incumbent"
    INCUMBENT_REPEAT = "incumbent repeat"
    CANDIDATE = "candidate"
    CANDIDATE_REPEAT = "candidate repeat"
    CANDIDATE_DIAGNOSTIC = "candidate diagnostic"

    @property
    def is_candidate(self) -> bool:
        """Whether the words are the candidate's; otherwise a mismatch says nothing about it."""
        return self in {Run.CANDIDATE, Run.CANDIDATE_REPEAT, Run.CANDIDATE_DIAGNOSTIC}


class MismatchClass(StrEnum):
    """What kind of difference two unequal BF16 words are; the first that fits, in this order.

    NAN_PAYLOAD: both are NaN. SIGNED_ZERO: both are zero. SUBNORMAL: one at least is subnormal. TIE: the FP32 word
    that the oracle rounded lies exactly between the two. OTHER: none of these.
    """

    NAN_PAYLOAD = "NAN_PAYLOAD"
    SIGNED_ZERO = "SIGNED_ZERO"
    SUBNORMAL = "SUBNORMAL"
    TIE = "TIE"
    OTHER = "OTHER"


class TorchEqual(StrEnum):
    """What ``torch.equal`` said of the two tensors.

    INAPPLICABLE: a NaN is present, which is not equal to itself. NOT_ASKED: no tensor library took part.
    """

    EQUAL = "EQUAL"
    UNEQUAL = "UNEQUAL"
    INAPPLICABLE = "INAPPLICABLE"
    NOT_ASKED = "NOT_ASKED"


class WordCounts(_Plain, frozen=True, kw_only=True):
    """How many BF16 words of each class; infinities and NaNs of either sign."""

    num_positive_zero: int
    num_negative_zero: int
    num_subnormal: int
    num_normal: int
    num_infinity: int
    num_nan: int


class Mismatch(_Plain, frozen=True, kw_only=True):
    """Words that differ between two runs.

    Attributes:
        num_words: how many differ.
        first_index: of the first one in row-major order.
        left_word, right_word: there.
        kind: class of the first one.
        num_by_class: how many of each class; adds up to ``num_words``.
    """

    num_words: int
    first_index: tuple[int, ...]
    left_word: str
    right_word: str
    kind: MismatchClass
    num_by_class: dict[MismatchClass, int]

    def __post_init__(self) -> None:
        if self.num_words < 1 or sum(self.num_by_class.values()) != self.num_words or self.left_word == self.right_word:
            raise ValueError("a mismatch has at least one word, two different words, and classes that add up")


class WordComparison(_Plain, frozen=True, kw_only=True):
    """Two runs of one fixture at one boundary, word by word.

    Attributes:
        left_digest, right_digest: of the words and their shape; equal exactly where ``mismatch`` is None.
    """

    fixture: str
    boundary: str
    left: Run
    right: Run
    left_digest: str
    right_digest: str
    left_counts: WordCounts
    right_counts: WordCounts
    torch_equal: TorchEqual
    mismatch: Mismatch | None

    def __post_init__(self) -> None:
        if (self.mismatch is None) != (self.left_digest == self.right_digest):
            raise ValueError("words are equal exactly where their digests are")

    @property
    def passed(self) -> bool:
        """Every word equal, and torch, where it was asked, did not say otherwise."""
        return self.mismatch is None and self.torch_equal is not TorchEqual.UNEQUAL


class InputCheck(_Plain, frozen=True, kw_only=True):
    """The inputs of one fixture around a run: what was registered, and what lay there before and after."""

    fixture: str
    run: Run
    registered_digest: str
    before_digest: str
    after_digest: str

    @property
    def passed(self) -> bool:
        """The registered input, unchanged."""
        return self.registered_digest == self.before_digest == self.after_digest


class WrittenCheck(_Plain, frozen=True, kw_only=True):
    """Whether a run wrote every word of an output, shown by two runs over two different poisons."""

    fixture: str
    run: Run
    boundary: str
    num_unwritten: int
    first_index: tuple[int, ...] | None

    def __post_init__(self) -> None:
        if (self.num_unwritten == 0) != (self.first_index is None):
            raise ValueError("an unwritten word has an index, and only that")

    @property
    def passed(self) -> bool:
        """Nothing was left unwritten."""
        return self.num_unwritten == 0


class ExactnessOutcome(StrEnum):
    """What all checks of a campaign say together; the first that fits, in this order.

    INCOMPLETE: nothing was planned, a planned check is missing, or one came that was not planned, or twice.
    NOT_EVALUABLE: a check failed in which the candidate had no part (oracle, incumbent, inputs), so nothing can be
    said of the candidate. DIFFERS: a check of the candidate failed. EXACT: every planned check passed.
    """

    EXACT = "EXACT"
    DIFFERS = "DIFFERS"
    NOT_EVALUABLE = "NOT_EVALUABLE"
    INCOMPLETE = "INCOMPLETE"


class ExactnessResult(_Plain, frozen=True, kw_only=True):
    """All checks of one campaign and what they say. ``reasons`` is empty exactly where the outcome is EXACT."""

    comparisons: tuple[WordComparison, ...]
    inputs: tuple[InputCheck, ...]
    written: tuple[WrittenCheck, ...]
    outcome: ExactnessOutcome
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if (self.outcome is ExactnessOutcome.EXACT) != (not self.reasons):
            raise ValueError("an outcome other than EXACT has a reason, and only that")


class Kill(_Plain, frozen=True, kw_only=True):
    """Where a wrong candidate shows: the first word that differs from the oracle's."""

    mutant: str
    fixture: str
    boundary: str
    first_index: tuple[int, ...]
    expected_word: str
    found_word: str


class KillCheck(_Plain, frozen=True, kw_only=True):
    """One mutant: what it breaks, the kill that is registered, the one that was found; a reason where they differ."""

    mutant: str
    breaks: str
    registered: Kill | None
    found: Kill | None
    reason: Reason | None

    def __post_init__(self) -> None:
        agrees = self.registered is not None and self.registered == self.found
        if agrees != (self.reason is None):
            raise ValueError("a kill that was found as registered has no reason, and only that")


class MutationResult(_Plain, frozen=True, kw_only=True):
    """Every mutant of a lane. ``passed``: there are mutants, and each was killed as registered."""

    checks: tuple[KillCheck, ...]
    passed: bool
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if self.passed != (not self.reasons) or (self.passed and not self.checks):
            raise ValueError("a result that did not pass has a reason; an empty one does not pass")


class FamilyRow(_Plain, frozen=True, kw_only=True):
    """One family of a corpus: what its fixtures are there for, and how many there are."""

    family: str
    purpose: str
    num_fixtures: int


class CoverageRow(_Plain, frozen=True, kw_only=True):
    """One thing a corpus has to cover. ``num_covered`` is counted over the fixtures themselves."""

    what: str
    num_covered: int
    num_required: int


class CorpusResult(_Plain, frozen=True, kw_only=True):
    """What a corpus covers. ``passed``: it holds fixtures, and every row covers what it has to."""

    families: tuple[FamilyRow, ...]
    rows: tuple[CoverageRow, ...]
    passed: bool
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if self.passed != (not self.reasons) or (self.passed and not self.rows):
            raise ValueError("a result that did not pass has a reason; an empty one does not pass")


class FixtureDigest(_Plain, frozen=True, kw_only=True):
    """A fixture by name, with the digest of what a kernel reads and that of the other ranks' outputs."""

    name: str
    family: str
    digest: str
    peers_digest: str


class CorpusManifest(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every fixture of a lane in the order in which they run. See docs/formats/gate-exactness.md."""

    kind: ClassVar[str] = "gate-corpus"
    version: ClassVar[int] = 1

    lane: str
    corpus_version: int
    seed: int
    fixtures: tuple[FixtureDigest, ...]
