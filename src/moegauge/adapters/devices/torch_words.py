"""Bits of torch tensors, to and from the host. torch is imported where a tensor already exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moegauge.gate.ports import Inputs, Words

Tensors = Mapping[str, Any]
"""torch tensors by name."""


def words_of(tensor: Any) -> Words:
    """Bits of a tensor, on the host."""
    words = tensor.contiguous().view(signed(tensor)).cpu().numpy()
    return np.array(words.view(f"u{tensor.element_size()}"))


def read_words(tensors: Tensors, like: Inputs) -> Inputs:
    """Bits of every tensor, in the number format of another set."""
    return {name: words_of(one).view(like[name].dtype) for name, one in tensors.items()}


def fill(buffers: Tensors, poison: int) -> None:
    """Every word of every buffer is the poison, cut to its width."""
    for one in buffers.values():
        bits = 8 * one.element_size()
        word = poison & ((1 << bits) - 1)
        one.view(signed(one)).fill_(word - (1 << bits) if word >> (bits - 1) else word)


def signed(tensor: Any) -> Any:
    """The integer format of a tensor's width: torch has few unsigned ones."""
    import torch  # noqa: PLC0415

    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]


def same_words(left: Tensors, right: Tensors) -> bool:
    """Whether two sets of tensors hold the same bits, compared where they lie."""
    import torch  # noqa: PLC0415

    return left.keys() == right.keys() and all(
        torch.equal(left[name].view(signed(left[name])), right[name].view(signed(right[name]))) for name in left
    )
