"""Comparing words: where they differ, which classes of difference they show, and which words nobody wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.numerics import bf16
from moegauge.numerics.words import BoolArray, UInt32Array, WordClass
from moegauge.records.observation import Mismatch, Unwritten

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


CLASSES = ("NaN payload", "signed zero", "NaN", "subnormal", "tie", "infinity", "integer", "other")
"""What kind of difference two unequal words are; the first that fits.

NaN payload: both are NaN. signed zero: both are zero. NaN: one is. subnormal: one at least is. tie: neighbours, and the
FP32 word that the oracle rounded lies exactly between them. infinity: one at least is. integer: the words are no
floating-point numbers. other: none of these.
"""


def first_mismatch(
    dtype: str, incumbent: Words, candidate: Words, *, before: UInt32Array | None = None
) -> Mismatch | None:
    """Where two arrays of words differ; None where they do not.

    Args:
        dtype: number format of the words. incumbent, candidate: words of one shape.
        before: FP32 words of the same shape that the oracle rounded to bfloat16 here. They tell ties; without them, and
            in any other format, no difference is called a tie.

    Raises:
        MisuseError: ``before`` is not what is said above.
    """
    differing = incumbent != candidate
    if not differing.any():
        return None
    if before is not None:
        _check_before(before, incumbent.shape)
        before = before[differing]
    classes = _classes(dtype, incumbent[differing], candidate[differing], before)
    first = tuple(int(i) for i in np.argwhere(differing)[0])
    num = np.bincount(classes, minlength=len(CLASSES))
    digits = incumbent.dtype.itemsize * 2
    return Mismatch(
        num_words=len(classes),
        first_index=first,
        incumbent_word=f"0x{int(incumbent[first]):0{digits}X}",
        candidate_word=f"0x{int(candidate[first]):0{digits}X}",
        word_class=CLASSES[classes[0]],
        num_by_class={name: int(count) for name, count in zip(CLASSES, num, strict=True) if count},
    )


def unwritten_words(first: Words, second: Words, poisons: tuple[int, int]) -> Unwritten | None:
    """Words that nobody wrote: they hold the poison of either call; None where there are none.

    Args:
        first, second: words of one shape from two calls of an arm. poisons: words that the output was filled with
            before each, cut to its width. A kernel that writes a word writes the same one both times.
    """
    width = int(np.iinfo(first.dtype).max)
    held = (first == (poisons[0] & width)) & (second == (poisons[1] & width)) & (first != second)
    if not held.any():
        return None
    index = tuple(int(i) for i in np.argwhere(held)[0])
    return Unwritten(num_words=int(np.count_nonzero(held)), first_index=index)


def _check_before(before: UInt32Array, shape: tuple[int, ...]) -> None:
    if before.dtype != np.uint32 or before.shape != shape:
        raise errors.MisuseError(
            where="before_rounding of the lane",
            expected=f"uint32 words {list(shape)}",
            found=f"{before.dtype.name} {list(before.shape)}",
            remedy="Give the FP32 words that the oracle rounded, in the shape of the boundary.",
        )


def _classes(dtype: str, left: Words, right: Words, before: UInt32Array | None) -> NDArray[np.intp]:
    """Place in :data:`CLASSES` of each pair of unequal words; arrays of one dimension."""
    if dtype not in MANTISSA_BITS:
        return np.full(left.shape, CLASSES.index("integer"))
    kinds = _kinds(dtype, left), _kinds(dtype, right)
    none = np.zeros(left.shape, dtype=bool)
    fits = {
        "NaN payload": _both(kinds, WordClass.NAN),
        "signed zero": _both(kinds, WordClass.ZERO),
        "NaN": _either(kinds, WordClass.NAN),
        "subnormal": _either(kinds, WordClass.SUBNORMAL),
        "tie": none if before is None or dtype != "bfloat16" else _lies_between(before, left, right),
        "infinity": _either(kinds, WordClass.INFINITY),
        "integer": none,
        "other": ~none,
    }
    return np.asarray(np.argmax(np.stack([fits[name] for name in CLASSES]), axis=0))


def _both(kinds: tuple[NDArray[np.intp], NDArray[np.intp]], kind: WordClass) -> BoolArray:
    return np.asarray((kinds[0] == kind) & (kinds[1] == kind))


def _either(kinds: tuple[NDArray[np.intp], NDArray[np.intp]], kind: WordClass) -> BoolArray:
    return np.asarray((kinds[0] == kind) | (kinds[1] == kind))


def _lies_between(before: UInt32Array, left: Words, right: Words) -> BoolArray:
    """Whether the FP32 word is the exact middle of two neighbouring BF16 words."""
    low = (before >> np.uint32(16)).astype(np.uint16)
    high = low + np.uint16(1)
    return np.asarray(bf16.is_tie(before) & (np.minimum(left, right) == low) & (np.maximum(left, right) == high))


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


def _kinds(dtype: str, words: Words) -> NDArray[np.intp]:
    """:class:`WordClass` of each word."""
    first_nan = int(_first_nan(dtype))
    infinity = first_nan if dtype == "float8_e4m3fn" else first_nan - 1
    bounds = np.array([1, 1 << MANTISSA_BITS[dtype], infinity, first_nan], dtype=words.dtype)
    return np.asarray(np.searchsorted(bounds, words & _magnitude(dtype), side="right"))
