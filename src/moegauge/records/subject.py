"""The subjects of a registration: two arms, what is compared, over which corpus, and how they are timed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from moegauge.records.adequacy import Kill
from moegauge.records.ratio import parse_ratio

_NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,79}\Z")

NumberFormat = Literal[
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "float8_e5m2",
    "float8_e4m3fn",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
"""Number formats of a boundary, as torch names them."""


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One side: what runs, under which kernel names a profiler shows it, and how often it launches in a cycle.

    Attributes:
        profile_example: a real profile of the arm, in the lane folder, that the rehearsal has to be able to read; None
            where there is none, and then the reader is only rehearsed against files it wrote itself.
    """

    description: str
    kernels: tuple[str, ...]
    launches_per_cycle: int
    profile_example: str | None = None

    def __post_init__(self) -> None:
        check_positive("launches_per_cycle", self.launches_per_cycle)
        check_distinct("kernels", self.kernels)


class Boundary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor at which both arms are compared word by word, with its number format and shape."""

    name: str
    dtype: NumberFormat
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_name("boundary", self.name)
        for size in self.shape:
            check_positive(f"{self.name}.shape", size)


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fixtures of one kind; each is called ``<family>/<label>``, and exactly ``num_fixtures`` have to be there."""

    name: str
    num_fixtures: int

    def __post_init__(self) -> None:
        check_name("family", self.name)
        check_positive(f"{self.name}.num_fixtures", self.num_fixtures)


class Exactness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How outputs are compared.

    Attributes:
        num_repeats: identical calls per arm and repeat fixture; all have to give the same words.
        repeat_fixtures: the fixtures that are repeated.
        poison_words: two words; outputs are filled with one, then with the other, before a call. A word that the
            call did not write differs between the two.
        incumbent_vs_oracle: ``equal`` (the incumbent has to give the oracle's words, else nothing can be judged) or
            ``not_compared`` (the incumbent's own words are the only reference).
    """

    num_repeats: int
    repeat_fixtures: tuple[str, ...]
    poison_words: tuple[int, int]
    incumbent_vs_oracle: Literal["equal", "not_compared"]

    def __post_init__(self) -> None:
        if self.num_repeats < 2:
            raise ValueError("num_repeats: one call repeats nothing; at least 2")
        check_distinct("repeat_fixtures", self.repeat_fixtures)
        if self.poison_words[0] == self.poison_words[1] or min(self.poison_words) < 0:
            raise ValueError("poison_words: two different words of at least 0")


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A-B-B-A timing of one subject, and what it has to reach on every device.

    Attributes:
        warmup_cycles: cycles per arm before the first block.
        num_blocks, cycles_per_arm: blocks, and cycles in each of the four arms of a block.
        min_wins: blocks whose saving is above 0.
        min_median_saving_ns: median over blocks of the saving per cycle; None where no absolute threshold holds.
        min_median_saving_ratio: median over blocks of saving / incumbent time; None where no relative one holds.
        launch_mode: ``eager`` (every call of a cycle is launched by the host) or ``graph`` (a cycle is captured once
            and replayed whole); a graph is a deviation that the registration has to state.
    """

    warmup_cycles: int
    num_blocks: int
    cycles_per_arm: int
    min_wins: int
    min_median_saving_ns: int | None = None
    min_median_saving_ratio: str | None = None
    launch_mode: Literal["eager", "graph"] = "eager"

    def __post_init__(self) -> None:
        for name in ("warmup_cycles", "num_blocks", "cycles_per_arm", "min_wins"):
            check_positive(name, getattr(self, name))
        if self.min_wins > self.num_blocks:
            raise ValueError(f"min_wins: {self.min_wins} of {self.num_blocks} blocks can never be reached")
        if self.min_median_saving_ratio is not None:
            parse_ratio(self.min_median_saving_ratio)


class CoverageBound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that the corpus has to cover: the lane's code counts it over the fixtures, stage 0 holds it here."""

    what: str
    at_least: int

    def __post_init__(self) -> None:
        check_positive(f"coverage {self.what!r}", self.at_least)


class Subject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel that is to be replaced. A portfolio has several.

    Attributes:
        calls_per_cycle: calls of the arm in one cycle (layers of the model).
        timing: None where the lane claims no time (counters or bits alone).
        kills: for every wrong candidate of the lane's code, the fixture that tells it from a right one, and the words
            it does so by. coverage: what the corpus has to cover. Stage 0 fails where either does not hold.
    """

    name: str
    incumbent: Arm
    candidate: Arm
    calls_per_cycle: int
    boundaries: tuple[Boundary, ...]
    corpus: tuple[Family, ...]
    exactness: Exactness
    timing: Timing | None = None
    kills: tuple[Kill, ...] = ()
    coverage: tuple[CoverageBound, ...] = ()

    def __post_init__(self) -> None:
        check_name("subject", self.name)
        check_positive("calls_per_cycle", self.calls_per_cycle)
        check_distinct("boundaries", [one.name for one in self.boundaries])
        check_distinct("corpus", [one.name for one in self.corpus])
        families = {one.name for one in self.corpus}
        for fixture in self.exactness.repeat_fixtures:
            if fixture.partition("/")[0] not in families:
                raise ValueError(f"repeat_fixtures: {fixture!r} is of no registered family")
        for what, names in (
            ("kills", [one.mutant for one in self.kills]),
            ("coverage", [one.what for one in self.coverage]),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"{what}: each once")
        for kill in self.kills:
            if kill.boundary not in {one.name for one in self.boundaries}:
                raise ValueError(f"kills: {kill.boundary!r} is no registered boundary")


def check_name(what: str, text: str) -> None:
    """Refuse what is no name."""
    if not _NAME.match(text):
        raise ValueError(f"{what}: a name is lower-case letters, digits, '_', '.' and '-', not {text!r}")


def check_positive(what: str, number: int) -> None:
    """Refuse a number below 1."""
    if number < 1:
        raise ValueError(f"{what}: at least 1, not {number}")


def check_distinct(what: str, found: Iterable[str]) -> None:
    """Refuse an empty list: a rule over nothing holds of everything."""
    names = list(found)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{what}: at least one, each once")
