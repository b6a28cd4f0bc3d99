"""An iteration's frame, made on the writer's thread of what the engine's thread copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from moegauge.adapters.vllm.buffers import Snapshot
from moegauge.adapters.vllm.engine import Scheduled, parts_of
from moegauge.records.recording import NOT_WRITTEN, IterationFrame

_SMALL_IDS = 1 << 15


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """What one step has shown; owned by the frame, so that the engine may go on with its own lists.

    Attributes:
        order: requests in row order. scheduled, prompts: tokens of this step and of the prompt, by request.
        seen: what the scheduler said of them. num_layers, top_k, num_experts: of the head. Others: see IterationFrame.
    """

    number: int
    logical_tokens: int
    executed_rows: int | None
    launch_mode: str
    order: Sequence[object]
    scheduled: Mapping[str, int]
    prompts: Mapping[str, int]
    seen: Scheduled
    num_draft_tokens: int
    start_ns: int
    end_ns: int
    intervals: Mapping[int, tuple[int, int]]
    on_host: bool
    kernel_config: str | None
    num_layers: int
    top_k: int
    num_experts: int

    def frame(self, snapshot: Snapshot | None) -> IterationFrame:
        """The frame; rows that were lost on the way (no snapshot) are NOT_WRITTEN."""
        narrow = self.num_experts < _SMALL_IDS
        if snapshot is None:
            shape = (self.num_layers, self.executed_rows or 0, self.top_k)
            ids = np.full(shape, NOT_WRITTEN, dtype=np.int32)
            weights = np.full(shape, np.nan, dtype=np.float32)
        else:
            ids, weights = snapshot.arrays()
        parts = tuple(parts_of(self.order, self.scheduled, self.seen, self.prompts))
        complete = sum(part.num_tokens for part in parts) == self.logical_tokens
        timed = tuple(sorted(self.intervals))
        return IterationFrame(
            number=self.number,
            logical_tokens=self.logical_tokens,
            executed_rows=self.executed_rows,
            launch_mode=self.launch_mode,
            requests=parts if complete else (),
            num_draft_tokens=self.num_draft_tokens,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            ids_type="int16" if narrow else "int32",
            topk_ids=ids.astype("<i2" if narrow else "<i4").tobytes(),
            topk_weights=np.ascontiguousarray(weights, dtype="<f4").tobytes(),
            intervals_ns=tuple(self.intervals[index] for index in timed) if self.on_host else None,
            timed_layers=timed,
            kernel_config=self.kernel_config,
        )
