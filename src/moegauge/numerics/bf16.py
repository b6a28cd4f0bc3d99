"""BF16 words: to FP32 and back, rounded to nearest and ties to even, in integers."""

from __future__ import annotations

import numpy as np

from moegauge.numerics.words import BF16_NAN, FP32_INFINITY, BoolArray, UInt16Array, UInt32Array


def widened(words: UInt16Array) -> UInt32Array:
    """The FP32 word of the same value: BF16 is the upper half of FP32."""
    return words.astype(np.uint32) << np.uint32(16)


def rounded(words: UInt32Array) -> UInt16Array:
    """BF16(word): nearest, ties to even, infinity beyond the largest, 0x7FC0 for every NaN.

    Args:
        words: uint32 words of FP32.
    """
    even = (words >> np.uint32(16)) & np.uint32(1)
    upper = (words + np.uint32(0x7FFF) + even) >> np.uint32(16)
    nan = (words & np.uint32(0x7FFF_FFFF)) > FP32_INFINITY
    return np.where(nan, np.uint32(BF16_NAN), upper).astype(np.uint16)


def is_tie(words: UInt32Array) -> BoolArray:
    """Whether an FP32 word lies exactly between two BF16 words (the upper one may be infinity)."""
    finite = (words & np.uint32(0x7FFF_FFFF)) < FP32_INFINITY
    return np.asarray(finite & (words & np.uint32(0xFFFF) == 0x8000))
