"""What an offline engine is asked to serve while it is recorded, and how long it took."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from moegauge.records.schema import Record


class ServedRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request: its prompt as token ids, and how many tokens it shall generate, end of text or not."""

    prompt_token_ids: tuple[int, ...]
    max_tokens: int


class EngineRun(Record, frozen=True, kw_only=True):
    """What one engine process does.

    Attributes:
        model: folder of the model. built_in: name of a built-in shape to write there first, or None.
        checkpoint: write weights of the built-in shape too (else they are drawn after loading).
        seed: of the weights of a built-in shape.
        arguments: keyword arguments of the engine. workload: file of requests, one a line.
        takes: names of the recorded runs. num_timed: runs before them whose length is measured, with nothing profiled.
        num_warm_up: runs before all of these. export_routes: write the engine's own routes beside each take.
        recording: folder to record into; None where the engine runs without the recorder.
    """

    kind: ClassVar[str] = "engine-run"
    version: ClassVar[int] = 1

    model: str
    built_in: str | None
    checkpoint: bool
    seed: int
    arguments: dict[str, Any]
    workload: str
    takes: tuple[str, ...]
    num_timed: int
    num_warm_up: int
    export_routes: bool
    recording: str | None


ABSENT, PAUSED, RECORDING = "absent", "paused", "recording"
"""What a recorder did in a run."""


class TimedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of a workload by one engine process.

    Attributes:
        process: number of the process, in the order they ran.
        recorder: ``absent`` from the process, attached but ``paused``, or ``recording``.
        take: name of the take, None for a timed run. wall_ns: length. outputs_digest: of all generated token ids.
    """

    process: int
    recorder: str
    take: str | None
    wall_ns: int
    outputs_digest: str


class Overhead(Record, frozen=True, kw_only=True):
    """Lengths of the same workload with and without the recorder, in engine processes that took turns.

    Attributes:
        runs: every run, in order.
        recording_ratio: mean length of recorded runs over that of paused ones which took turns with them in the same
            processes, minus 1. What a recorder adds to CUDA graphs while it is attached is in both.
        ratio: mean length of recorded runs over that of runs in processes without a recorder, minus 1.
        ratio_by_turn: the same for each pair of neighbouring processes.
        outputs_identical: every run generated the same tokens.
    """

    kind: ClassVar[str] = "overhead"
    version: ClassVar[int] = 1

    runs: tuple[TimedRun, ...]
    recording_ratio: float | None
    ratio: float | None
    ratio_by_turn: tuple[float, ...]
    outputs_identical: bool
