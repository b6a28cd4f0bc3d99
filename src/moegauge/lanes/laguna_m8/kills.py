"""Which fixture kills which wrong candidate, and with which words; held against the mutants themselves."""

from __future__ import annotations

from collections.abc import Iterable

from moegauge.gate.mutation import check_mutation_adequacy
from moegauge.lanes.laguna_m8.fixture import Fixture, FixtureSpec
from moegauge.lanes.laguna_m8.mutants import MUTANTS
from moegauge.lanes.laguna_m8.sequence import FINAL, gather_finalize, words_of
from moegauge.numerics.words import UInt16Array
from moegauge.records.adequacy import Kill, MutationResult


def mutation_adequacy(specs: Iterable[FixtureSpec]) -> MutationResult:
    """Run every mutant on the fixture of the given corpus that has to kill it."""
    by_name = {spec.name: spec for spec in specs}

    def fixture(name: str) -> Fixture | None:
        return by_name[name].build() if name in by_name else None

    return check_mutation_adequacy(MUTANTS, KILLS, fixture=fixture, oracle=_oracle, dtypes={FINAL: "bfloat16"})


def _oracle(fixture: Fixture) -> dict[str, UInt16Array]:
    return words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))


def _kill(mutant: str, fixture: str, first_index: tuple[int, int], expected_word: str, found_word: str) -> Kill:
    """At the final boundary, which every candidate has; a fused kernel need not store the others."""
    return Kill(
        mutant=mutant,
        fixture=fixture,
        boundary=FINAL,
        first_index=first_index,
        expected_word=expected_word,
        found_word=found_word,
    )


KILLS: tuple[Kill, ...] = (
    _kill("fma", "sum-fma", (0, 0), "0x0000", "0x3020"),
    _kill("reversed-sum", "sum-order", (0, 8), "0x0000", "0x4020"),
    _kill("swapped-slots", "sum-order", (0, 27), "0x4020", "0x0000"),
    _kill("tree-sum", "sum-order", (0, 17), "0x0000", "0x4020"),
    _kill("two-accumulators", "sum-order", (0, 0), "0x4020", "0x0000"),
    _kill("dropped-zero", "all-negative-zero", (0, 0), "0x0000", "0x8000"),
    _kill("folded-scale", "weight-edges", (0, 58), "0x4E50", "0x4E4F"),
    _kill("scaled-accumulator", "all-local", (0, 11), "0xC062", "0xC061"),
    _kill("missing-routed-cast", "residue-routed-chunk1", (0, 2), "0x0000", "0x5D00"),
    _kill("missing-scaled-cast", "residue-scaled-chunk1", (0, 1), "0x0000", "0x5C00"),
    _kill("fused-final", "residue-routed-chunk2", (0, 0), "0x0000", "0xBC20"),
    _kill("flush-inputs", "subnormal-weights", (0, 0), "0x3FFA", "0x0000"),
    _kill("flush-results", "subnormal-products", (0, 4), "0x8002", "0x0000"),
    _kill("truncation", "all-local", (0, 0), "0xC04F", "0xC04C"),
    _kill("ties-away", "tie-final-chunk1", (0, 0), "0x6000", "0x6001"),
    _kill("other-nan", "nan-invalid", (0, 0), "0x7FC0", "0x7FFF"),
    _kill("unchecked-nan", "nan-words", (0, 0), "0x7FC0", "0x4000"),
    _kill("slot-major-rows", "canonical-slot3", (0, 0), "0x2A20", "0x34A0"),
    _kill("nine-slots", "canonical-slot9", (0, 0), "0x2D20", "0x0000"),
    _kill("first-2048-columns", "shared-finite-chunk1", (0, 2048), "0x6800", "0x7FA5"),
)
"""Mutant, fixture, (token, column) of the first word that differs, the oracle's word there and the mutant's."""
