"""Key of an isolated measurement: everything that must be held fixed. See docs/formats/profile-db.md."""

from __future__ import annotations

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
        input_type: ``exact`` (ExactInput); reconstructions carry other names and never match an exact lookup.
        input_digest: digest of the routed ids of the rank (names its algorithm).
    """

    subject: Subject
    executed_rows: int
    input_type: str
    input_digest: str


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
