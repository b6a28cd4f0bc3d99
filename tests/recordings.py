"""Recordings written frame by frame, with every number chosen by the test, as a recorder in an engine leaves them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moegauge.evidence.frame_log import MAGIC, FrameWriter
from moegauge.records.recording import End, Frame, Head, IterationFrame, RequestPart

LAYERS = (1, 3)
NUM_EXPERTS = 8
TOP_K = 2
STEP_NS = 1_000_000
"""Begin of one iteration after that of the one before."""


def head(**changes: Any) -> Head:
    """Head of rank 0 of 1 on the host."""
    config = {
        "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": NUM_EXPERTS, "num_experts_per_tok": TOP_K,
    }  # fmt: skip
    known = Head(
        schema="moegauge/recording/v1", rank=0, world_size=1, tp_size=1, ep_size=1, dp_size=1, config=config,
        layers=LAYERS, num_experts=NUM_EXPERTS, top_k=TOP_K, experts_class="CPUUnquantizedExperts",
        kernel_kind="vllm_cpu_moe", numeric_format="bfloat16", expert_map=None, clock="host", device_uuid=None,
        device_model="a processor", engine={"max_num_seqs": "4"}, versions={"vllm": "0.32.0", "torch": "2.13.0"},
        environment={}, tool_version="0.1.0", started_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return msgspec.structs.replace(known, **changes)


def routed(number: int, rows: int, *, layers: int = len(LAYERS)) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Ids [layers, rows, 2] of an iteration: two distinct experts a row, other ones in every row and layer."""
    first = np.arange(rows)[None, :] + 2 * np.arange(layers)[:, None] + number
    return np.stack((first % NUM_EXPERTS, (first + 3) % NUM_EXPERTS), axis=2).astype("<i2")


def part(request: str, num_tokens: int, num_computed: int, num_prompt: int | None, *, resumed: bool = False) -> Any:
    """One request's share."""
    return RequestPart(request, num_tokens, num_computed, num_prompt, resumed)


def iteration(
    number: int,
    rows: int = 2,
    *,
    ids: np.ndarray[Any, np.dtype[np.int16]] | None = None,
    parts: Sequence[RequestPart] = (),
    **changes: Any,
) -> IterationFrame:
    """An iteration of so many rows, all logical; layer k runs for 100 + 10 number + k ns."""
    begin = STEP_NS * (1 + number)
    starts = [begin + 1_000 * (1 + index) for index in range(len(LAYERS))]
    known = IterationFrame(
        number=number, logical_tokens=rows, executed_rows=rows, launch_mode="eager", requests=tuple(parts),
        num_draft_tokens=0, start_ns=begin, end_ns=begin + 100_000, ids_type="int16",
        topk_ids=(routed(number, rows) if ids is None else ids.astype("<i2")).tobytes(),
        topk_weights=np.full((len(LAYERS), rows, TOP_K), 0.5, dtype="<f4").tobytes(),
        intervals_ns=tuple((start, start + 100 + 10 * number + index) for index, start in enumerate(starts)),
        timed_layers=tuple(range(len(LAYERS))), kernel_config=f"canonical-json+sha256:{rows:064x}",
    )  # fmt: skip
    return msgspec.structs.replace(known, **changes)


def end(num_iterations: int, *, num_dropped: int = 0) -> End:
    """The end of a take that was stopped on purpose."""
    return End(num_iterations=num_iterations, num_dropped=num_dropped, recorder_ns=12_000)


def write_recording(folder: Path, *ranks: Sequence[Frame]) -> Path:
    """Write the frames of each rank; a rank without frames gets no file."""
    folder.mkdir(parents=True)
    for rank, frames in enumerate(ranks):
        if frames:
            with FrameWriter(folder / f"rank{rank}.frames") as writer:
                for frame in frames:
                    writer.write(frame)
    return folder


def framed(*payloads: bytes) -> bytes:
    """Bytes of a frame file, written by another hand than FrameWriter's."""
    return MAGIC + b"".join(struct.pack("<II", len(one), zlib.crc32(one)) + one for one in payloads)
