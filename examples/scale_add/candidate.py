"""The candidate: one operator, and nothing between."""

from __future__ import annotations

import torch


def run(routed: torch.Tensor, shared: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    """out = shared + routed x scale."""
    torch.add(shared, routed, alpha=scale, out=out)
