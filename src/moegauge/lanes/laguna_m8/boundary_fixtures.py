"""Fixtures that bring every finite BF16 word to a boundary, and every exact tie to a rounding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from moegauge.lanes.laguna_m8.fixture import (
    NUM_CHUNKS,
    SIGN,
    Fixture,
    FixtureSpec,
    by_slot,
    finite_chunk,
    no_rows,
    no_shared,
    unit_weights,
)
from moegauge.lanes.laguna_m8.sequence import NUM_TOKENS, SCALED, TOP_K, gather_finalize, scaled_from
from moegauge.numerics.words import BF16_INFINITY, FINITE_WORDS, UInt16Array, UInt32Array

HALF = np.uint32(0x3F00_0000)
PAIR_STEP = 7919  # a prime that does not divide 65,280


def boundary_specs() -> Iterator[FixtureSpec]:
    """Families routed-finite, shared-finite, finite-pairs, tie-routed, tie-final, residue-scaled and residue-routed."""
    chunks = range(NUM_CHUNKS)
    for slot in range(TOP_K):
        for chunk in chunks:
            name = f"routed-finite-slot{slot}-chunk{chunk}"
            yield FixtureSpec(name, "routed-finite", partial(routed_finite, slot, chunk))
    for family, build in (
        ("shared-finite", shared_finite),
        ("finite-pairs", finite_pairs),
        ("tie-routed", tie_routed),
        ("tie-final", tie_final),
        ("residue-scaled", residue_scaled),
        ("residue-routed", residue_routed),
    ):
        for chunk in chunks:
            yield FixtureSpec(f"{family}-chunk{chunk}", family, partial(build, chunk))


def routed_finite(slot: int, chunk: int) -> Fixture:
    """Finite words in one slot with weight 1, nothing elsewhere: the routed word is the row's word."""
    rows = no_rows()
    by_slot(rows)[:, slot] = finite_chunk(chunk)
    return Fixture(rows, unit_weights(), no_shared())


def shared_finite(chunk: int) -> Fixture:
    """Finite words in the shared output, rows of zero: the final word is the shared word."""
    return Fixture(no_rows(), unit_weights(), finite_chunk(chunk))


def finite_pairs(chunk: int) -> Fixture:
    """Finite words on both sides of the final sum, paired across all magnitudes."""
    rows = no_rows()
    by_slot(rows)[:, chunk] = finite_chunk(chunk)
    return Fixture(rows, unit_weights(), finite_chunk(chunk, step=PAIR_STEP))


def tie_routed(chunk: int) -> Fixture:
    """Each finite word plus half the distance to the next one: every exact tie of the routed rounding."""
    rows = no_rows()
    words = finite_chunk(chunk)
    by_slot(rows)[:, 2] = words
    by_slot(rows)[:, 7] = _spacing(words)
    weights = unit_weights()
    weights[:, 7] = HALF
    return Fixture(rows, weights, no_shared())


def tie_final(chunk: int) -> Fixture:
    """A shared word plus half its distance to the next one, wherever 2.5 x some word rounds to that half."""
    shared = finite_chunk(chunk)
    reach = FINITE_WORDS[FINITE_WORDS < SIGN]
    scaled = scaled_from(reach).words
    # Half of a spacing is the power of two one binade lower; below 2**-133 there is no BF16 word for it.
    half = _halved(_spacing(shared) & np.uint16(0x7FFF))
    place = np.minimum(np.searchsorted(scaled, half), len(scaled) - 1)
    found = (half > 0) & (scaled[place] == half)
    rows = no_rows()
    by_slot(rows)[:, 4] = np.where(found, reach[place] | (shared & SIGN), 0)
    return Fixture(rows, unit_weights(), shared)


def residue_scaled(chunk: int) -> Fixture:
    """The shared output cancels the scaled words: what is left is what the scaled rounding took away, which is 0."""
    rows = no_rows()
    by_slot(rows)[:, 9] = finite_chunk(chunk)
    return _cancelled(rows, unit_weights())


def residue_routed(chunk: int) -> Fixture:
    """The same with sums that the routed rounding changes: a word plus a part of its last bit, another each token."""
    rows = no_rows()
    words = finite_chunk(chunk)
    by_slot(rows)[:, 0] = words
    by_slot(rows)[:, 5] = _spacing(words)
    weights = unit_weights()
    weights[:, 5] = [np.uint32(0x3E00_0000 + 0x0011_1111 * token) for token in range(NUM_TOKENS)]
    return _cancelled(rows, weights)


def _cancelled(rows: UInt16Array, weights: UInt32Array) -> Fixture:
    """The fixture whose shared output is the negated scaled words; 0 where those are infinite."""
    scaled = gather_finalize(rows, weights, no_shared())[SCALED].words
    finite = (scaled & np.uint16(0x7FFF)) < BF16_INFINITY
    return Fixture(rows, weights, np.where(finite, scaled ^ SIGN, 0).astype(np.uint16))


def _spacing(words: UInt16Array) -> UInt16Array:
    """The distance from each finite word to the next one away from zero, with the word's sign: a power of two."""
    field = ((words & np.uint16(0x7FFF)) >> 7).astype(np.int64)
    lowest = np.maximum(field, 1) - 1  # 0 for 2**-133, the distance between subnormals
    subnormal = 1 << np.minimum(lowest, 6)
    magnitude = np.where(lowest < 7, subnormal, (lowest - 6) << 7)
    return np.asarray(magnitude | (words & SIGN), dtype=np.uint16)


def _halved(powers: UInt16Array) -> UInt16Array:
    """Half of each power of two; 0 for the smallest."""
    return np.where(powers < 0x0100, powers >> 1, powers - 0x0080).astype(np.uint16)
