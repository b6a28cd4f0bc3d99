"""Comparing words: where they differ first, and what kind of word stands there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge.records.observation import Mismatch

Words = NDArray[np.unsignedinteger[Any]]
"""Raw bits in the shape of the boundary: unsigned integers as wide as the number format."""

MANTISSA_BITS = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52, "float8_e5m2": 2, "float8_e4m3fn": 3}
"""Bits behind the exponent; a word is a sign, an exponent and these. Integers are not here: they have neither."""

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "float8_e5m2": 1, "float8_e4m3fn": 1}

WORD_DTYPES: dict[str, np.dtype[np.unsignedinteger[Any]]] = {
    **{name: np.dtype(f"u{size}") for name, size in _BYTES.items()},
    **{f"{sign}{8 * size}": np.dtype(f"u{size}") for sign in ("int", "uint") for size in (1, 2, 4, 8)},
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
    if dtype not in MANTISSA_BITS:
        return "integer"
    kinds = {_kind(dtype, left), _kind(dtype, right)}
    if kinds == {"NaN"}:
        return "NaN payload"
    if kinds == {"zero"}:
        return "signed zero"
    return next((kind for kind in ("NaN", "infinity", "subnormal") if kind in kinds), "other")


def contains_nan(dtype: str, words: Words) -> bool:
    """Whether any word is a NaN."""
    if dtype not in MANTISSA_BITS:
        return False
    return bool(((words & _magnitude(dtype)) >= _first_nan(dtype)).any())


def values_equal(dtype: str, left: Words, right: Words) -> bool:
    """Whether two arrays hold the same numbers: both zeros are one number, and a NaN equals nothing."""
    if dtype not in MANTISSA_BITS:
        return bool((left == right).all())
    both_zero = ((left | right) & _magnitude(dtype)) == 0
    same = ((left == right) | both_zero).all()
    return bool(same) and not contains_nan(dtype, left)


def _magnitude(dtype: str) -> Any:
    """Mask of everything but the sign."""
    kind = WORD_DTYPES[dtype]
    return kind.type((1 << (kind.itemsize * 8 - 1)) - 1)


def _first_nan(dtype: str) -> Any:
    """The smallest magnitude that is a NaN; ``float8_e4m3fn`` has one NaN and no infinity."""
    if dtype == "float8_e4m3fn":
        return WORD_DTYPES[dtype].type(0x7F)
    mantissa = (1 << MANTISSA_BITS[dtype]) - 1
    return WORD_DTYPES[dtype].type(int(_magnitude(dtype)) - mantissa + 1)


def _kind(dtype: str, word: int) -> str:
    magnitude, mantissa = word & int(_magnitude(dtype)), (1 << MANTISSA_BITS[dtype]) - 1
    if magnitude >= int(_first_nan(dtype)):
        return "NaN"
    if magnitude == int(_first_nan(dtype)) - 1 and dtype != "float8_e4m3fn":
        return "infinity"
    if magnitude > mantissa:
        return "normal"
    return "subnormal" if magnitude else "zero"
