"""Key of an isolated measurement: everything that must be held fixed. See docs/formats/profile-db.md."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moegauge.records.identity import ModelShape
from moegauge.records.measurement import Facts, LaunchMode


class Subject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel on one rank, its format, shape and share of the experts.

    Attributes:
        tp_size, ep_size, dp_size: None where not recorded.
        expert_map_digest: None where the rank owns every expert.
    """

    kernel_kind: str
    backend: str
    numeric_format: str
    shape: ModelShape
    tp_size: int | None
    ep_size: int | None
    dp_size: int | None
    num_local_experts: int
    expert_map_digest: str | None


class MatchKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a key that selects rows: the subject and its input.

    Attributes:
        input_type: ``exact`` (ExactInput); reconstructions and inputs that a person gave carry other names and never
            match an exact lookup.
        input_digest: digest of the routed ids of the rank (names its algorithm).
    """

    subject: Subject
    executed_rows: int
    input_type: str
    input_digest: str


class InputLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an input came to be; None throughout for an exact one.

    Attributes:
        window: the window a popularity was taken over, or that it was given. sampler, version, seed: how it was drawn.
        padding: ``captured`` (padded rows keep their captured ids) or ``drawn``; None where nothing is padded.
        popularity_digest: digest of the popularity.
    """

    window: str | None = None
    sampler: str | None = None
    version: int | None = None
    seed: int | None = None
    padding: str | None = None
    popularity_digest: str | None = None


class RowStatus(StrEnum):
    """What became of a row. WRONG_OUTPUT: its output was found wrong after it had been timed; no time of it counts."""

    MEASURED = "MEASURED"
    WRONG_OUTPUT = "WRONG_OUTPUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    UNSUPPORTED = "UNSUPPORTED"
    INTERRUPTED = "INTERRUPTED"


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a row was measured.

    Attributes:
        launch_mode: None where the recording does not show it.
        conditions: recorded conditions and limits, by name.
    """

    launch_mode: LaunchMode | None
    conditions: Facts


class ProfileKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole key: what selects the row, and how it was measured."""

    match: MatchKey
    setting: Setting


class PassRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pass over invocations: samples of one pass share its drift.

    Attributes:
        source: ``import`` (a replay trace someone recorded) or ``run`` (measured by a runner).
        capture_digest: digest over the raw files of the capture whose inputs were used (importing them again gives the
            same); None where the inputs were given.
        spec_digest: artifact of the spec that gave the inputs, None where they came from a capture.
        runner: name of the runner, None for an import.
        tag, launch_mode, declared: what a person declared of an imported replay.
        traces: artifact digest by rank number (as text); empty where no raw trace is kept.
        facts: what was read around the pass (device_uuids, clocks, power, temperature, throttle), by name.
        tool_version, recorded_at: who wrote it and when.
    """

    source: str
    capture_digest: str | None
    spec_digest: str | None = None
    runner: str | None
    tag: str | None
    launch_mode: str | None
    declared: dict[str, str]
    traces: dict[str, str]
    facts: dict[str, str]
    tool_version: str
    recorded_at: str

    def __post_init__(self) -> None:
        if self.capture_digest is not None and self.spec_digest is not None:
            raise ValueError("the inputs of a pass come from a capture or from a spec, not from both")
