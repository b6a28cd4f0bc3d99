"""Fixtures of routes (slots, remote rows), witnesses of the order and the contraction of the sum, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import numpy as np

from moegauge.lanes.laguna_m8.fixture import ONE, SIGN, Fixture, FixtureSpec, by_slot, no_rows, no_shared, unit_weights
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_RANKS, NUM_ROWS, NUM_TOKENS, TOP_K
from moegauge.numerics.random_words import RandomWords
from moegauge.numerics.words import UInt16Array, UInt32Array

RandomKind = Callable[[RandomWords], tuple[UInt16Array, UInt32Array]]

NUM_RANDOM = 256
NUM_MIXED = 4

ROWS = (NUM_ROWS, HIDDEN_SIZE)
OUTPUT = (NUM_TOKENS, HIDDEN_SIZE)
WEIGHTS = (NUM_TOKENS, TOP_K)

_REMOTE = 3 << 14  # three rows of four, in units of 2**-16: 64 of 256 experts are local
_FIRST_MASKS = tuple([1 << slot for slot in range(TOP_K)] + [1023 ^ (1 << slot) for slot in range(TOP_K)])
_MORE_MASKS = (0x155, 0x2AA, 0x01F, 0x3E0, 0x0CC, 0x333, 0x201, 0x1FE, 0x0F0, 0x30F, 0x007, 0x380)
MIXED_MASKS = _FIRST_MASKS + _MORE_MASKS
"""Which slots are remote, one mask for each token of the four mixed fixtures; bit 0 is slot 0."""


def route_specs(seed: int) -> Iterator[FixtureSpec]:
    """Families canonical-slot, all-local, all-remote, mixed-remote, sum-fma, sum-order and random."""
    for slot in range(TOP_K):
        yield FixtureSpec(f"canonical-slot{slot}", "canonical-slot", partial(canonical_slot, slot))
    yield FixtureSpec("all-local", "all-local", lambda: routed(RandomWords(seed, 2001), [0] * NUM_TOKENS))
    yield FixtureSpec("all-remote", "all-remote", lambda: routed(RandomWords(seed, 2002), [1023] * NUM_TOKENS))
    for index in range(NUM_MIXED):
        masks = list(MIXED_MASKS[index * NUM_TOKENS : (index + 1) * NUM_TOKENS])
        build = partial(_mixed, seed, 2010 + index, masks)
        yield FixtureSpec(f"mixed-remote{index}", "mixed-remote", build)
    yield FixtureSpec("sum-fma", "sum-fma", lambda: sum_fma(RandomWords(seed, 2020)))
    yield FixtureSpec("sum-order", "sum-order", sum_order)
    for index in range(NUM_RANDOM):
        kind = RANDOM_KINDS[index % len(RANDOM_KINDS)]
        name = f"random-{kind.__name__}-{index:03d}"
        yield FixtureSpec(name, "random", partial(_random, kind, seed, index))


def canonical_slot(slot: int) -> Fixture:
    """Weight 1 in one slot and 0 in the others; every row has an exponent of its own, so that a wrong row shows."""
    columns = np.arange(HIDDEN_SIZE)
    rows = (0x2800 + 0x80 * np.arange(NUM_ROWS)[:, None]) | (columns % 128) | ((columns // 128 % 2) << 15)
    weights = np.zeros(WEIGHTS, dtype=np.uint32)
    weights[:, slot] = ONE
    return Fixture(rows.astype(np.uint16), weights, no_shared())


def routed(words: RandomWords, masks: list[int]) -> Fixture:
    """Random rows and router-like weights; the slots of a token's mask are remote, so their rows are zero-filled."""
    rows = words.bell(ROWS, exponent=2)
    remote = np.array([[(mask >> slot) & 1 for slot in range(TOP_K)] for mask in masks]).astype(bool)
    by_slot(rows)[remote] = 0
    weights = words.fp32(WEIGHTS, exponents=(-7, -2), signed=False)
    return Fixture(rows, weights, words.bell(OUTPUT, exponent=2), words.bell((NUM_RANKS - 1, *OUTPUT), exponent=2), 1)


def sum_fma(words: RandomWords) -> Fixture:
    """x times w and then -x times w, in every pair of slots: 0, unless a product reaches the sum unrounded."""
    pairs = list(permutations(range(TOP_K), 2))
    rows = no_rows()
    slots = by_slot(rows)
    x = words.bf16(OUTPUT, exponents=(-3, 3))
    for column in range(HIDDEN_SIZE):
        first, second = sorted(pairs[column % len(pairs)])
        slots[:, first, column] = x[:, column]
        slots[:, second, column] = x[:, column] ^ SIGN
    weight = words.fp32((NUM_TOKENS, 1), exponents=(-4, 0), signed=True)
    return Fixture(rows, np.broadcast_to(weight, WEIGHTS).copy(), no_shared())


def sum_order() -> Fixture:
    """A large number, its negative and a small one, in every order of every three slots.

    The small one survives exactly where it is added after the two large ones have met.
    """
    rows = no_rows()
    slots = by_slot(rows)
    triples = list(permutations(range(TOP_K), 3))
    for column in range(HIDDEN_SIZE):
        large, negative, small = triples[column % len(triples)]
        for token in range(NUM_TOKENS):
            power = 0x4B80 + 0x80 * token  # 2**24 and up
            slots[token, [large, negative, small], column] = [power, power | 0x8000, 0x3F80 | (token % 2) << 15]
    return Fixture(rows, unit_weights(), no_shared())


def plain(words: RandomWords) -> tuple[UInt16Array, UInt32Array]:
    """Bell-shaped rows, signed weights."""
    return words.bell(ROWS, exponent=2), words.fp32(WEIGHTS, exponents=(-4, 1), signed=True)


def router(words: RandomWords) -> tuple[UInt16Array, UInt32Array]:
    """Bell-shaped rows, three of four zero-filled; positive weights."""
    rows = words.bell(ROWS, exponent=2)
    rows[words.below((NUM_ROWS,), _REMOTE)] = 0
    return rows, words.fp32(WEIGHTS, exponents=(-7, -2), signed=False)


def wide(words: RandomWords) -> tuple[UInt16Array, UInt32Array]:
    """Rows and weights over many binades."""
    return words.bf16(ROWS, exponents=(-20, 20)), words.fp32(WEIGHTS, exponents=(-12, 12), signed=True)


def cancelling(words: RandomWords) -> tuple[UInt16Array, UInt32Array]:
    """The last five slots nearly undo the first five: the same weights, rows negated, some of them one word off."""
    rows, weights = words.bell(ROWS, exponent=2), words.fp32(WEIGHTS, exponents=(-4, 1), signed=True)
    slots = by_slot(rows)
    off = words.below((NUM_TOKENS, 5, HIDDEN_SIZE), 1 << 14)
    slots[:, 5:] = (slots[:, :5] ^ SIGN) + off
    weights[:, 5:] = weights[:, :5]
    return rows, weights


RANDOM_KINDS = (plain, router, wide, cancelling)


def _mixed(seed: int, stream: int, masks: list[int]) -> Fixture:
    return routed(RandomWords(seed, stream), masks)


def _random(kind: RandomKind, seed: int, index: int) -> Fixture:
    words = RandomWords(seed, index)
    rows, weights = kind(words)
    shared = words.bell(OUTPUT, exponent=1 + index % 3)
    peers = words.bell((NUM_RANKS - 1, *OUTPUT), exponent=3)
    return Fixture(rows, weights, shared, peers, index % NUM_RANKS)
