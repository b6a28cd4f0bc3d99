"""Comparing words: where they differ first, and what kind of word stands there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge.records.observation import Mismatch

Words = NDArray[np.unsignedinteger[Any]]
"""Raw bits in the shape of the boundary: unsigned integers as wide as the number format."""

MANTISSA_BITS = {"bfloat16": 7, "float16": 10, "float32": 23}
"""Bits behind the exponent; a word is a sign, an exponent and these."""

WORD_DTYPES: dict[str, np.dtype[np.unsignedinteger[Any]]] = {
    "bfloat16": np.dtype(np.uint16),
    "float16": np.dtype(np.uint16),
    "float32": np.dtype(np.uint32),
}
"""Unsigned integers that hold the words of each number format."""


def first_mismatch(dtype: str, incumbent: Words, candidate: Words) -> Mismatch | None:
    """Where two arrays of words differ; None where they do not.

    Args:
        dtype: number format of the words. incumbent, candidate: words of one shape.
    """
    differing = np.argwhere(incumbent != candidate)
    if not len(differing):
        return None
    first = tuple(int(i) for i in differing[0])
    left, right = int(incumbent[first]), int(candidate[first])
    digits = incumbent.dtype.itemsize * 2
    return Mismatch(
        num_words=len(differing),
        first_index=first,
        incumbent_word=f"0x{left:0{digits}X}",
        candidate_word=f"0x{right:0{digits}X}",
        word_class=mismatch_class(dtype, left, right),
    )


def mismatch_class(dtype: str, left: int, right: int) -> str:
    """What kind of difference two unequal words are, the rarest kind that either shows."""
    kinds = {_kind(dtype, left), _kind(dtype, right)}
    if kinds == {"NaN"}:
        return "NaN payload"
    if kinds == {"zero"}:
        return "signed zero"
    return next((kind for kind in ("NaN", "infinity", "subnormal") if kind in kinds), "other")


def contains_nan(dtype: str, words: Words) -> bool:
    """Whether any word is a NaN."""
    mantissa, exponent = _fields(dtype)
    magnitude = words & words.dtype.type(mantissa | exponent)
    return bool((magnitude > exponent).any())


def values_equal(dtype: str, left: Words, right: Words) -> bool:
    """Whether two arrays hold the same numbers: both zeros are one number, and a NaN equals nothing."""
    mantissa, exponent = _fields(dtype)
    both_zero = ((left | right) & left.dtype.type(mantissa | exponent)) == 0
    same = ((left == right) | both_zero).all()
    return bool(same) and not contains_nan(dtype, left)


def _fields(dtype: str) -> tuple[int, int]:
    """Masks of mantissa and exponent."""
    mantissa = (1 << MANTISSA_BITS[dtype]) - 1
    magnitude = (1 << (WORD_DTYPES[dtype].itemsize * 8 - 1)) - 1
    return mantissa, magnitude - mantissa


def _kind(dtype: str, word: int) -> str:
    mantissa, exponent = _fields(dtype)
    if word & exponent == exponent:
        return "NaN" if word & mantissa else "infinity"
    if word & exponent:
        return "normal"
    return "subnormal" if word & mantissa else "zero"
