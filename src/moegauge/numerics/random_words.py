"""Random words from a counter, in integers alone: the same on every machine and under every NumPy.

Random bits are Philox 4x64 under the key (seed, stream), read as integers. No distribution of NumPy takes part, whose
streams may change between releases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moegauge.numerics import bf16, fp32
from moegauge.numerics.words import BoolArray, UInt16Array, UInt32Array

_ADDENDS = 8
_ONE_SIGMA_BITS = 17  # the sum below has a standard deviation of 107,020, near 2**17


class RandomWords:
    """Random words of one (seed, stream), in the order they are asked for."""

    def __init__(self, seed: int, stream: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))

    def bell(self, shape: tuple[int, ...], *, exponent: int) -> UInt16Array:
        """BF16 words of roughly a normal distribution with a standard deviation of 0.82 x 2**exponent.

        Each is the sum of eight uniform 16-bit integers about its mean, rounded once to BF16.
        """
        sums = self._uniform16((_ADDENDS, *shape)).sum(axis=0, dtype=np.int64)
        centred = 2 * sums - _ADDENDS * 0xFFFF
        word = fp32.nearest(np.abs(centred), np.array(exponent - _ONE_SIGMA_BITS, dtype=np.int64))
        return bf16.rounded(word) | np.where(centred < 0, 0x8000, 0).astype(np.uint16)

    def bf16(self, shape: tuple[int, ...], *, exponents: tuple[int, int]) -> UInt16Array:
        """Normal BF16 words of random sign and significand, 2**low to 2**(high + 1), exponents equally likely."""
        bits = self._uniform16(shape).astype(np.int64)
        field = _field(self._uniform16(shape), exponents)
        return ((bits & 0x807F) | (field << 7)).astype(np.uint16)

    def fp32(self, shape: tuple[int, ...], *, exponents: tuple[int, int], signed: bool) -> UInt32Array:
        """Normal FP32 words of a random full significand, 2**low to 2**(high + 1), exponents equally likely."""
        bits = (self._uniform16(shape).astype(np.int64) << 16) | self._uniform16(shape)
        field = _field(self._uniform16(shape), exponents)
        return ((bits & (0x807F_FFFF if signed else 0x007F_FFFF)) | (field << 23)).astype(np.uint32)

    def subnormal_fp32(self, shape: tuple[int, ...]) -> UInt32Array:
        """FP32 subnormals of random sign and significand, never zero."""
        bits = (self._uniform16(shape).astype(np.uint32) << np.uint32(16)) | self._uniform16(shape)
        return (bits & np.uint32(0x807F_FFFF)) | np.uint32(1)

    def below(self, shape: tuple[int, ...], numerator: int) -> BoolArray:
        """True with probability numerator / 65,536."""
        return self._uniform16(shape) < numerator

    def _uniform16(self, shape: tuple[int, ...]) -> UInt16Array:
        """uint16 of the given shape; four from each 64-bit word, the low one first."""
        num = int(np.prod(shape))
        words = self._bits.random_raw(-(-num // 4)).astype("<u8", copy=False)
        return words.view("<u2")[:num].reshape(shape).astype(np.uint16, copy=False)


def _field(uniform: UInt16Array, exponents: tuple[int, int]) -> NDArray[np.int64]:
    """Exponent fields of 2**low to 2**high from 16 random bits."""
    low, high = exponents
    return low + 127 + ((uniform.astype(np.int64) * (high - low + 1)) >> 16)
