"""Two arrays of BF16 words, one against the other: what differs, and which class of difference it is.

Comparisons are of uint16 words, so -0 is not +0 and a NaN is equal to itself alone. What ``torch.equal`` says is kept
beside them: it may add a failure and never takes one away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.digest import arrays_digest
from moegauge.numerics import bf16
from moegauge.numerics.words import BoolArray, UInt8Array, UInt16Array, UInt32Array, WordClass, word_class
from moegauge.records.exactness import (
    Mismatch,
    MismatchClass,
    Run,
    TorchEqual,
    WordComparison,
    WordCounts,
    WrittenCheck,
)

POISONS = (0x7FA5, 0xFFA5)
"""Words that outputs are filled with before a first and a second run: signalling NaNs, which no rounding gives."""

_CLASSES = tuple(MismatchClass)


@dataclass(frozen=True)
class Pair:
    """Two runs that are compared at one boundary."""

    boundary: str
    left: Run
    right: Run


def compare_words(
    left: UInt16Array,
    right: UInt16Array,
    *,
    fixture: str,
    pair: Pair,
    before: UInt32Array | None = None,
    torch_equal: bool | None = None,
) -> WordComparison:
    """Compare two runs at one boundary.

    Args:
        left, right: uint16 BF16 words of one shape.
        fixture: its name.
        pair: which runs, at which boundary.
        before: uint32 FP32 words that the oracle rounded at this boundary, of the same shape; tells ties.
        torch_equal: what ``torch.equal`` said on the device; None where it was not asked.

    Raises:
        MisuseError: other types, or shapes that differ.
    """
    mismatch = first_mismatch(left, right, before=before)
    counts = word_counts(left), word_counts(right)
    return WordComparison(
        fixture=fixture,
        boundary=pair.boundary,
        left=pair.left,
        right=pair.right,
        left_digest=arrays_digest({"words": left}),
        right_digest=arrays_digest({"words": right}),
        left_counts=counts[0],
        right_counts=counts[1],
        torch_equal=_torch_equal(torch_equal, nan=any(side.num_nan for side in counts)),
        mismatch=mismatch,
    )


def first_mismatch(left: UInt16Array, right: UInt16Array, *, before: UInt32Array | None = None) -> Mismatch | None:
    """What differs between two arrays of BF16 words; None where nothing does.

    Raises:
        MisuseError: other types, or shapes that differ.
    """
    _check_words(left, right, before)
    where = np.argwhere(left != right)
    if not len(where):
        return None
    at = tuple(where.T)
    kinds = _mismatch_class(left[at], right[at], None if before is None else before[at])
    num = np.bincount(kinds, minlength=len(_CLASSES))
    first = tuple(int(index) for index in where[0])
    return Mismatch(
        num_words=len(where),
        first_index=first,
        left_word=word_text(left[first]),
        right_word=word_text(right[first]),
        kind=_CLASSES[kinds[0]],
        num_by_class={kind: int(count) for kind, count in zip(_CLASSES, num, strict=True) if count},
    )


def check_written(first: UInt16Array, second: UInt16Array, *, fixture: str, run: Run, boundary: str) -> WrittenCheck:
    """Find words that still hold the poison in both of two runs over different poisons.

    Args:
        first, second: uint16 outputs of a run over ``POISONS[0]`` and of one over ``POISONS[1]``. A kernel that
            writes a word writes the same one both times; two poisons can only be left over.

    Raises:
        MisuseError: other types, or shapes that differ.
    """
    _check_words(first, second, None)
    where = np.argwhere((first == POISONS[0]) & (second == POISONS[1]))
    index = tuple(int(one) for one in where[0]) if len(where) else None
    return WrittenCheck(fixture=fixture, run=run, boundary=boundary, num_unwritten=len(where), first_index=index)


def word_counts(words: UInt16Array) -> WordCounts:
    """How many BF16 words of each class."""
    num = np.bincount(word_class(words).ravel(), minlength=len(WordClass))
    num_negative_zero = int(np.count_nonzero(words == 0x8000))
    return WordCounts(
        num_positive_zero=int(num[WordClass.ZERO]) - num_negative_zero,
        num_negative_zero=num_negative_zero,
        num_subnormal=int(num[WordClass.SUBNORMAL]),
        num_normal=int(num[WordClass.NORMAL]),
        num_infinity=int(num[WordClass.INFINITY]),
        num_nan=int(num[WordClass.NAN]),
    )


def word_text(word: np.uint16) -> str:
    """A BF16 word as text: ``0x`` and four upper-case digits."""
    return f"0x{int(word):04X}"


def _mismatch_class(left: UInt16Array, right: UInt16Array, before: UInt32Array | None) -> NDArray[np.intp]:
    """Place of each pair of unequal words in :class:`MismatchClass`."""
    classes: tuple[UInt8Array, UInt8Array] = (word_class(left), word_class(right))
    none = np.zeros(left.shape, dtype=bool)
    conditions = {
        MismatchClass.NAN_PAYLOAD: _both(classes, WordClass.NAN),
        MismatchClass.SIGNED_ZERO: _both(classes, WordClass.ZERO),
        MismatchClass.SUBNORMAL: (classes[0] == WordClass.SUBNORMAL) | (classes[1] == WordClass.SUBNORMAL),
        MismatchClass.TIE: none if before is None else _lies_between(before, left, right),
        MismatchClass.OTHER: ~none,
    }
    return np.asarray(np.argmax(np.stack([conditions[kind] for kind in _CLASSES]), axis=0))


def _both(classes: tuple[UInt8Array, UInt8Array], kind: WordClass) -> BoolArray:
    return np.asarray((classes[0] == kind) & (classes[1] == kind))


def _lies_between(before: UInt32Array, left: UInt16Array, right: UInt16Array) -> BoolArray:
    """Whether the FP32 word is the exact middle of two neighbouring BF16 words."""
    low = (before >> np.uint32(16)).astype(np.uint16)
    high = low + np.uint16(1)
    return np.asarray(bf16.is_tie(before) & (np.minimum(left, right) == low) & (np.maximum(left, right) == high))


def _torch_equal(said: bool | None, *, nan: bool) -> TorchEqual:
    if nan:
        return TorchEqual.INAPPLICABLE
    if said is None:
        return TorchEqual.NOT_ASKED
    return TorchEqual.EQUAL if said else TorchEqual.UNEQUAL


def _check_words(left: UInt16Array, right: UInt16Array, before: UInt32Array | None) -> None:
    wanted = f"uint16 words {list(left.shape)} on both sides, one at least"
    found = f"{left.dtype.name} {list(left.shape)} and {right.dtype.name} {list(right.shape)}"
    sound = left.dtype == right.dtype == np.uint16 and left.shape == right.shape and left.size > 0
    if before is not None:
        wanted, found = f"{wanted}, uint32 before", f"{found}, {before.dtype.name} {list(before.shape)} before"
        sound = sound and before.dtype == np.uint32 and before.shape == left.shape
    if not sound:
        raise errors.MisuseError(
            where="comparison of words", expected=wanted, found=found, remedy="Give the raw words of both tensors."
        )
