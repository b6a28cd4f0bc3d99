"""What of a routed input a fused MoE kernel's time depends on, as a few numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float64Array = NDArray[np.float64]

BLOCK_ROWS = 16
"""Rows of the smallest tile; each expert's assignments are padded to a multiple of it."""

FEATURES = ("executed_rows", "active_experts", "padded_blocks", "load_q50", "load_q90", "load_max")


def load_features(topk_ids: Int32Array, expert_map: Int32Array | None, *, num_experts: int) -> Float64Array:
    """Features of one rank invocation, in the order of FEATURES. [6]

    Args:
        topk_ids: int32 [executed_rows, top_k], logical ids, -1 skipped.
        expert_map: int32 [num_experts] or None; experts of other ranks do not count.
        num_experts: of the model.
    """
    used = topk_ids[topk_ids >= 0]
    if expert_map is not None:
        used = used[expert_map[used] >= 0]
    load = np.bincount(used.astype(np.int64), minlength=num_experts)
    active = load[load > 0]
    quantiles = np.quantile(active, [0.5, 0.9, 1.0]) if len(active) else np.zeros(3)
    blocks = int(np.ceil(active / BLOCK_ROWS).sum())
    return np.array([len(topk_ids), len(active), blocks, *quantiles], dtype=np.float64)
