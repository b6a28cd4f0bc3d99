"""Weights of a loaded model, drawn anew: dummy weights route every layer alike, and a real checkpoint is not needed.

Norms are 1, matrices are normal with variance 1 / fan-in, and gates get a common direction, so that some experts are
more popular than others, in every layer differently. Only for layouts that loading does not pack (CUDA).
"""

from __future__ import annotations

import zlib
from typing import Any

import torch


def draw_weights(model: Any, *, seed: int) -> None:
    """Draw every parameter in place; the same on every rank that holds the same shape."""
    inner = model.unwrap() if hasattr(model, "unwrap") else model
    parameters = dict(inner.named_parameters())
    width = next(value.shape[-1] for name, value in parameters.items() if "embed" in name)
    device = next(iter(parameters.values())).device
    direction = torch.randn(width, device=device, generator=_generator(device, f"{seed} direction"))
    direction /= direction.norm()
    with torch.no_grad():
        for name, value in parameters.items():
            _draw(name, value, direction, _generator(device, f"{seed} {name}"))


def _draw(name: str, value: torch.Tensor, direction: torch.Tensor, generator: torch.Generator) -> None:
    width = len(direction)
    if "norm" in name:
        value.fill_(1.0)
    elif name.endswith("gate.weight"):
        value.copy_(1.5 * width**-0.5 * torch.randn(value.shape, device=value.device, generator=generator))
        popular = torch.randn(value.shape[0], 1, device=value.device, generator=generator)
        value.add_((2.0 * width**-0.5 * popular * direction[None, :]).to(value.dtype))
    elif "embed" in name:
        value.copy_(torch.randn(value.shape, device=value.device, generator=generator))
        value.add_((0.6 * width**0.5 * direction).to(value.dtype))
    elif value.dim() > 1:
        value.normal_(0.0, value.shape[-1] ** -0.5, generator=generator)


def _generator(device: torch.device, text: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(zlib.crc32(text.encode()))
