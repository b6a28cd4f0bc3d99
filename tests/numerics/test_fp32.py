"""FP32 in integers, against literal words, against exact integers of Python, and against this machine's float32."""

from __future__ import annotations

from itertools import product as pairs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import second_opinion
from moegauge.numerics import fp32

ONE, TWO, MINUS_ONE = 0x3F800000, 0x40000000, 0xBF800000
INFINITY, MINUS_INFINITY, NAN = 0x7F800000, 0xFF800000, 0x7FC00000
SMALLEST, LARGEST_SUBNORMAL, SMALLEST_NORMAL, LARGEST = 0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF

MAGNITUDES = (
    *(0x00000000, SMALLEST, 0x00000002, 0x00000003, 0x00400000, LARGEST_SUBNORMAL, SMALLEST_NORMAL, 0x00800001),
    *(0x1A000000, 0x1A000001, 0x20000000, 0x33000000, 0x33800000, 0x33800001, 0x34000000, 0x3EFFFFFF),
    *(0x3F000000, 0x3F7FFFFF, ONE, 0x3F800001, 0x3FC00000, TWO, 0x40490FDB, 0x4B7FFFFF),
    *(0x4B800000, 0x4B800001, 0x7EFFFFFF, 0x7F000000, 0x7F7FFFFE, LARGEST, INFINITY, 0x7F800001, 0x7FFFFFFF),
)
EDGES = [magnitude | sign for magnitude in MAGNITUDES for sign in (0, 0x80000000)]

words = st.one_of(st.integers(0, 0xFFFFFFFF), st.sampled_from(EDGES))


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def exact(operation: str, *operands: int) -> int:
    return second_opinion.word_of(getattr(second_opinion, operation)(*map(second_opinion.value_of, operands)))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (ONE, 0x33800000, ONE),  # 1 + 2**-24 is a tie: to even
        (ONE, 0x33800001, 0x3F800001),  # just above the tie
        (0x3F800001, 0x33800000, 0x3F800002),  # the other tie, to even, up
        (ONE, MINUS_ONE, 0x00000000),  # opposite numbers give +0
        (0x80000000, 0x80000000, 0x80000000),  # -0 + -0 alone is -0
        (0x00000000, 0x80000000, 0x00000000),
        (SMALLEST, SMALLEST, 0x00000002),
        (LARGEST_SUBNORMAL, SMALLEST, SMALLEST_NORMAL),
        (SMALLEST_NORMAL, 0x80000001, LARGEST_SUBNORMAL),
        (LARGEST, LARGEST, INFINITY),
        (LARGEST, 0x73000000, INFINITY),  # half of the last bit: a tie to infinity
        (LARGEST, 0x72FFFFFF, LARGEST),
        (INFINITY, MINUS_INFINITY, NAN),
        (INFINITY, LARGEST, INFINITY),
        (MINUS_INFINITY, MINUS_INFINITY, MINUS_INFINITY),
        (0xFF800001, ONE, NAN),
    ],
)
def test_a_sum_is_rounded_once_to_nearest_even(left: int, right: int, expected: int) -> None:
    assert fp32.total(array(left), array(right)).tolist() == [expected]
    assert fp32.total(array(right), array(left)).tolist() == [expected]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (0x3F800001, 0x3F800001, 0x3F800002),  # (1 + 2**-23)**2: the last term 2**-46 is below half a bit
        (0x3FC00000, 0x3F800001, 0x3FC00002),  # 1.5 x (1 + 2**-23) is a tie: to even
        (SMALLEST, 0x3F000000, 0x00000000),  # half of the smallest: a tie to 0
        (SMALLEST, 0x3F000001, SMALLEST),
        (0x00000003, 0x3F000000, 0x00000002),  # 1.5 of the smallest: a tie to even
        (0x1A000000, 0x1A000000, 0x00000000),  # 2**-75 x 2**-75 = 2**-150
        (0x9A000001, 0x1A000000, 0x80000001),
        (SMALLEST_NORMAL, 0x3F000000, 0x00400000),  # normal operands, a subnormal result
        (0x80000000, ONE, 0x80000000),
        (LARGEST, TWO, INFINITY),
        (INFINITY, 0x80000000, NAN),
        (INFINITY, MINUS_ONE, MINUS_INFINITY),
        (INFINITY, SMALLEST, INFINITY),
        (0x7F800001, 0x00000000, NAN),
    ],
)
def test_a_product_is_rounded_once_to_nearest_even(left: int, right: int, expected: int) -> None:
    assert fp32.product(array(left), array(right)).tolist() == [expected]
    assert fp32.product(array(right), array(left)).tolist() == [expected]


