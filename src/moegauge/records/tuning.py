"""tuning.json: a search for kernel configurations under served routing, with every time that was taken."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from moegauge.records.profile import Subject
from moegauge.records.schema import Record


class Stage(StrEnum):
    """What trials were for; each stage runs on invocations of its own."""

    SEARCH = "search"
    FINALS = "finals"
    VERDICT = "verdict"


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A served invocation of the rank that was tuned on."""

    iteration: int
    layer: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration, and why it was not timed; None where it was."""

    config: dict[str, int]
    refused: str | None = None


class Trials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of one stage.

    Attributes:
        stage: what for. routing: ``served`` (the captured ids) or ``uniform`` (drawn without a popularity).
        candidates: indices into the size's candidates. places: invocations.
        busy_ns: [passes][candidates][places].
    """

    stage: Stage
    routing: str
    candidates: tuple[int, ...]
    places: tuple[Place, ...]
    busy_ns: tuple[tuple[tuple[int, ...], ...], ...]

    def __post_init__(self) -> None:
        wide, deep = len(self.candidates), len(self.places)
        if any(len(one) != wide or any(len(row) != deep for row in one) for one in self.busy_ns):
            raise ValueError(f"busy_ns must be [passes][{wide} candidates][{deep} places]")


class TunedSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of executed rows.

    Attributes:
        num_served: invocations of so many rows that the capture served on the rank: the weight of the size.
        candidates: the incumbents, then the search space. trials: of every stage.
        arms: index of the candidate that each arm runs, by name: found, default, and one for each routing searched.
    """

    executed_rows: int
    num_served: int
    candidates: tuple[Candidate, ...]
    trials: tuple[Trials, ...]
    arms: dict[str, int]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of rows that was served and not tuned."""

    executed_rows: int
    num_served: int
    why: str


class TuningRecord(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Head of a tuning folder; beside it, one folder for each arm with a file in vLLM's format.

    Attributes:
        capture_digest: over the raw files of the capture. subject: the kernel. rank: whose invocations were run.
        seed: of what was drawn. rule: of the search space. facts: conditions, and what was read before and after.
        files: digest of each file of configurations, by its path in the folder.
    """

    kind: ClassVar[str] = "tuning"
    version: ClassVar[int] = 1

    tool_version: str
    recorded_at: str
    capture_digest: str
    subject: Subject
    rank: int
    seed: int
    rule: str
    facts: dict[str, str]
    sizes: tuple[TunedSize, ...]
    left_out: tuple[LeftOut, ...]
    files: dict[str, str]
