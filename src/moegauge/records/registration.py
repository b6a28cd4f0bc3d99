"""registration.toml: what a replacement lane asks, and by which rules it will be answered. See docs/formats/lane.md.

Everything that decides a verdict stands here, and nothing that decides one stands in code: a lane with other
thresholds, several kernels or no timing at all is another registration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from moegauge.records.counter_rules import CounterProtocol
from moegauge.records.exactness import Kill
from moegauge.records.ratio import parse_ratio

_NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,79}\Z")
_COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
_ENTRY = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


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
        _positive("launches_per_cycle", self.launches_per_cycle)
        _distinct("kernels", self.kernels)


class Boundary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor at which both arms are compared word by word, with its number format and shape."""

    name: str
    dtype: NumberFormat
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _name("boundary", self.name)
        for size in self.shape:
            _positive(f"{self.name}.shape", size)


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fixtures of one kind; each is called ``<family>/<label>``, and exactly ``num_fixtures`` have to be there."""

    name: str
    num_fixtures: int

    def __post_init__(self) -> None:
        _name("family", self.name)
        _positive(f"{self.name}.num_fixtures", self.num_fixtures)


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
        _distinct("repeat_fixtures", self.repeat_fixtures)
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
            _positive(name, getattr(self, name))
        if self.min_wins > self.num_blocks:
            raise ValueError(f"min_wins: {self.min_wins} of {self.num_blocks} blocks can never be reached")
        if self.min_median_saving_ratio is not None:
            parse_ratio(self.min_median_saving_ratio)


class CoverageBound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that the corpus has to cover: the lane's code counts it over the fixtures, stage 0 holds it here."""

    what: str
    at_least: int

    def __post_init__(self) -> None:
        _positive(f"coverage {self.what!r}", self.at_least)


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
        _name("subject", self.name)
        _positive("calls_per_cycle", self.calls_per_cycle)
        _distinct("boundaries", [one.name for one in self.boundaries])
        _distinct("corpus", [one.name for one in self.corpus])
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


class Joint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the subjects have to reach together: the sum of their median savings per cycle, on every device alone."""

    min_sum_of_median_savings_ns: int


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the treatment may run at all. The platform is part of it: each has predicates and a selector of its own."""

    platform: Literal["cpu", "cuda", "xpu"]
    selector: str
    predicates: tuple[str, ...]

    def __post_init__(self) -> None:
        _distinct("predicates", self.predicates)


class Devices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices, each judged alone, in this order; the first that fails stops the lane.

    Attributes:
        names: names of the lane's own choosing; a packet binds each to a physical identity.
        throttle: ``forbidden`` (a block measured under throttling is invalid) or ``recorded``.
    """

    names: tuple[str, ...]
    throttle: Literal["forbidden", "recorded"]

    def __post_init__(self) -> None:
        _distinct("names", self.names)
        for name in self.names:
            _name("device", name)


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository that holds treatment or lane.

    Attributes:
        path: relative to the lane folder.
        starting_commit: what implementation starts from.
        changed_paths: files that may differ from the starting commit; every other file stays as it is, byte for byte.
    """

    name: str
    path: str
    starting_commit: str
    changed_paths: tuple[str, ...]

    def __post_init__(self) -> None:
        _name("source", self.name)
        if not _COMMIT.match(self.starting_commit):
            raise ValueError(f"starting_commit: 40 hexadecimal digits, not {self.starting_commit!r}")


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code half of a lane, as ``package.module:NAME``.

    Attributes:
        lane: fixtures, host oracle and stage-0 checks; imports no device library.
        devices: opens devices; imported for ``authorize``, ``run`` and ``explore`` alone.
        environment: names and values that the runner's environment has besides those of docs/formats/lane.md.
    """

    lane: str
    devices: str
    environment: dict[str, str] = {}

    def __post_init__(self) -> None:
        for entry in (self.lane, self.devices):
            if not _ENTRY.match(entry):
                raise ValueError(f"code: an entry is package.module:NAME, not {entry!r}")


class Stage0(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has to hold before any device is touched.

    Attributes:
        required_checks: names of checks that the lane's code has to give, each with at least one case.
        commands: commands (lint, format) run in the first source's folder; each has to end with status 0.
    """

    required_checks: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        _distinct("required_checks", self.required_checks)


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole registration.

    Attributes:
        date: day it was registered, as people write it.
        identities: names of versions that a packet has to freeze (compiler, runtime, driver, ...).
        authorizes: what a pass authorises. does_not_authorize: what it does not.
        disclosures: trials that informed a threshold, and what else a reader should know.
        exclusions: what this lane never touches.
        deviations: where the lane departs from the protocol of docs/gate.md, one sentence each.
        joint: thresholds over several subjects; None where each stands alone.
    """

    lane: str
    date: str
    question: str
    contract: Contract
    subjects: tuple[Subject, ...]
    counters: CounterProtocol
    devices: Devices
    sources: tuple[Source, ...]
    code: Code
    stage0: Stage0
    identities: tuple[str, ...]
    authorizes: str
    does_not_authorize: tuple[str, ...]
    exclusions: tuple[str, ...]
    disclosures: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    joint: Joint | None = None

    def __post_init__(self) -> None:
        _name("lane", self.lane)
        for name in ("subjects", "sources"):
            _distinct(name, [one.name for one in getattr(self, name)])
        for name in ("identities", "does_not_authorize", "exclusions"):
            _distinct(name, getattr(self, name))
        for text in ("date", "question", "authorizes"):
            if not getattr(self, text).strip():
                raise ValueError(f"{text}: empty")
        if self.joint is not None and any(one.timing is None for one in self.subjects):
            raise ValueError("joint: a sum of savings needs timing of every subject")
        graphs = [one.name for one in self.subjects if one.timing is not None and one.timing.launch_mode == "graph"]
        if graphs and not self.deviations:
            raise ValueError(f"deviations: {graphs[0]} replays a graph, which has to be stated here")

    def subject(self, name: str) -> Subject:
        """The subject of a name; raises KeyError where there is none."""
        return {one.name: one for one in self.subjects}[name]


def _name(what: str, text: str) -> None:
    if not _NAME.match(text):
        raise ValueError(f"{what}: a name is lower-case letters, digits, '_', '.' and '-', not {text!r}")


def _positive(what: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"{what}: at least 1, not {number}")


def _distinct(what: str, found: Iterable[str]) -> None:
    """Refuse an empty list: a rule over nothing holds of everything."""
    names = list(found)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{what}: at least one, each once")
