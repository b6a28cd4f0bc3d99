"""Fixtures at the edges of the formats: signed zeros, subnormals, infinities, NaNs and edge weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moegauge.lanes.laguna_m8.fixture import (
    BF16_ONE,
    ELEMENTS,
    SIGN,
    Fixture,
    FixtureSpec,
    by_slot,
    finite_chunk,
    no_rows,
    no_shared,
    tiled,
    unit_weights,
)
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_TOKENS, TOP_K
from moegauge.numerics.random_words import RandomWords
from moegauge.numerics.words import (
    BF16_INFINITY,
    FINITE_WORDS,
    FP32_NAN,
    FP32_SIGN,
    NAN_WORDS,
    UInt16Array,
    UInt32Array,
    WordClass,
    word_class,
)

EDGE_WEIGHTS = (
    0x0000_0000,  # 0
    0x0000_0001,  # 2**-149, the smallest subnormal
    0x0000_0002,
    0x0000_0003,
    0x0040_0000,  # 2**-127
    0x007F_FFFF,  # the largest subnormal
    0x0080_0000,  # 2**-126, the smallest normal
    0x0080_0001,
    0x3EFF_FFFF,
    0x3F00_0000,  # 0.5
    0x3F00_0001,
    0x3F7F_FFFE,
    0x3F7F_FFFF,  # the largest below 1
    0x3F80_0000,  # 1
    0x3F80_0001,  # the smallest above 1
    0x3F80_0002,
    0x4000_0000,  # 2
    0x4B80_0000,  # 2**24
    0x7F00_0000,  # 2**127
    0x7F7F_FFFF,  # the largest
)
"""FP32 words of weights whose products round, vanish or overflow in their own way; each is used with both signs."""

_SUBNORMALS = FINITE_WORDS[word_class(FINITE_WORDS) == WordClass.SUBNORMAL]
_INFINITY = np.uint16(BF16_INFINITY)
_LARGEST = np.uint16(BF16_INFINITY - 1)


def edge_specs(seed: int) -> Iterator[FixtureSpec]:
    """Families signed-zero, subnormal, infinity, nan and weight-edges."""
    yield FixtureSpec("all-negative-zero", "signed-zero", all_negative_zero)
    yield FixtureSpec("signed-zero-combinations", "signed-zero", signed_zero_combinations)
    yield FixtureSpec("subnormal-rows", "subnormal", lambda: subnormal_rows(RandomWords(seed, 1001)))
    yield FixtureSpec("subnormal-weights", "subnormal", lambda: subnormal_weights(RandomWords(seed, 1002)))
    yield FixtureSpec("subnormal-products", "subnormal", lambda: subnormal_products(RandomWords(seed, 1003)))
    yield FixtureSpec("subnormal-boundaries", "subnormal", subnormal_boundaries)
    yield FixtureSpec("infinity-inputs", "infinity", infinity_inputs)
    yield FixtureSpec("infinity-overflow", "infinity", infinity_overflow)
    yield FixtureSpec("nan-words", "nan", nan_words)
    yield FixtureSpec("nan-invalid", "nan", nan_invalid)
    yield FixtureSpec("weight-edges", "weight-edges", weight_edges)


def all_negative_zero() -> Fixture:
    """Rows and shared output of -0 with weights of 1: ten products of -0, yet +0 + -0 is +0."""
    return Fixture(no_rows() | SIGN, unit_weights(), no_shared() | SIGN)


def signed_zero_combinations() -> Fixture:
    """Every choice of sign for ten products and a shared word, all zero: 2,048. A zero is the row's or the weight's."""
    choice = tiled(np.arange(2048, dtype=np.uint16))
    rows, weights = no_rows(), unit_weights()
    weights[1::2] = 0  # products of a signed one and a zero weight in odd tokens, of a signed zero and 1 in even ones
    for slot in range(TOP_K):
        by_slot(rows)[:, slot] = ((choice >> slot) & 1) << 15
    by_slot(rows)[1::2] |= np.uint16(BF16_ONE)
    weights[3::4] ^= np.uint32(FP32_SIGN)
    return Fixture(rows, weights, ((choice >> TOP_K) << 15).astype(np.uint16))


def subnormal_rows(words: RandomWords) -> Fixture:
    """Subnormal rows in every slot; weights from tiny to large, so that sums stay subnormal or grow normal."""
    rows = no_rows()
    for slot in range(TOP_K):
        by_slot(rows)[:, slot] = tiled(_SUBNORMALS, offset=25 * slot)
    weights = words.fp32((NUM_TOKENS, TOP_K), exponents=(-6, 9), signed=True)
    return Fixture(rows, weights, tiled(_SUBNORMALS, offset=7))


def subnormal_weights(words: RandomWords) -> Fixture:
    """No weight but subnormals; products normal in the first half of the columns, subnormal in the second."""
    rows = no_rows()
    half = HIDDEN_SIZE // 2
    rows[:, :half] = words.bf16((len(rows), half), exponents=(110, 126))
    rows[:, half:] = words.bf16((len(rows), half), exponents=(-20, 4))
    return Fixture(rows, words.subnormal_fp32((NUM_TOKENS, TOP_K)), no_shared())


def subnormal_products(words: RandomWords) -> Fixture:
    """Normal rows and normal weights whose products lie from 2**-126 down to below half of 2**-149.

    One slot alone in each column, so that every product reaches the boundaries; the first columns hold the tie
    2**-75 x 2**-75 and its neighbours.
    """
    rows = no_rows()
    columns = np.arange(HIDDEN_SIZE)
    by_slot(rows)[:, columns % TOP_K, columns] = words.bf16((NUM_TOKENS, HIDDEN_SIZE), exponents=(-75, -60))
    weights = words.fp32((NUM_TOKENS, TOP_K), exponents=(-76, -66), signed=True)
    weights[:, 0] = (127 - 75) << 23
    by_slot(rows)[:, 0, 0:30:10] = [(127 - 75) << 7, ((127 - 75) << 7) + 1, ((127 - 75) << 7) - 1]
    return Fixture(rows, weights, no_shared())


def subnormal_boundaries() -> Fixture:
    """Every subnormal at the routed and the shared boundary, each routed one with many shared ones."""
    rows = no_rows()
    by_slot(rows)[:, 0] = tiled(_SUBNORMALS)
    shared = _SUBNORMALS[(np.arange(ELEMENTS) * 17 + np.arange(ELEMENTS) // len(_SUBNORMALS)) % len(_SUBNORMALS)]
    return Fixture(rows, unit_weights(), shared.reshape(NUM_TOKENS, HIDDEN_SIZE))


def infinity_inputs() -> Fixture:
    """An infinity of either sign in one slot, in the shared output, or in both with one sign. No NaN comes of it."""
    rows = no_rows()
    rows[:] = 0x3F00 + (np.arange(len(rows)) % 0x80)[:, None]
    shared = finite_chunk(1) & np.uint16(0xBFFF)  # below 2 in magnitude
    columns = np.arange(HIDDEN_SIZE)
    infinity = np.where((columns // TOP_K) % 2, _INFINITY | SIGN, _INFINITY).astype(np.uint16)
    where = (columns // (2 * TOP_K)) % 3
    in_row = columns[where != 1]
    by_slot(rows)[:, in_row % TOP_K, in_row] = infinity[in_row]
    shared[:, where != 0] = infinity[where != 0]
    return Fixture(rows, unit_weights(), shared)


def infinity_overflow() -> Fixture:
    """Overflow at each rounding, one a token, and what stays just below it.

    Token 0: a product. 1: the sum, from two slots. 2: the sum, and a third slot that cannot bring it back. 3: the
    routed rounding, by a tie. 4: just below that tie. 5: the scaled rounding. 6: the final one. 7: none, by sign.
    """
    rows, shared, weights = no_rows(), no_shared(), unit_weights()
    top = tiled(np.arange(0x7E80, BF16_INFINITY, dtype=np.uint16))
    top[:, ::2] |= SIGN
    slots = by_slot(rows)
    slots[:, 0] = top
    weights[0, 0] = 0x4000_0000
    slots[1, 6] = slots[2, 3] = top[1]
    slots[2, 8] = top[1] ^ SIGN
    slots[3:5, 0] = _LARGEST | (top[3:5] & SIGN)
    slots[3:5, 1] = 0x7B80 | (top[3:5] & SIGN)  # 2**120, the distance of the largest words
    weights[3, 1] = 0x3F00_0000
    weights[4, 1] = 0x3EFF_FE00
    slots[6:8, 0] = (top[6:8] & np.uint16(0x807F)) | np.uint16(0x7E00)  # 2**125 to 2**126, so that 2.5 x is finite
    shared[6] = top[6]
    shared[7] = top[7] ^ SIGN
    return Fixture(rows, weights, shared)


def nan_words() -> Fixture:
    """Every NaN word of BF16 in a slot, in the shared output or in both; the other elements have none."""
    rows = no_rows() | np.uint16(BF16_ONE)
    shared = no_shared() | np.uint16(0x4000)
    nans = tiled(NAN_WORDS)
    where = tiled(np.arange(7, dtype=np.uint16))  # 7 has no factor in common with 254
    token, column = np.nonzero((where == 0) | (where == 2))
    by_slot(rows)[token, column % TOP_K, column] = nans[token, column]
    by_slot(rows)[:, 9] = np.where(where == 3, nans, by_slot(rows)[:, 9])
    shared = np.where((where == 1) | (where == 2), nans[:, ::-1], shared).astype(np.uint16)
    return Fixture(rows, unit_weights(), shared)


def nan_invalid() -> Fixture:
    """NaNs that arise: infinity minus infinity in the sum and at the end, zero times infinity, and NaN weights.

    Token 0: opposed infinities in two slots. 1: an opposed infinity in the shared output. 2: infinite rows, weight 0.
    3: rows of zero, an infinite weight. 4, 5: NaN weights with rows of zero and of one. 6: the sum overflows against
    an infinity. 7: an infinite weight and finite rows, which is no NaN.
    """
    rows, shared, weights = no_rows(), no_shared(), unit_weights()
    slots = by_slot(rows)
    sign = tiled(np.array([0, SIGN], dtype=np.uint16))
    slots[0, 1] = _INFINITY | sign[0]
    slots[0, 8] = slots[0, 1] ^ SIGN
    slots[1, 4] = _INFINITY | sign[1]
    shared[1] = slots[1, 4] ^ SIGN
    slots[2, 5] = _INFINITY | sign[2]
    weights[2, 5] = 0
    weights[3, 2] = 0x7F80_0000
    slots[3, 2] = sign[3]
    weights[4, 0], weights[5, 9] = FP32_NAN | 1, 0xFF80_0001
    slots[5] = BF16_ONE
    slots[6, 0] = slots[6, 1] = _LARGEST
    slots[6, 2] = _INFINITY | SIGN
    weights[7, 3] = 0xFF80_0000
    slots[7, 3] = tiled(FINITE_WORDS[FINITE_WORDS != SIGN][1:])[7]
    return Fixture(rows, weights, shared)


def weight_edges() -> Fixture:
    """Edge weights in every slot; in each column one slot alone has a row, so that each product shows by itself."""
    rows = no_rows()
    columns = np.arange(HIDDEN_SIZE)
    by_slot(rows)[:, columns % TOP_K, columns] = finite_chunk(1, step=7919)
    edges = np.array(EDGE_WEIGHTS, dtype=np.uint32)
    return Fixture(rows, _edge_table(np.concatenate([edges, edges | np.uint32(FP32_SIGN)])), _shared_of_ones())


def _edge_table(edges: UInt32Array) -> UInt32Array:
    """[8, 10], each edge twice, in different slots."""
    order = np.concatenate([np.arange(len(edges)), np.roll(np.arange(len(edges)), 3)])
    return np.asarray(edges[order].reshape(NUM_TOKENS, TOP_K))


def _shared_of_ones() -> UInt16Array:
    """Shared output of alternating signs, 0 in half of the columns."""
    shared = no_shared()
    shared[:, 1::4] = BF16_ONE
    shared[:, 3::4] = np.uint16(BF16_ONE) | SIGN
    return shared
