"""Routed inputs: three types, never one type with a flag.

Only :class:`ExactInput` may feed rungs 1 and 2. The popularity types hold what a compression kept; what a kernel
is run on afterwards is a reconstruction and can never become an ExactInput again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ExactInput:
    """The routed rows one rank's kernel really ran in one invocation.

    Attributes:
        iteration, layer, rank: which invocation.
        topk_ids: int32 [executed_rows, top_k], logical expert ids; -1 = skipped slot.
        topk_weights: float32 [executed_rows, top_k], or None where the weights were not recorded.
        num_logical_rows: the first rows that the scheduler asked for; rows after them are padding.
        expert_map: int32 [num_experts] or None (see RankIdentity).
    """

    iteration: int
    layer: int
    rank: int
    topk_ids: Int32Array
    topk_weights: Float32Array | None
    num_logical_rows: int
    expert_map: Int32Array | None

    def __post_init__(self) -> None:
        if self.topk_ids.ndim != 2 or self.topk_ids.dtype != np.int32:
            raise ValueError(f"topk_ids must be int32 [rows, top_k], not {self.topk_ids.dtype} {self.topk_ids.shape}")
        if self.topk_weights is not None and self.topk_weights.shape != self.topk_ids.shape:
            raise ValueError(f"topk_weights {self.topk_weights.shape} differ in shape from ids {self.topk_ids.shape}")
        if not 0 <= self.num_logical_rows <= len(self.topk_ids):
            raise ValueError(f"num_logical_rows {self.num_logical_rows} of {len(self.topk_ids)} executed rows")


@dataclass(frozen=True, kw_only=True)
class _Popularity:
    """Integer counts of logical rows per expert, with their total.

    Attributes:
        layer: which layer.
        expert_load: int64 [num_experts], token counts; padding and skipped slots are not in it.
        num_tokens: logical tokens the counts were taken over.
    """

    layer: int
    expert_load: Int64Array
    num_tokens: int

    def __post_init__(self) -> None:
        if self.expert_load.ndim != 1 or self.expert_load.dtype != np.int64:
            raise ValueError("expert_load must be int64 [num_experts]")
        if (self.expert_load < 0).any() or (self.expert_load > self.num_tokens).any():
            raise ValueError(f"each count must lie in 0..num_tokens ({self.num_tokens})")


@dataclass(frozen=True, kw_only=True)
class IterationPopularity(_Popularity):
    """The expert distribution of one iteration of one layer; the window is that iteration."""

    iteration: int


@dataclass(frozen=True, kw_only=True)
class FullRunPopularity(_Popularity):
    """The expert distribution of one layer over a whole capture; the window is named."""

    first_iteration: int
    last_iteration: int
