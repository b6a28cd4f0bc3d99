"""The literal arithmetic of the lane, step by step: what both arms have to give, bit for bit.

    accum  = +0; for slot 0 to 9:  accum = FP32(accum + FP32(float(row) x weight))
    routed = BF16(accum)
    scaled = BF16(FP32(float(routed) x 2.5))
    final  = BF16(FP32(float(shared) + float(scaled)))

Every FP32(...) and BF16(...) is one rounding to nearest, ties to even; nothing is folded, reassociated or
contracted, and subnormals are kept. A NaN is 0x7FC0 after every BF16 rounding, whatever it was before. Behind the
lane the outputs of four ranks are added in the order of the ranks, each sum rounded to BF16.

Everything is computed in integers (:mod:`moegauge.numerics`); no tensor library takes part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.numerics import bf16, fp32
from moegauge.numerics.words import UInt16Array, UInt32Array

NUM_TOKENS = 8
HIDDEN_SIZE = 3072
TOP_K = 10
NUM_ROWS = NUM_TOKENS * TOP_K
NUM_RANKS = 4

SCALE: UInt32Array = np.array(0x4020_0000, dtype=np.uint32)
"""2.5 as an FP32 word."""

ROUTED = "routed"
SCALED = "scaled"
FINAL = "final"
RANK_SUM = "rank_sum"
BOUNDARIES = (ROUTED, SCALED, FINAL)
"""Where a BF16 rounding is protected, in order."""


@dataclass(frozen=True)
class Rounding:
    """One BF16 rounding of every element.

    Attributes:
        before: uint32 [8, 3072], the FP32 words that were rounded.
        words: uint16 [8, 3072], the BF16 words they gave.
    """

    before: UInt32Array
    words: UInt16Array


def rounding(before: UInt32Array) -> Rounding:
    """Round FP32 words to BF16 and keep both."""
    return Rounding(before, bf16.rounded(before))


def gather_finalize(rows: UInt16Array, weights: UInt32Array, shared: UInt16Array) -> dict[str, Rounding]:
    """The whole sequence.

    Args:
        rows: uint16 [80, 3072], BF16 words; row token x 10 + slot.
        weights: uint32 [8, 10], FP32 words.
        shared: uint16 [8, 3072], BF16 words.

    Returns:
        The rounding at each of :data:`BOUNDARIES`.

    Raises:
        MisuseError: another shape or type of word.
    """
    check_arrays(rows=rows, weights=weights, shared=shared)
    routed = rounding(accumulated(rows, weights))
    scaled = scaled_from(routed.words)
    return {
        ROUTED: routed,
        SCALED: scaled,
        FINAL: rounding(fp32.total(bf16.widened(shared), bf16.widened(scaled.words))),
    }


def accumulated(rows: UInt16Array, weights: UInt32Array) -> UInt32Array:
    """FP32 sum over the slots in order, uint32 [8, 3072]; every product and every sum rounded on its own."""
    by_slot = rows.reshape(NUM_TOKENS, TOP_K, HIDDEN_SIZE)
    accum = np.zeros((NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint32)
    for slot in range(TOP_K):
        accum = fp32.total(accum, fp32.product(bf16.widened(by_slot[:, slot]), weights[:, slot, None]))
    return accum


def scaled_from(routed: UInt16Array) -> Rounding:
    """2.5 times the routed words, rounded to BF16; also for the routed words of an arm that stores no scaled ones."""
    return rounding(fp32.product(bf16.widened(routed), SCALE))


def rank_sum(outputs: UInt16Array) -> Rounding:
    """Sum over ranks 0 to 3 in order, each partial sum rounded to BF16; ``before`` is that of the last one.

    Args:
        outputs: uint16 [4, 8, 3072], BF16 words of each rank.
    """
    _check("outputs", outputs, np.uint16, (NUM_RANKS, NUM_TOKENS, HIDDEN_SIZE))
    words = outputs[0]
    for output in outputs[1:]:
        sum_ = rounding(fp32.total(bf16.widened(words), bf16.widened(output)))
        words = sum_.words
    return sum_


def words_of(roundings: Mapping[str, Rounding]) -> dict[str, UInt16Array]:
    """The BF16 words alone, by boundary."""
    return {name: rounding.words for name, rounding in roundings.items()}


def check_arrays(*, rows: UInt16Array, weights: UInt32Array, shared: UInt16Array) -> None:
    """Refuse inputs of another shape or type of word.

    Raises:
        MisuseError
    """
    _check("rows", rows, np.uint16, (NUM_ROWS, HIDDEN_SIZE))
    _check("weights", weights, np.uint32, (NUM_TOKENS, TOP_K))
    _check("shared", shared, np.uint16, (NUM_TOKENS, HIDDEN_SIZE))


def _check(name: str, array: NDArray[np.generic], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise errors.MisuseError(
            where=f"{name} of laguna_m8",
            expected=f"{np.dtype(dtype).name} words {list(shape)}",
            found=f"{array.dtype.name} {list(array.shape)}",
            remedy="Give the raw words of the tensor, in the lane's shape.",
        )
