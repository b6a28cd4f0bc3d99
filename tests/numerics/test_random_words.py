"""Random words: in the stated ranges, from the counter alone, and the same whatever NumPy's distributions do."""

from __future__ import annotations

import math

import numpy as np

import second_opinion
from moegauge.numerics.random_words import RandomWords


def shorts(seed: int, stream: int, num: int) -> list[int]:
    """16-bit numbers from raw Philox words, the low ones first."""
    raw = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)).random_raw(-(-num // 4)).tolist()
    return [(word >> shift) & 0xFFFF for word in raw for shift in (0, 16, 32, 48)][:num]


def test_a_bell_word_is_the_rounded_sum_of_eight_uniform_numbers_about_its_mean() -> None:
    found = RandomWords(5, 9).bell((20, 10), exponent=3)
    uniform = shorts(5, 9, 1600)
    for place, word in enumerate(found.ravel().tolist()):
        centred = 2 * sum(uniform[place::200]) - 8 * 0xFFFF
        assert word == second_opinion.to_bf16(centred / 2**14)  # 3 - 17


def test_bell_words_have_the_stated_standard_deviation() -> None:
    words = RandomWords(1, 2).bell((1 << 16,), exponent=2)
    deviation = math.sqrt(np.mean(np.square(second_opinion.machine_from_bf16(words).astype(np.float64))))
    assert abs(deviation / (0.8165 * 4) - 1) < 0.02


def test_words_stay_in_the_range_asked_for_and_reach_both_of_its_ends() -> None:
    words = RandomWords(3, 4)
    bf16_exponents = (words.bf16((4096,), exponents=(-2, 3)) >> 7) & 0xFF
    fp32_words = words.fp32((4096,), exponents=(-2, 3), signed=False)
    assert (bf16_exponents.min(), bf16_exponents.max()) == (125, 130)
    assert (fp32_words.min() >> 23, fp32_words.max() >> 23) == (125, 130)


def test_signed_words_take_both_signs_and_subnormals_are_never_zero() -> None:
    words = RandomWords(3, 5)
    assert set((words.fp32((64,), exponents=(0, 0), signed=True) >> 31).tolist()) == {0, 1}
    subnormals = words.subnormal_fp32((1 << 16,)) & np.uint32(0x7FFFFFFF)
    assert subnormals.min() > 0
    assert subnormals.max() < 0x00800000


def test_a_share_of_true_is_the_one_asked_for() -> None:
    assert abs(np.mean(RandomWords(6, 6).below((1 << 16,), 3 << 14)) - 0.75) < 0.01


def test_seeds_and_streams_give_other_words() -> None:
    drawn = {tuple(RandomWords(*key).bell((4,), exponent=0).tolist()) for key in ((1, 1), (1, 2), (2, 1))}
    assert len(drawn) == 3
