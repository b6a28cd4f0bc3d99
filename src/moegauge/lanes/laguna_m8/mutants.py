"""Wrong candidates: the literal sequence with one thing changed, each as a compiler or a programmer would change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from moegauge.gate.mutation import Mutant
from moegauge.lanes.laguna_m8.fixture import Fixture
from moegauge.lanes.laguna_m8.sequence import (
    FINAL,
    HIDDEN_SIZE,
    NUM_TOKENS,
    ROUTED,
    SCALE,
    SCALED,
    TOP_K,
    accumulated,
    gather_finalize,
    words_of,
)
from moegauge.numerics import bf16, fp32
from moegauge.numerics.words import BF16_NAN, FP32_INFINITY, FP32_SIGN, BoolArray, UInt16Array, UInt32Array

Operation = Callable[[UInt32Array, UInt32Array], UInt32Array]
Cast = Callable[[UInt32Array], UInt16Array]
Words = dict[str, UInt16Array]

_POISON = np.uint16(0x7FA5)


def sequence(
    fixture: Fixture,
    *,
    accum: UInt32Array | None = None,
    product: Operation = fp32.product,
    total: Operation = fp32.total,
    cast: Cast = bf16.rounded,
) -> Words:
    """The sequence with other operations, or from another sum on."""
    if accum is None:
        accum = np.zeros((NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint32)
        for term in _products(fixture, range(TOP_K), product):
            accum = total(accum, term)
    routed = cast(accum)
    scaled = cast(product(bf16.widened(routed), SCALE))
    return {
        ROUTED: routed,
        SCALED: scaled,
        FINAL: cast(total(bf16.widened(fixture.shared), bf16.widened(scaled))),
    }


def _row(fixture: Fixture, slot: int) -> UInt32Array:
    return bf16.widened(fixture.rows[slot::TOP_K])


def _products(fixture: Fixture, slots: Iterable[int], product: Operation = fp32.product) -> list[UInt32Array]:
    return [product(_row(fixture, slot), fixture.weights[:, slot, None]) for slot in slots]


def _sum(terms: Iterable[UInt32Array]) -> UInt32Array:
    accum = np.zeros((NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint32)
    for term in terms:
        accum = fp32.total(accum, term)
    return accum


# --- the sum ----------------------------------------------------------------------------------------------------------


def _fma(fixture: Fixture) -> Words:
    accum = np.zeros((NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint32)
    for slot in range(TOP_K):
        accum = fp32.fused(_row(fixture, slot), fixture.weights[:, slot, None], accum)
    return sequence(fixture, accum=accum)


def _reversed_sum(fixture: Fixture) -> Words:
    return sequence(fixture, accum=_sum(_products(fixture, reversed(range(TOP_K)))))


def _swapped_slots(fixture: Fixture) -> Words:
    return sequence(fixture, accum=_sum(_products(fixture, (0, 1, 2, 3, 5, 4, 6, 7, 8, 9))))


def _tree_sum(fixture: Fixture) -> Words:
    terms = _products(fixture, range(TOP_K))
    while len(terms) > 1:
        pairs = [fp32.total(left, right) for left, right in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
    return sequence(fixture, accum=terms[0])


def _two_accumulators(fixture: Fixture) -> Words:
    even, odd = (_sum(_products(fixture, range(start, TOP_K, 2))) for start in (0, 1))
    return sequence(fixture, accum=fp32.total(even, odd))


def _dropped_zero(fixture: Fixture) -> Words:
    accum, *rest = _products(fixture, range(TOP_K))
    for term in rest:
        accum = fp32.total(accum, term)
    return sequence(fixture, accum=accum)


# --- the factor 2.5 and the roundings between -------------------------------------------------------------------------


def _folded_scale(fixture: Fixture) -> Words:
    scaled_weights = fp32.product(fixture.weights, SCALE)
    return _from_scaled(fixture, bf16.rounded(accumulated(fixture.rows, scaled_weights)))


def _scaled_accumulator(fixture: Fixture) -> Words:
    terms = [fp32.product(term, SCALE) for term in _products(fixture, range(TOP_K))]
    return _from_scaled(fixture, bf16.rounded(_sum(terms)))


def _missing_routed_cast(fixture: Fixture) -> Words:
    accum = accumulated(fixture.rows, fixture.weights)
    return _from_scaled(fixture, bf16.rounded(fp32.product(accum, SCALE)))


def _missing_scaled_cast(fixture: Fixture) -> Words:
    routed = bf16.rounded(accumulated(fixture.rows, fixture.weights))
    product = fp32.product(bf16.widened(routed), SCALE)
    return {ROUTED: routed, FINAL: bf16.rounded(fp32.total(bf16.widened(fixture.shared), product))}


def _fused_final(fixture: Fixture) -> Words:
    accum = accumulated(fixture.rows, fixture.weights)
    return {FINAL: bf16.rounded(fp32.fused(accum, SCALE, bf16.widened(fixture.shared)))}


def _from_scaled(fixture: Fixture, scaled: UInt16Array) -> Words:
    total = fp32.total(bf16.widened(fixture.shared), bf16.widened(scaled))
    return {SCALED: scaled, FINAL: bf16.rounded(total)}


# --- the formats ------------------------------------------------------------------------------------------------------


def _flushed(words: UInt32Array) -> UInt32Array:
    subnormal = (words & np.uint32(FP32_INFINITY)) == 0
    return np.where(subnormal, words & np.uint32(FP32_SIGN), words)


def _flush_inputs(fixture: Fixture) -> Words:
    return sequence(
        fixture,
        product=lambda left, right: fp32.product(_flushed(left), _flushed(right)),
        total=lambda left, right: fp32.total(_flushed(left), _flushed(right)),
    )


def _flush_results(fixture: Fixture) -> Words:
    return sequence(
        fixture,
        product=lambda left, right: _flushed(fp32.product(left, right)),
        total=lambda left, right: _flushed(fp32.total(left, right)),
    )


def _truncated(words: UInt32Array) -> UInt16Array:
    return np.where(_is_nan(words), np.uint16(BF16_NAN), (words >> np.uint32(16)).astype(np.uint16))


def _ties_away(words: UInt32Array) -> UInt16Array:
    upper = ((words + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)
    return np.where(_is_nan(words), np.uint16(BF16_NAN), upper)


def _other_nan(words: UInt32Array) -> UInt16Array:
    return np.where(_is_nan(words), np.uint16(0x7FFF), bf16.rounded(words))


def _unchecked_nan(words: UInt32Array) -> UInt16Array:
    """A device whose NaN is 0x7FFFFFFF, rounded as if it were a number: the carry runs into the sign, to -0."""
    return np.where(_is_nan(words), np.uint16(0x8000), bf16.rounded(words))


def _is_nan(words: UInt32Array) -> BoolArray:
    return (words & np.uint32(0x7FFF_FFFF)) > FP32_INFINITY


# --- the layout -------------------------------------------------------------------------------------------------------


def _slot_major_rows(fixture: Fixture) -> Words:
    rows = fixture.rows.reshape(TOP_K, NUM_TOKENS, HIDDEN_SIZE).swapaxes(0, 1).reshape(fixture.rows.shape)
    return words_of(gather_finalize(np.ascontiguousarray(rows), fixture.weights, fixture.shared))


def _nine_slots(fixture: Fixture) -> Words:
    return sequence(fixture, accum=_sum(_products(fixture, range(TOP_K - 1))))


def _first_2048_columns(fixture: Fixture) -> Words:
    words = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
    columns = np.arange(HIDDEN_SIZE)
    return {boundary: np.where(columns < 2048, right, _POISON) for boundary, right in words.items()}


MUTANTS: tuple[Mutant[Fixture], ...] = (
    Mutant("fma", "product and sum in one rounding", _fma),
    Mutant("reversed-sum", "slots added from 9 to 0", _reversed_sum),
    Mutant("swapped-slots", "slots 4 and 5 added in the other order", _swapped_slots),
    Mutant("tree-sum", "slots added in pairs, then pairs of pairs", _tree_sum),
    Mutant("two-accumulators", "even and odd slots added apart", _two_accumulators),
    Mutant("dropped-zero", "the sum starts with the first product instead of +0", _dropped_zero),
    Mutant("folded-scale", "2.5 multiplied into the weights", _folded_scale),
    Mutant("scaled-accumulator", "2.5 multiplied into every product of the sum", _scaled_accumulator),
    Mutant("missing-routed-cast", "2.5 times the FP32 sum", _missing_routed_cast),
    Mutant("missing-scaled-cast", "the product with 2.5 added in FP32", _missing_scaled_cast),
    Mutant("fused-final", "2.5 times the FP32 sum plus shared in one rounding", _fused_final),
    Mutant("flush-inputs", "FP32 subnormals read as zero", _flush_inputs),
    Mutant("flush-results", "FP32 results that are subnormal stored as zero", _flush_results),
    Mutant("truncation", "BF16 by cutting the lower half off", lambda one: sequence(one, cast=_truncated)),
    Mutant("ties-away", "BF16 ties rounded away from zero", lambda one: sequence(one, cast=_ties_away)),
    Mutant("other-nan", "another NaN word, 0x7FFF", lambda one: sequence(one, cast=_other_nan)),
    Mutant("unchecked-nan", "a NaN rounded as if it were a number", lambda one: sequence(one, cast=_unchecked_nan)),
    Mutant("slot-major-rows", "rows read as slot x 8 + token", _slot_major_rows),
    Mutant("nine-slots", "the last slot left out", _nine_slots),
    Mutant("first-2048-columns", "columns past 2,048 never written", _first_2048_columns),
)
"""Every wrong candidate of the lane."""
