"""BF16 rounding, against literal words and against two other ways of rounding."""

from __future__ import annotations

import numpy as np
import pytest

import second_opinion
from moegauge.numerics import bf16

EVERY_WORD = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0x3F800000, 0x3F80),
        (0x3F808000, 0x3F80),  # a tie, to even: down
        (0x3F818000, 0x3F82),  # a tie, to even: up
        (0x3F808001, 0x3F81),
        (0x3F807FFF, 0x3F80),
        (0x00008000, 0x0000),  # half of the smallest subnormal
        (0x80008000, 0x8000),  # its negative keeps its sign
        (0x00008001, 0x0001),
        (0x007F8000, 0x0080),  # the largest subnormal and a half: the smallest normal
        (0x7F7F7FFF, 0x7F7F),
        (0x7F7F8000, 0x7F80),  # a tie between the largest word and infinity
        (0xFF7FFFFF, 0xFF80),
        (0x7F800000, 0x7F80),
        (0x7F800001, 0x7FC0),  # a payload that lies in the lower half alone is a NaN still
        (0x7FFFFFFF, 0x7FC0),
        (0xFFC12345, 0x7FC0),
    ],
)
def test_rounding_goes_to_nearest_even_and_every_nan_to_one_word(word: int, expected: int) -> None:
    assert bf16.rounded(np.array([word], dtype=np.uint32)).tolist() == [expected]


@pytest.mark.parametrize("lower", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_every_upper_half_is_rounded_as_a_search_for_the_nearest_word_rounds_it(lower: int) -> None:
    words = (EVERY_WORD.astype(np.uint32) << np.uint32(16)) | np.uint32(lower)
    assert np.array_equal(bf16.rounded(words), second_opinion.machine_to_bf16(words.view(np.float32)))


def test_every_tie_is_rounded_as_exact_integers_round_it() -> None:
    words = (EVERY_WORD.astype(np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    expected = [second_opinion.to_bf16(second_opinion.value_of(word)) for word in words.tolist()]
    assert bf16.rounded(words).tolist() == expected


def test_a_word_that_is_widened_and_rounded_is_the_word_again() -> None:
    number = EVERY_WORD[(EVERY_WORD & 0x7FFF) <= 0x7F80]
    assert np.array_equal(bf16.rounded(bf16.widened(number)), number)


def test_a_tie_is_a_finite_word_whose_lower_half_is_8000() -> None:
    words = np.array([0x3F808000, 0x3F808001, 0x3F800000, 0x7F7F8000, 0x7F808000, 0x80008000], dtype=np.uint32)
    assert bf16.is_tie(words).tolist() == [True, False, False, True, False, True]
