"""What a corpus is worth: which wrong candidates its fixtures kill, what they cover, and their digests.

A word is written as text, ``0x`` and upper-case hexadecimal digits, as many as the number format has. An index counts
from 0, one number a dimension. A ``reason`` is None where there is nothing to tell.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from moegauge.records.decision import Reason
from moegauge.records.schema import Record


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of a larger record."""


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
    """Every fixture of a lane in the order in which they run. See docs/formats/gate-adequacy.md."""

    kind: ClassVar[str] = "gate-corpus"
    version: ClassVar[int] = 1

    lane: str
    corpus_version: int
    seed: int
    fixtures: tuple[FixtureDigest, ...]
