"""Wrong candidates: each is killed by the fixture that is registered, with words that are worked out here again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import second_opinion as exact
from moegauge.gate.mutation import check_mutation_adequacy
from moegauge.lanes.laguna_m8.corpus import corpus, fixture_spec
from moegauge.lanes.laguna_m8.fixture import Fixture
from moegauge.lanes.laguna_m8.kills import KILLS, mutation_adequacy
from moegauge.lanes.laguna_m8.mutants import MUTANTS, sequence
from moegauge.lanes.laguna_m8.sequence import FINAL, gather_finalize, words_of
from moegauge.records.adequacy import Kill

Row = list[int]
Element = Callable[[Row, Row, int], int]
SMALLEST_NORMAL = 2.0**-126


@cache
def built(name: str) -> Fixture:
    return fixture_spec(name).build()


# --- the wrong candidates again, one element at a time ----------------------------------------------------------------


def products(rows: Row, weights: Row) -> list[float]:
    return [
        exact.multiply(exact.from_bf16(row), exact.value_of(weight)) for row, weight in zip(rows, weights, strict=True)
    ]


def added(terms: list[float], start: float = 0.0) -> float:
    for term in terms:
        start = exact.add(start, term)
    return start


def times_scale(value: float) -> float:
    return exact.multiply(value, 2.5)


def bf16(value: float) -> float:
    return exact.from_bf16(exact.to_bf16(value))


def tail(accum: float, shared: int, cast: Callable[[float], float] = bf16) -> int:
    scaled = cast(times_scale(cast(accum)))
    return exact.word_of(cast(exact.add(exact.from_bf16(shared), scaled))) >> 16


def plus_shared(scaled: float, shared: int) -> int:
    return exact.to_bf16(exact.add(exact.from_bf16(shared), scaled))


def fma(rows: Row, weights: Row, shared: int) -> int:
    accum = 0.0
    for row, weight in zip(rows, weights, strict=True):
        accum = exact.fused(exact.from_bf16(row), exact.value_of(weight), accum)
    return tail(accum, shared)


def tree(rows: Row, weights: Row, shared: int) -> int:
    p = products(rows, weights)
    first, second, third, fourth, last = (exact.add(p[place], p[place + 1]) for place in (0, 2, 4, 6, 8))
    return tail(exact.add(exact.add(exact.add(first, second), exact.add(third, fourth)), last), shared)


def two_accumulators(rows: Row, weights: Row, shared: int) -> int:
    p = products(rows, weights)
    return tail(exact.add(added(p[::2]), added(p[1::2])), shared)


def dropped_zero(rows: Row, weights: Row, shared: int) -> int:
    first, *rest = products(rows, weights)
    return tail(added(rest, first), shared)


def folded_scale(rows: Row, weights: Row, shared: int) -> int:
    scaled = [exact.word_of(times_scale(exact.value_of(weight))) for weight in weights]
    return plus_shared(bf16(exact.accumulate(rows, scaled)), shared)


def scaled_accumulator(rows: Row, weights: Row, shared: int) -> int:
    return plus_shared(bf16(added([times_scale(one) for one in products(rows, weights)])), shared)


def fused_final(rows: Row, weights: Row, shared: int) -> int:
    return exact.to_bf16(exact.fused(exact.accumulate(rows, weights), 2.5, exact.from_bf16(shared)))


def flush(value: float) -> float:
    return value if abs(value) >= SMALLEST_NORMAL else value * 0.0


def flush_inputs(rows: Row, weights: Row, shared: int) -> int:
    accum = 0.0
    for row, weight in zip(rows, weights, strict=True):
        term = exact.multiply(flush(exact.from_bf16(row)), flush(exact.value_of(weight)))
        accum = exact.add(flush(accum), flush(term))
    return exact.to_bf16(exact.add(flush(exact.from_bf16(shared)), flush(bf16(times_scale(flush(bf16(accum)))))))


def flush_results(rows: Row, weights: Row, shared: int) -> int:
    accum = 0.0
    for term in products(rows, weights):
        accum = flush(exact.add(accum, flush(term)))
    return exact.to_bf16(flush(exact.add(exact.from_bf16(shared), bf16(flush(times_scale(bf16(accum)))))))


def cut(value: float) -> float:
    return exact.value_of(exact.word_of(value) & 0xFFFF0000)


def away(value: float) -> float:
    return exact.value_of((exact.word_of(value) + 0x8000) & 0xFFFF0000)


AGAIN: dict[str, Element] = {
    "fma": fma,
    "reversed-sum": lambda rows, weights, shared: tail(exact.accumulate(rows[::-1], weights[::-1]), shared),
    "swapped-slots": lambda rows, weights, shared: tail(
        exact.accumulate(
            [*rows[:4], rows[5], rows[4], *rows[6:]], [*weights[:4], weights[5], weights[4], *weights[6:]]
        ),
        shared,
    ),
    "tree-sum": tree,
    "two-accumulators": two_accumulators,
    "dropped-zero": dropped_zero,
    "folded-scale": folded_scale,
    "scaled-accumulator": scaled_accumulator,
    "missing-routed-cast": lambda rows, weights, shared: plus_shared(
        bf16(times_scale(exact.accumulate(rows, weights))), shared
    ),
    "missing-scaled-cast": lambda rows, weights, shared: plus_shared(
        times_scale(bf16(exact.accumulate(rows, weights))), shared
    ),
    "fused-final": fused_final,
    "flush-inputs": flush_inputs,
    "flush-results": flush_results,
    "truncation": lambda rows, weights, shared: tail(exact.accumulate(rows, weights), shared, cut),
    "ties-away": lambda rows, weights, shared: tail(exact.accumulate(rows, weights), shared, away),
    "nine-slots": lambda rows, weights, shared: tail(exact.accumulate(rows[:9], weights[:9]), shared),
}


def inputs_at(kill: Kill) -> tuple[Row, Row, int]:
    token, column = kill.first_index
    fixture = built(kill.fixture)
    rows = fixture.rows[token * 10 : token * 10 + 10, column].tolist()
    return rows, fixture.weights[token].tolist(), int(fixture.shared[token, column])


@pytest.mark.parametrize("kill", KILLS, ids=[kill.mutant for kill in KILLS])
def test_the_right_word_of_every_kill_is_that_of_exact_integers(kill: Kill) -> None:
    assert kill.expected_word == f"0x{exact.finalize_element(*inputs_at(kill))[2]:04X}"


@pytest.mark.parametrize("kill", [kill for kill in KILLS if kill.mutant in AGAIN], ids=list(AGAIN))
def test_the_wrong_word_of_every_kill_is_that_of_the_same_mistake_in_exact_integers(kill: Kill) -> None:
    assert kill.found_word == f"0x{AGAIN[kill.mutant](*inputs_at(kill)):04X}"


def test_the_wrong_words_that_no_arithmetic_gives_are_those_of_the_mistake() -> None:
    found = {kill.mutant: kill for kill in KILLS if kill.mutant not in AGAIN}
    assert sorted(found) == ["first-2048-columns", "other-nan", "slot-major-rows", "unchecked-nan"]
    assert found["other-nan"].found_word == "0x7FFF"
    assert (found["first-2048-columns"].first_index, found["first-2048-columns"].found_word) == ((0, 2048), "0x7FA5")
    # The NaN has become -0, so the sum is the shared word, 2.
    assert found["unchecked-nan"].found_word == "0x4000"
    # Slot 3 of token 0 read as row 3 x 8 + 0 = 24: exponent word 0x2800 + 24 x 0x80 = 0x3400, times 2.5.
    assert found["slot-major-rows"].found_word == f"0x{exact.to_bf16(2.5 * exact.from_bf16(0x3400)):04X}"


# --- adequacy ---------------------------------------------------------------------------------------------------------

REQUIRED = {  # what a gate on this sequence has to be able to refuse
    *("fma", "reversed-sum", "tree-sum", "folded-scale", "scaled-accumulator", "missing-routed-cast"),
    *("missing-scaled-cast", "fused-final", "flush-inputs", "flush-results", "truncation", "dropped-zero"),
    *("other-nan", "unchecked-nan"),
}


def test_every_required_mistake_is_among_the_mutants() -> None:
    assert {mutant.name for mutant in MUTANTS} >= REQUIRED


def test_every_mutant_is_killed_by_its_fixture_at_the_registered_word() -> None:
    result = mutation_adequacy(corpus())
    assert (result.passed, [one.sentence for one in result.reasons]) == (True, [])
    assert [check.mutant for check in result.checks] == [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("killer", sorted({kill.fixture for kill in KILLS}))
def test_taking_a_fixture_away_fails_every_mutant_that_it_kills(killer: str) -> None:
    killed = [kill for kill in KILLS if kill.fixture == killer]
    names = [kill.mutant for kill in killed]
    left = {spec.name: spec for spec in corpus() if spec.name != killer}
    result = check_mutation_adequacy(
        [mutant for mutant in MUTANTS if mutant.name in names],
        killed,
        fixture=lambda name: left[name].build() if name in left else None,
        oracle=lambda one: words_of(gather_finalize(one.rows, one.weights, one.shared)),
        dtypes={"final": "bfloat16"},
    )
    assert (result.passed, [one.code for one in result.reasons]) == (False, ["KILLER_MISSING"] * len(names))


def test_an_empty_corpus_fails_every_mutant() -> None:
    result = mutation_adequacy([])
    assert (result.passed, {one.code for one in result.reasons}) == (False, {"KILLER_MISSING"})
    assert len(result.reasons) == len(MUTANTS)


@pytest.mark.parametrize("name", ["all-local", "nan-words", "subnormal-products", "signed-zero-combinations"])
def test_a_mutant_without_its_mistake_is_the_oracle(name: str) -> None:
    fixture = built(name)
    right = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
    found = sequence(fixture)
    assert {boundary: np.array_equal(found[boundary], words) for boundary, words in right.items()} == dict.fromkeys(
        right, True
    )


def test_every_mutant_gives_the_boundary_that_its_kill_is_about() -> None:
    assert {kill.boundary for kill in KILLS} == {FINAL}
    fixture = built("all-local")
    assert [mutant.name for mutant in MUTANTS if FINAL not in mutant.run(fixture)] == []
