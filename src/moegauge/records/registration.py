"""registration.toml: what a replacement lane asks, and by which rules it will be answered. See docs/formats/lane.md.

Everything that decides a verdict stands here, and nothing that decides one stands in code: a lane with other
thresholds, several kernels or no timing at all is another registration.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from moegauge.records.counter_rules import CounterProtocol
from moegauge.records.subject import Subject, check_distinct, check_name

_COMMIT = re.compile(r"^[0-9a-f]{40}\Z")
_ENTRY = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


class Joint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the subjects have to reach together: the sum of their median savings per cycle, on every device alone."""

    min_sum_of_median_savings_ns: int


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the treatment may run at all. The platform is part of it: each has predicates and a selector of its own."""

    platform: Literal["cpu", "cuda", "xpu"]
    selector: str
    predicates: tuple[str, ...]

    def __post_init__(self) -> None:
        check_distinct("predicates", self.predicates)


class Devices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices, each judged alone, in this order; the first that fails stops the lane.

    Attributes:
        names: names of the lane's own choosing; a packet binds each to a physical identity.
        throttle: ``forbidden`` (a block measured under throttling is invalid) or ``recorded``.
    """

    names: tuple[str, ...]
    throttle: Literal["forbidden", "recorded"]

    def __post_init__(self) -> None:
        check_distinct("names", self.names)
        for name in self.names:
            check_name("device", name)


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
        check_name("source", self.name)
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
        check_distinct("required_checks", self.required_checks)


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
        check_name("lane", self.lane)
        for name in ("subjects", "sources"):
            check_distinct(name, [one.name for one in getattr(self, name)])
        for name in ("identities", "does_not_authorize", "exclusions"):
            check_distinct(name, getattr(self, name))
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
