"""The incumbent: two operators, and a tensor between them."""

from __future__ import annotations

import torch


def run(routed: torch.Tensor, shared: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    """out = shared + BF16(routed x scale)."""
    scaled = torch.mul(routed, scale)
    torch.add(shared, scaled, out=out)
