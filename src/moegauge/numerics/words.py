"""Words of BF16 and FP32, and the classes they fall into.

A word is the bits of a number as an unsigned integer: uint16 for BF16, uint32 for FP32. Both formats have one sign
bit and eight exponent bits; BF16 is the upper half of FP32, so one definition of each class serves both.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

UInt8Array = NDArray[np.uint8]
UInt16Array = NDArray[np.uint16]
UInt32Array = NDArray[np.uint32]
BoolArray = NDArray[np.bool_]

BF16_SIGN = 0x8000
BF16_INFINITY = 0x7F80
BF16_NAN = 0x7FC0
"""The one word that a BF16 rounding gives for every NaN: quiet, positive, no payload."""

FP32_SIGN = 0x8000_0000
FP32_INFINITY = 0x7F80_0000
FP32_NAN = 0x7FC0_0000
"""The one word that an FP32 operation gives for every NaN: quiet, positive, no payload."""


class WordClass(IntEnum):
    """What kind of number a BF16 word is, its sign aside."""

    ZERO = 0
    SUBNORMAL = 1
    NORMAL = 2
    INFINITY = 3
    NAN = 4


def word_class(words: UInt16Array) -> UInt8Array:
    """:class:`WordClass` of each BF16 word, uint8 of the same shape."""
    return _CLASS_OF[words]


def is_nan(words: UInt16Array) -> BoolArray:
    """Whether each BF16 word is a NaN, quiet or signalling."""
    return (words & 0x7FFF) > BF16_INFINITY


def _classes() -> UInt8Array:
    magnitude = np.arange(1 << 16, dtype=np.uint32) & 0x7FFF
    bounds = [1, 0x0080, BF16_INFINITY, BF16_INFINITY + 1]  # first subnormal, first normal, infinity, first NaN
    return np.searchsorted(bounds, magnitude, side="right").astype(np.uint8)


_CLASS_OF = _classes()

FINITE_WORDS: UInt16Array = np.flatnonzero(_CLASS_OF < WordClass.INFINITY).astype(np.uint16)
"""Every finite BF16 word, ascending as unsigned integers: 65,280 of them, both zeros included."""

NAN_WORDS: UInt16Array = np.flatnonzero(_CLASS_OF == WordClass.NAN).astype(np.uint16)
"""Every BF16 word that is a NaN: 254 of them, quiet and signalling, of both signs."""
