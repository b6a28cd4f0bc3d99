"""What a fused MoE layer computes, in plain torch: the product of every chosen expert, weighted and added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional

from moegauge.adapters.runners.work import Work


def local_ids(ids: torch.Tensor, work: Work) -> torch.Tensor:
    """Ids as indices of this rank's experts; -1 for skipped slots and experts of other ranks."""
    if work.expert_map is None:
        return ids.long()
    table = torch.from_numpy(work.expert_map.copy()).to(ids.device).long()
    return torch.where(ids >= 0, table[ids.clamp(min=0).long()], -1)


class Matrices(Protocol):
    """One matrix an expert."""

    def __getitem__(self, expert: int) -> torch.Tensor:
        """The expert's."""


class InFloat64:
    """Matrices of experts as float64 on the host, one at a time: all of them at once may be larger than its memory."""

    def __init__(self, matrices: torch.Tensor) -> None:
        self.matrices = matrices

    def __getitem__(self, expert: int) -> torch.Tensor:
        return self.matrices[expert].cpu().double()


def moe_forward(
    x: torch.Tensor,
    w13: Matrices,
    w2: Matrices,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    between: Callable[[torch.Tensor], torch.Tensor] = lambda inner: inner,
) -> torch.Tensor:
    """Weighted sum of the chosen experts' outputs.

    Args:
        x: [rows, hidden]. w13: [experts, 2 * intermediate, hidden]. w2: [experts, hidden, intermediate]; by expert.
        ids: int64 [rows, top_k], local expert or -1. weights: [rows, top_k].
        between: what becomes of an expert's activation, [rows of the expert, intermediate], before its second product.

    Returns:
        [rows, hidden] in the type of ``x``; accumulated in it.
    """
    out = torch.zeros_like(x)
    for expert in torch.unique(ids[ids >= 0]).tolist():
        row, slot = torch.nonzero(ids == expert, as_tuple=True)
        gate, up = functional.linear(x[row], w13[expert]).chunk(2, dim=-1)
        down = functional.linear(between(functional.silu(gate) * up), w2[expert])
        out.index_add_(0, row, down * weights[row, slot, None].to(down.dtype))
    return out
