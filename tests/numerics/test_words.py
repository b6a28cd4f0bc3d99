"""Words and their classes."""

from __future__ import annotations

import numpy as np
import pytest

from moegauge.numerics.words import FINITE_WORDS, NAN_WORDS, WordClass, is_nan, word_class

EVERY_WORD = np.arange(1 << 16, dtype=np.uint16)


def test_the_65536_words_are_two_zeros_254_subnormals_65024_normals_two_infinities_and_254_nans() -> None:
    # 7 fraction bits: 127 subnormals and 127 NaNs of each sign; 254 exponents of normals with 128 fractions.
    num = np.bincount(word_class(EVERY_WORD)).tolist()
    assert num == [2, 2 * 127, 2 * 254 * 128, 2, 2 * 127]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        (0x0000, WordClass.ZERO),
        (0x8000, WordClass.ZERO),
        (0x0001, WordClass.SUBNORMAL),
        (0x807F, WordClass.SUBNORMAL),
        (0x0080, WordClass.NORMAL),
        (0xFF7F, WordClass.NORMAL),
        (0x7F80, WordClass.INFINITY),
        (0xFF80, WordClass.INFINITY),
        (0x7F81, WordClass.NAN),
        (0xFFFF, WordClass.NAN),
    ],
)
def test_a_word_has_the_class_of_its_exponent_and_fraction(word: int, kind: WordClass) -> None:
    assert word_class(np.array([word], dtype=np.uint16))[0] == kind


def test_finite_words_are_65280_and_nan_words_are_those_that_is_nan_names() -> None:
    assert len(FINITE_WORDS) == 65_280
    assert set(NAN_WORDS.tolist()) == set(EVERY_WORD[is_nan(EVERY_WORD)].tolist())
    assert not set(FINITE_WORDS.tolist()) & {0x7F80, 0xFF80, *NAN_WORDS.tolist()}
