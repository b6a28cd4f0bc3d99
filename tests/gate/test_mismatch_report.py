"""What a mismatch of words tells: class, counts by class, first index, both words; and which words nobody wrote."""

from __future__ import annotations

import numpy as np
import pytest

from moegauge.errors import MisuseError
from moegauge.gate.words import CLASSES, first_mismatch, unwritten_words

POISONS = (0x7FA5, 0xFFA5)


def words(*values: int, dtype: str = "u2") -> np.ndarray:
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("left", "right", "before", "kind"),
    [
        (0x7FC0, 0x7FFF, None, "NaN payload"),
        (0x7FC0, 0xFFC0, None, "NaN payload"),
        (0x0000, 0x8000, None, "signed zero"),
        (0x0001, 0x0000, None, "subnormal"),
        (0x807F, 0x8080, None, "subnormal"),
        (0x0001, 0x0002, 0x00018000, "subnormal"),  # a tie, of subnormals
        (0x3F80, 0x3F81, 0x3F808000, "tie"),
        (0x3F82, 0x3F81, 0x3F818000, "tie"),
        (0xBF80, 0xBF81, 0xBF808000, "tie"),
        (0x7F80, 0x7F7F, 0x7F7F8000, "tie"),
        (0x3F80, 0x3F81, 0x3F808001, "other"),  # next to a tie
        (0x3F80, 0x3F82, 0x3F808000, "other"),  # a tie, but not of these two
        (0x3F80, 0x3F81, None, "other"),  # nothing says what was rounded
        (0x7F80, 0x7F7F, None, "infinity"),
        (0x7F80, 0x7FC0, None, "NaN"),
        (0x0000, 0x3F80, None, "other"),
        (0x0000, 0x7FC0, None, "NaN"),
    ],
)
def test_a_difference_has_the_first_class_that_fits(left: int, right: int, before: int | None, kind: str) -> None:
    rounded = None if before is None else words(before, dtype="u4")
    found = first_mismatch("bfloat16", words(left), words(right), before=rounded)
    assert found is not None
    assert (found.word_class, found.num_by_class) == (kind, {kind: 1})
    assert kind in CLASSES


@pytest.mark.parametrize(
    ("dtype", "left", "right", "kind"),
    [
        ("float16", 0x03FF, 0x0400, "subnormal"),
        ("float16", 0x7C00, 0x7BFF, "infinity"),
        ("float32", 0x7F800001, 0xFFC00000, "NaN payload"),
        ("float64", 0x0000000000000000, 0x8000000000000000, "signed zero"),
        ("float8_e5m2", 0x7C, 0x7B, "infinity"),
        ("float8_e4m3fn", 0x7E, 0x7D, "other"),  # its largest numbers; it has no infinity
        ("float8_e4m3fn", 0x7F, 0xFF, "NaN payload"),
        ("int32", 0x7FC00000, 0x7FC00001, "integer"),
        ("uint8", 0x00, 0x80, "integer"),
    ],
)
def test_every_number_format_has_its_own_classes(dtype: str, left: int, right: int, kind: str) -> None:
    size = {"float16": 2, "float32": 4, "float64": 8, "int32": 4}.get(dtype, 1)
    found = first_mismatch(dtype, words(left, dtype=f"u{size}"), words(right, dtype=f"u{size}"))
    assert found is not None
    assert (found.word_class, found.incumbent_word) == (kind, f"0x{left:0{2 * size}X}")


def test_a_mismatch_tells_count_first_index_both_words_and_classes() -> None:
    left, right = np.zeros((3, 4), dtype=np.uint16), np.zeros((3, 4), dtype=np.uint16)
    right[1, 2], right[2, 0], left[2, 3] = 0x8000, 0x3F80, 0xABCD
    found = first_mismatch("bfloat16", left, right)
    assert found is not None
    assert (found.num_words, found.first_index) == (3, (1, 2))
    assert (found.incumbent_word, found.candidate_word) == ("0x0000", "0x8000")
    assert found.num_by_class == {"signed zero": 1, "other": 2}


def test_equal_words_are_no_mismatch_whatever_they_are() -> None:
    assert first_mismatch("bfloat16", words(0x7FC0, 0x8000), words(0x7FC0, 0x8000)) is None


@pytest.mark.parametrize("before", [words(1, 2, dtype="u4"), words(1, dtype="u8"), np.zeros((1, 1), dtype="u4")])
def test_what_a_lane_says_it_rounded_has_to_be_fp32_words_of_the_boundary(before: np.ndarray) -> None:
    with pytest.raises(MisuseError, match="before_rounding of the lane"):
        first_mismatch("bfloat16", words(1), words(2), before=before)


def test_words_that_hold_both_poisons_were_never_written() -> None:
    first, second = words(1, POISONS[0], 2, POISONS[0]), words(1, POISONS[1], 2, POISONS[1])
    found = unwritten_words(first.reshape(2, 2), second.reshape(2, 2), POISONS)
    assert found is not None
    assert (found.num_words, found.first_index) == (2, (0, 1))


def test_a_kernel_that_writes_the_poison_word_has_written_it() -> None:
    both = words(*POISONS)
    assert unwritten_words(both, both, POISONS) is None


def test_poisons_are_cut_to_the_width_of_the_output_and_one_that_is_the_same_shows_nothing() -> None:
    found = unwritten_words(words(0xA5, dtype="u1"), words(0x5A, dtype="u1"), (0x7FA5, 0x7F5A))
    assert found is not None
    assert found.first_index == (0,)
    assert unwritten_words(words(0xA5, dtype="u1"), words(0xA5, dtype="u1"), POISONS) is None