def test_a_fused_sum_keeps_what_the_product_would_have_lost() -> None:
    # (1 + 2**-23)**2 - (1 + 2**-22) is 2**-46; with the product rounded first it is 0.
    square, minus = 0x3F800001, 0xBF800002
    assert fp32.fused(array(square), array(square), array(minus)).tolist() == [0x28800000]
    assert fp32.total(fp32.product(array(square), array(square)), array(minus)).tolist() == [0x00000000]


def test_a_fused_sum_does_not_overflow_before_the_addend_comes_in() -> None:
    assert fp32.fused(array(LARGEST), array(TWO), array(0xFF7FFFFF)).tolist() == [LARGEST]
    assert fp32.fused(array(LARGEST), array(TWO), array(MINUS_INFINITY)).tolist() == [MINUS_INFINITY]


def test_every_pair_of_edge_words_adds_and_multiplies_as_exact_integers_do() -> None:
    left, right = np.array(list(pairs(EDGES, EDGES)), dtype=np.uint32).T
    assert fp32.total(left, right).tolist() == [exact("add", *pair) for pair in pairs(EDGES, EDGES)]
    assert fp32.product(left, right).tolist() == [exact("multiply", *pair) for pair in pairs(EDGES, EDGES)]


@given(words, words)
def test_any_pair_of_words_adds_and_multiplies_as_exact_integers_do(left: int, right: int) -> None:
    assert fp32.total(array(left), array(right)).tolist() == [exact("add", left, right)]
    assert fp32.product(array(left), array(right)).tolist() == [exact("multiply", left, right)]


@given(words, words, words, st.integers(-2, 2))
def test_any_fused_sum_is_that_of_exact_integers_also_where_it_nearly_cancels(
    left: int, right: int, addend: int, off: int
) -> None:
    negated = (exact("multiply", left, right) ^ 0x80000000) + off & 0xFFFFFFFF
    for third in (addend, negated):
        found = fp32.fused(array(left), array(right), array(third))
        assert found.tolist() == [exact("fused", left, right, third)]


def test_a_million_random_sums_and_products_are_those_of_this_machine() -> None:
    bits = np.random.Philox(key=np.array([7, 7], dtype=np.uint64)).random_raw(1 << 20)
    left, right = bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    near = (left ^ np.uint32(0x80000000)) + (right & np.uint32(0x01FFFFFF))  # the same binade or a near one
    for other in (right, near):
        with np.errstate(all="ignore"):
            sums, products = (
                left.view(np.float32) + other.view(np.float32),
                left.view(np.float32) * other.view(np.float32),
            )
        for found, machine in ((fp32.total(left, other), sums), (fp32.product(left, other), products)):
            expected = np.where(np.isnan(machine), np.uint32(NAN), machine.view(np.uint32))
            assert np.array_equal(found, expected)


def test_operands_broadcast() -> None:
    left, right = array(ONE, TWO)[:, None], array(ONE, TWO)
    assert fp32.product(left, right).tolist() == [[ONE, TWO], [TWO, 0x40800000]]
    assert fp32.total(left, right).tolist() == [[TWO, 0x40400000], [0x40400000, 0x40800000]]
