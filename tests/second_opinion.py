"""BF16 and FP32 arithmetic written a second and a third time, sharing nothing with moegauge.numerics.

First: Python floats as carriers of FP32 values, Python integers for every sum and product, an explicit rounding to
nearest even. Slow; one element at a time. Second (`machine_...`): the float32 units of this machine for products and
sums, and BF16 rounding as a search for the nearest of all BF16 values. Fast; relies on the machine's IEEE 754.
"""

from __future__ import annotations

import math
import struct

import numpy as np

NAN_WORD = 0x7FC0
SCALE = 2.5


def value_of(fp32_word: int) -> float:
    return struct.unpack("<f", struct.pack("<I", fp32_word))[0]


def word_of(value: float) -> int:
    """FP32 word of a value that FP32 holds exactly; the one NaN for every NaN."""
    if math.isnan(value):
        return NAN_WORD << 16
    return struct.unpack("<I", struct.pack("<f", value))[0]


def nearest_even(units: int, unit: int, *, precision: int, lowest: int) -> float:
    """The value of a format nearest to units x 2**unit (units > 0): ``precision`` bits, none below 2**lowest."""
    drop = max(units.bit_length() - precision, lowest - unit, 0)
    quotient, remainder = divmod(units, 1 << drop)
    twice = 2 * remainder
    if twice > 1 << drop or (twice == 1 << drop and quotient % 2 == 1):
        quotient += 1
    exponent = unit + drop
    if quotient.bit_length() + exponent > 128:
        return math.inf
    return math.ldexp(float(quotient), exponent)


def integer(value: float) -> int:
    """The value in units of 2**-149, of which every FP32 value is a multiple."""
    return int(math.ldexp(value, 149))


def signed(units: int, unit: int, *, precision: int, lowest: int) -> float:
    rounded = nearest_even(abs(units), unit, precision=precision, lowest=lowest)
    return -rounded if units < 0 else rounded


def multiply(left: float, right: float) -> float:
    if left == 0 or right == 0 or not (math.isfinite(left) and math.isfinite(right)):
        return left * right
    result = signed(integer(left) * integer(right), -298, precision=24, lowest=-149)
    return math.copysign(result, left) * math.copysign(1.0, right) if result == 0 else result


def add(left: float, right: float) -> float:
    if not (math.isfinite(left) and math.isfinite(right)) or (left == 0 and right == 0):
        return left + right
    units = integer(left) + integer(right)
    return signed(units, -149, precision=24, lowest=-149) if units else 0.0


def fused(left: float, right: float, addend: float) -> float:
    if not (math.isfinite(left) and math.isfinite(right) and math.isfinite(addend)):
        return left * right + addend
    units = integer(left) * integer(right) + (integer(addend) << 149)
    if units == 0:
        zero = math.copysign(0.0, left) * math.copysign(1.0, right)
        return zero + addend if addend == 0 and 0 in (left, right) else 0.0
    result = signed(units, -298, precision=24, lowest=-149)
    return math.copysign(result, units)


def to_bf16(value: float) -> int:
    """The BF16 word of an FP32 value."""
    if math.isnan(value):
        return NAN_WORD
    if value != 0 and math.isfinite(value):
        value = math.copysign(nearest_even(abs(integer(value)), -149, precision=8, lowest=-133), value)
    return word_of(value) >> 16


def from_bf16(word: int) -> float:
    return value_of(word << 16)


def accumulate(rows: list[int], weights: list[int]) -> float:
    accum = 0.0
    for row, weight in zip(rows, weights, strict=True):
        accum = add(accum, multiply(from_bf16(row), value_of(weight)))
    return accum


def finalize_element(rows: list[int], weights: list[int], shared: int) -> tuple[int, int, int]:
    """Routed, scaled and final word of one element."""
    routed = to_bf16(accumulate(rows, weights))
    scaled = to_bf16(multiply(from_bf16(routed), SCALE))
    return routed, scaled, to_bf16(add(from_bf16(shared), from_bf16(scaled)))


# --- the machine's own float32 ----------------------------------------------------------------------------------------

_MAGNITUDES = np.arange(0x7F80, dtype=np.uint32)
_VALUES = np.append((_MAGNITUDES << np.uint32(16)).view(np.float32).astype(np.float64), 2.0**128)
_MIDPOINTS = (_VALUES[:-1] + _VALUES[1:]) / 2  # exact: 9 bits


def machine_to_bf16(values: np.ndarray) -> np.ndarray:
    """BF16 words of float32 values, by search among all BF16 values; a midpoint goes to the even word."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        magnitude = np.abs(values).astype(np.float64)
    above = np.searchsorted(_MIDPOINTS, magnitude, side="left")
    tie = (above < len(_MIDPOINTS)) & (_MIDPOINTS[np.minimum(above, len(_MIDPOINTS) - 1)] == magnitude)
    word = above + (tie & (above % 2 == 1))
    word = np.where(np.signbit(values), word | 0x8000, word)
    return np.where(np.isnan(values), NAN_WORD, word).astype(np.uint16)


def machine_from_bf16(words: np.ndarray) -> np.ndarray:
    return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)


def machine_finalize(rows: np.ndarray, weights: np.ndarray, shared: np.ndarray) -> tuple[np.ndarray, ...]:
    """Routed, scaled and final words of a fixture."""
    with np.errstate(all="ignore"):
        accum = np.zeros(shared.shape, dtype=np.float32)
        for slot in range(10):
            product = machine_from_bf16(rows[slot::10]) * weights.view(np.float32)[:, slot : slot + 1]
            accum = accum + product
        routed = machine_to_bf16(accum)
        scaled = machine_to_bf16(machine_from_bf16(routed) * np.float32(2.5))
        return routed, scaled, machine_to_bf16(machine_from_bf16(shared) + machine_from_bf16(scaled))
