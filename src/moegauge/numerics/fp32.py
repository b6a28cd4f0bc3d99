"""FP32 multiplication, addition and fused multiply-add on words, each rounded once, to nearest and ties to even.

Everything is done in integers, so a result depends on no rounding mode, no flush-to-zero setting, no contraction by a
compiler and no library. A number is a significand of at most 24 bits times a power of two; an operation computes its
exact magnitude (or, where bits fall off, the exact magnitude with its lowest bit set: what *sticky* means), and
:func:`nearest` rounds that once. Subnormal operands and results keep their values. Every NaN that comes in, and every
invalid operation (infinity minus infinity, zero times infinity), gives :data:`moegauge.numerics.words.FP32_NAN`.

Source of the rounding rules: IEEE 754-2019, 4.3.1 (ties to even), 6.3 (signs of zero), 7.2 (invalid), 7.4 (overflow).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moegauge.numerics.words import FP32_INFINITY, FP32_NAN, FP32_SIGN, BoolArray, UInt32Array

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]

_MAGNITUDE = 0x7FFF_FFFF
_FRACTION_BITS = 23
_FRACTION = (1 << _FRACTION_BITS) - 1
_SMALLEST_EXPONENT = -149  # of the lowest bit of a subnormal
_GUARD_BITS = 27  # 24 + 27 bits and a carry stay below 2**53


def product(left: UInt32Array, right: UInt32Array) -> UInt32Array:
    """FP32(left x right).

    Args:
        left, right: uint32 words of shapes that broadcast.
    """
    significand, exponent = _parts(left)
    other_significand, other_exponent = _parts(right)
    word = nearest(significand * other_significand, exponent + other_exponent)
    word |= (left ^ right) & np.uint32(FP32_SIGN)
    special = _is_special(left) | _is_special(right)
    if special.any():
        zero = (significand == 0) | (other_significand == 0)
        word = np.where(special, (word & np.uint32(FP32_SIGN)) | np.uint32(FP32_INFINITY), word)
        word = np.where(_is_nan(left) | _is_nan(right) | (special & zero), np.uint32(FP32_NAN), word)
    return word


def total(left: UInt32Array, right: UInt32Array) -> UInt32Array:
    """FP32(left + right). The sum of opposite numbers is +0; only -0 + -0 is -0.

    Args:
        left, right: uint32 words of shapes that broadcast.
    """
    significand, exponent = _parts(left)
    other_significand, other_exponent = _parts(right)
    high = np.maximum(exponent, other_exponent)
    sum_ = _signed(_aligned(significand, high - exponent), left)
    sum_ = sum_ + _signed(_aligned(other_significand, high - other_exponent), right)
    word = nearest(np.abs(sum_), high - _GUARD_BITS)
    both_negative = (left & right) >> np.uint32(31) == 1
    word |= np.where((sum_ < 0) | (both_negative & (sum_ == 0)), np.uint32(FP32_SIGN), np.uint32(0))
    special = _is_special(left) | _is_special(right)
    if special.any():
        word = np.where(special, _special_total(left, right), word)
    return word


def fused(left: UInt32Array, right: UInt32Array, addend: UInt32Array) -> UInt32Array:
    """FP32(left x right + addend), rounded once: what a contracting compiler makes of product and total.

    A float64 holds the product exactly. Its sum with the addend is rounded to odd (to the neighbour whose last bit is
    1 where it is not exact), which a later rounding to fewer than 52 bits cannot tell from the exact sum (Boldo and
    Melquiond, IEEE Transactions on Computers 57:4, 2008). No value here is a float64 subnormal.

    Args:
        left, right, addend: uint32 words of shapes that broadcast.
    """
    exact, term = _float64(left) * _float64(right), _float64(addend)
    sum_ = exact + term
    shift = sum_ - exact
    error = (exact - (sum_ - shift)) + (term - shift)
    towards = np.where(error > 0, np.inf, -np.inf)
    even = sum_.view(np.int64) & 1 == 0
    odd = np.where((error != 0) & even, np.nextafter(sum_, towards), sum_)
    fraction, exponent = np.frexp(np.abs(odd))
    word = nearest(np.ldexp(fraction, 53).astype(np.int64), exponent.astype(np.int64) - 53)
    word |= np.where(np.signbit(odd), np.uint32(FP32_SIGN), np.uint32(0))
    factors = _is_special(left) | _is_special(right)
    special = factors | _is_special(addend)
    if special.any():
        # A finite product never overflows here: it is not rounded before the addend comes in.
        apart = np.where(factors, product(left, right), np.uint32(0))
        word = np.where(special, total(apart, addend), word)
    return word


def nearest(magnitude: Int64Array, exponent: Int64Array) -> UInt32Array:
    """The positive FP32 word nearest to magnitude x 2**exponent, ties to even; infinity beyond the largest.

    Args:
        magnitude: int64, 0 <= magnitude < 2**53.
        exponent: int64 of a shape that broadcasts.

    Returns:
        uint32 words without a sign.
    """
    # An integer below 2**53 becomes a float64 without rounding; its bits are the integer moved up to 53 bits.
    bits = magnitude.astype(np.float64).view(np.int64)
    lowest = exponent + (bits >> 52) - 1075
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)
    dropped = np.maximum(53 - 24, np.minimum(_SMALLEST_EXPONENT - lowest, 54))  # 54 leave nothing
    odd = (significand >> dropped) & 1
    kept = (significand + ((1 << (dropped - 1)) - 1) + odd) >> dropped
    # The leading bit of a normal number adds one to the exponent field, and so does a carry out of the rounding.
    word = kept + ((np.maximum(lowest + dropped, _SMALLEST_EXPONENT) - _SMALLEST_EXPONENT) << _FRACTION_BITS)
    word = np.where(magnitude == 0, 0, np.minimum(word, FP32_INFINITY))
    return word.astype(np.uint32)


def _parts(words: UInt32Array) -> tuple[Int64Array, Int64Array]:
    """Significand and exponent of its lowest bit; for a subnormal the same exponent as for the smallest normal."""
    field = ((words >> np.uint32(_FRACTION_BITS)) & np.uint32(0xFF)).astype(np.int64)
    normal = np.minimum(field, 1)
    significand = (words & np.uint32(_FRACTION)).astype(np.int64) | (normal << _FRACTION_BITS)
    return significand, field - normal + _SMALLEST_EXPONENT


def _aligned(significand: Int64Array, distance: Int64Array) -> Int64Array:
    """The significand with guard bits, moved down by a distance; the lowest bit is sticky."""
    distance = np.minimum(distance, _GUARD_BITS + 25)
    wide = significand << _GUARD_BITS
    moved = wide >> distance
    return np.asarray(moved | (moved << distance != wide))


def _signed(magnitude: Int64Array, words: UInt32Array) -> Int64Array:
    sign = (words >> np.uint32(31)).astype(np.int64)
    return (magnitude ^ -sign) + sign


def _special_total(left: UInt32Array, right: UInt32Array) -> UInt32Array:
    """Sums with an infinity or a NaN in them."""
    infinity = np.where(_is_special(left), left, right)
    opposed = _is_special(left) & _is_special(right) & (left != right)
    return np.where(_is_nan(left) | _is_nan(right) | opposed, np.uint32(FP32_NAN), infinity)


def _is_special(words: UInt32Array) -> BoolArray:
    return (words & np.uint32(_MAGNITUDE)) >= FP32_INFINITY


def _is_nan(words: UInt32Array) -> BoolArray:
    return (words & np.uint32(_MAGNITUDE)) > FP32_INFINITY


def _float64(words: UInt32Array) -> Float64Array:
    """The value of finite words, exactly; some finite value for the others."""
    significand, exponent = _parts(words)
    value = np.ldexp(significand.astype(np.float64), exponent.astype(np.int32))
    return np.where(words >> np.uint32(31) == 1, -value, value)
