"""Routed inputs: four types, never one type with a flag.

Only :class:`ExactInput` may feed rungs 1 and 2. The popularity types hold what a compression kept; what a kernel
is run on afterwards is a :class:`Reconstruction` and can never become an ExactInput again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]

Padding = Literal["captured", "drawn"]
"""Where a reconstruction's padded rows come from: the ids the capture has in them, or the popularity."""


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

    @property
    def window(self) -> str:
        """The iteration, in words."""
        return f"iteration {self.iteration}"


@dataclass(frozen=True, kw_only=True)
class FullRunPopularity(_Popularity):
    """The expert distribution of one layer over a whole capture; the window is named."""

    first_iteration: int
    last_iteration: int

    @property
    def window(self) -> str:
        """First and last iteration, in words."""
        return f"iterations {self.first_iteration} to {self.last_iteration}"


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """Routed rows drawn from a popularity; however alike the counts, never an :class:`ExactInput`.

    Attributes:
        iteration, layer, rank: the captured invocation it stands in for.
        topk_ids: int32 [executed_rows, top_k], logical expert ids.
        num_logical_rows: the first rows; rows after them are padding.
        sampler, version, seed: what drew the rows.
        window: the iterations whose popularity was used.
        popularity_digest: of that popularity.
        padding: where the padded rows come from.
    """

    iteration: int
    layer: int
    rank: int
    topk_ids: Int32Array
    num_logical_rows: int
    sampler: str
    version: int
    seed: int
    window: str
    popularity_digest: str
    padding: Padding

    def __post_init__(self) -> None:
        if self.topk_ids.ndim != 2 or self.topk_ids.dtype != np.int32:
            raise ValueError(f"topk_ids must be int32 [rows, top_k], not {self.topk_ids.dtype} {self.topk_ids.shape}")
        if not 0 <= self.num_logical_rows <= len(self.topk_ids):
            raise ValueError(f"num_logical_rows {self.num_logical_rows} of {len(self.topk_ids)} executed rows")
        if self.padding not in get_args(Padding):
            raise ValueError(f"padding must be one of {', '.join(get_args(Padding))}, not {self.padding!r}")
