"""capture.json: what a serving recording is, what it covers and what it lacks. See docs/formats/capture.md."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from moegauge.records.identity import KernelIdentity, ModelShape, Topology
from moegauge.records.measurement import Facts
from moegauge.records.schema import Record


class FileDigest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Digest (its name says how it was made) and size of one file."""

    digest: str
    num_bytes: int


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something a reader noticed and did not hide: a repaired name, an invalid row, a disagreement.

    Attributes:
        code: stable name.
        sentence: what it is and what was done about it.
        num: how often.
        ns: device time concerned, None where it has none.
        examples: a few literal instances.
    """

    code: str
    sentence: str
    num: int
    ns: int | None = None
    examples: tuple[str, ...] = ()


class Coverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the recording is accounted for.

    Counts of invocations are rank invocations: (iteration, layer, rank). ``num_ops_*`` partition every device
    operation of the traces: inside the boundary, known stages outside it, foreign, unknown, outside every
    iteration, invalid.
    """

    num_iterations: int
    num_iterations_closed: int
    num_rank_invocations: int
    num_rank_invocations_closed: int
    num_rank_invocations_zero_tokens: int
    num_rank_invocations_routed: int
    num_ops_in_boundary: int
    num_ops_outside_boundary: int
    num_ops_foreign: int
    num_ops_unknown: int
    num_ops_outside_iterations: int
    num_ops_invalid: int
    busy_ns: int
    span_ns: int
    foreign_ns: int
    unknown_names: tuple[str, ...]


class RoutesCrossCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Captured ids against the engine's own per-request export, token by token over all layers.

    Attributes:
        num_tokens_official: tokens in the engine's export.
        num_tokens_captured: logical rows captured.
        num_tokens_equal: tokens whose ids of every layer stand in a captured logical row, each row used once.
        num_padded_rows: captured rows beyond the logical ones.
        num_padded_rows_like_a_token: padded rows that equal some exported token (stale rows may).
    """

    num_tokens_official: int
    num_tokens_captured: int
    num_tokens_equal: int
    num_padded_rows: int
    num_padded_rows_like_a_token: int


class CaptureRecord(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of a capture folder.

    Attributes:
        created_at: UTC time of the import.
        tool_version: moegauge version that wrote it.
        source: what it was made from (``bundle``).
        partial: True where a declared part is missing and the import was told to go on.
        engine: facts about the serving engine and its environment.
        model: dimensions.
        moe_layers: layer numbers with a fused MoE, ascending.
        model_config_digest: digest of the engine's model configuration (raw/meta.json holds it).
        kernel: the subject.
        topology: ranks and sizes.
        conditions: recorded conditions (names of records/measurement.CONDITIONS); the rest were not recorded.
        coverage: what closes.
        findings: what was noticed.
        routes_cross_check: None where the engine's own export is not in the recording.
        files: digest of every other file of the folder, by POSIX path.
    """

    kind: ClassVar[str] = "capture"
    version: ClassVar[int] = 1

    created_at: str
    tool_version: str
    source: str
    partial: bool
    model: ModelShape
    moe_layers: tuple[int, ...]
    model_config_digest: str
    kernel: KernelIdentity
    topology: Topology
    conditions: Facts
    coverage: Coverage
    findings: tuple[Finding, ...]
    routes_cross_check: RoutesCrossCheck | None
    files: dict[str, FileDigest]
