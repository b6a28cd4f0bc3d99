"""Frames of a recording: what the recorder inside a serving engine writes, rank by rank, while the engine runs.

A rank's file is a sequence of frames (evidence/frame_log.py). The first is a :class:`Head`; an :class:`End` closes a
recording that was stopped on purpose. A file without one was cut off: what stands before the cut is complete.
See docs/formats/recording.md.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from moegauge.records.schema import Record

NOT_WRITTEN = -2
"""In topk_ids: the slot was not written in this iteration. No expert, and no skipped slot (-1)."""


class RecordingSchema(Record, frozen=True, kw_only=True):
    """Kind and version of a recording."""

    kind: ClassVar[str] = "recording"
    version: ClassVar[int] = 1


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="head"):
    """Who recorded what.

    Attributes:
        schema: ``moegauge/recording/v1``.
        rank, world_size: of the model-parallel group that serves one copy of the model.
        tp_size, ep_size, dp_size: parallel sizes; None where the engine does not say.
        config: the engine's model configuration as plain values.
        layers: MoE layers, ascending; the layer axis of every array.
        num_experts, top_k: logical experts, slots a row.
        experts_class: class of the engine's experts object. kernel_kind: the registered kind, None where none is.
        numeric_format: dtype of the hidden states.
        expert_map: int by logical expert, -1 where another rank owns it; None where the rank owns all.
        clock: ``device`` (a profiler's traces hold the times) or ``host`` (the frames do).
        device_uuid, device_model: None where not readable.
        engine: settings that decide what runs, as texts. versions: of packages. environment: variables that are set.
        tool_version, started_at: who wrote it and when (UTC).
    """

    schema: str
    rank: int
    world_size: int
    tp_size: int | None
    ep_size: int | None
    dp_size: int | None
    config: dict[str, Any]
    layers: tuple[int, ...]
    num_experts: int
    top_k: int
    experts_class: str
    kernel_kind: str | None
    numeric_format: str
    expert_map: tuple[int, ...] | None
    clock: str
    device_uuid: str | None
    device_model: str | None
    engine: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]
    tool_version: str
    started_at: str


class RequestPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request's share of an iteration, in the order of its rows.

    Attributes:
        request: the engine's id. num_tokens: rows it has in the iteration.
        num_computed: tokens of it that were computed before. num_prompt: length of its prompt, None if not seen.
        resumed: it was preempted before and computes again what it had.
    """

    request: str
    num_tokens: int
    num_computed: int
    num_prompt: int | None
    resumed: bool


class IterationFrame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="iteration"):
    """One iteration on one rank.

    Attributes:
        number: counted by the recorder from 0. logical_tokens: asked by the scheduler.
        executed_rows: rows the model ran, padding included; None where not seen.
        launch_mode: ``eager``, ``graph``, or ``mixed``; None where not seen.
        requests: in row order; empty where the order could not be read.
        num_draft_tokens: speculative tokens among the logical ones.
        start_ns, end_ns: host monotonic clock around the engine's step.
        ids_type: ``int16`` or ``int32``, little-endian.
        topk_ids: [layers, executed_rows, top_k] of ids_type, row-major; NOT_WRITTEN where nothing was written.
        topk_weights: float32 [layers, executed_rows, top_k], valid where the ids are.
        intervals_ns: (start, end) of each layer's call on the host clock; None where the device's profiler has them, an
            empty pair (0, 0) never occurs: a layer without a time is absent from ``timed_layers``.
        timed_layers: indices of the layers that intervals_ns belongs to.
        kernel_config: digest of the kernel configuration chosen for these rows, None where not read.
    """

    number: int
    logical_tokens: int
    executed_rows: int | None
    launch_mode: str | None
    requests: tuple[RequestPart, ...]
    num_draft_tokens: int
    start_ns: int
    end_ns: int
    ids_type: str
    topk_ids: bytes
    topk_weights: bytes
    intervals_ns: tuple[tuple[int, int], ...] | None
    timed_layers: tuple[int, ...]
    kernel_config: str | None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="surroundings"):
    """Clocks, power, throttle reasons and the like, as read before the iteration of a number."""

    before_iteration: int
    facts: dict[str, str]


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="problem"):
    """Something the recorder could not do. Serving went on; the capture is marked."""

    before_iteration: int
    what: str
    text: str


class ProfiledRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="profiled"):
    """Iterations first..last lie in the trace file of this name, beside the frames."""

    first: int
    last: int
    file: str


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="end"):
    """The recording was stopped on purpose.

    Attributes:
        num_iterations: recorded. num_dropped: not recorded since the writer was behind.
        recorder_ns: host time that the recorder took inside the engine's steps, all together.
    """

    num_iterations: int
    num_dropped: int
    recorder_ns: int


class RecorderStatus(Record, frozen=True, kw_only=True):
    """What a rank's recorder last said of itself, beside the control file; written anew at each change.

    Attributes:
        rank: its own. state: ``idle``, ``recording``, ``ended`` or ``failed``.
        take: folder of the take that is meant, ``.`` for the recording's own; None where none is.
        num_iterations: handed to its writer so far. problem: the original error; None where there is none.
    """

    kind: ClassVar[str] = "recorder-status"
    version: ClassVar[int] = 1

    rank: int
    state: str
    take: str | None
    num_iterations: int
    problem: str | None


Frame = Head | IterationFrame | Surroundings | Problem | ProfiledRange | End
