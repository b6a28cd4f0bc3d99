"""The corpus of the lane: named, the same everywhere, complete by count, and described as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moegauge.errors import DigestMismatch, MisuseError
from moegauge.lanes.laguna_m8 import manifest
from moegauge.lanes.laguna_m8.corpus import FAMILIES, corpus, fixture_spec
from moegauge.lanes.laguna_m8.coverage import corpus_coverage
from moegauge.lanes.laguna_m8.fixture import Fixture, FixtureSpec, by_slot
from moegauge.lanes.laguna_m8.sequence import FINAL, SCALED, gather_finalize
from moegauge.numerics.words import FINITE_WORDS
from moegauge.records.adequacy import CorpusResult
from moegauge.records.schema import canonical_bytes
from moegauge.render.gate_tables import corpus_tables

SPECS = corpus()
PAGE = Path(__file__).parent.parent.parent / "docs" / "gate-arithmetic.md"


def of_family(*families: str) -> list[FixtureSpec]:
    return [spec for spec in SPECS if spec.family in families]


def shortfalls(result: CorpusResult) -> dict[str, int]:
    return {row.what: row.num_covered for row in result.rows if row.num_covered < row.num_required}


# --- the whole --------------------------------------------------------------------------------------------------------


def test_the_corpus_covers_what_it_has_to_and_the_page_shows_the_counts() -> None:
    result = corpus_coverage(SPECS)
    assert (result.passed, shortfalls(result)) == (True, {})
    lines = corpus_tables(result).splitlines()
    assert len(lines) == len(FAMILIES) + len(result.rows) + 5
    page = PAGE.read_text().splitlines()
    assert [line for line in lines if line not in page] == []


def test_every_fixture_is_made_of_the_words_whose_digest_is_registered() -> None:
    built = manifest.check_manifest(SPECS)
    assert len(built.fixtures) == 333
    assert len({one.digest for one in built.fixtures}) == 333


def test_the_registered_manifest_is_canonical() -> None:
    path = Path(manifest.__file__).parent / manifest.FILE
    assert path.read_bytes() == canonical_bytes(manifest.registered_manifest())


def test_names_are_unique_and_every_family_has_a_fixture() -> None:
    assert len({spec.name for spec in SPECS}) == len(SPECS)
    assert {spec.family for spec in SPECS} == set(FAMILIES)


def test_a_name_that_is_not_in_the_corpus_is_refused() -> None:
    with pytest.raises(MisuseError, match="expected a name of the corpus, found random-1"):
        fixture_spec("random-1")


# --- what is missing is seen ------------------------------------------------------------------------------------------


def test_a_corpus_without_fixtures_covers_nothing_and_fails() -> None:
    result = corpus_coverage([])
    assert (result.passed, len(result.reasons)) == (False, len(result.rows))
    assert {row.num_covered for row in result.rows} == {0}


def test_two_thirds_of_the_shared_words_are_two_thirds_and_all_three_are_all() -> None:
    shared = "finite words at the shared boundary"
    thirds = of_family("shared-finite")
    assert shortfalls(corpus_coverage(thirds[:2]))[shared] == 2 * 24_576
    assert shared not in shortfalls(corpus_coverage(thirds))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("subnormal-weights", "fixtures whose weights are all subnormal"),
        ("all-negative-zero", "fixtures of -0 alone"),
        ("signed-zero-combinations", "choices of sign for ten products and a shared word, all zero"),
        ("weight-edges", "edge weights of either sign"),
        ("nan-words", "NaN words in a row"),
        ("canonical-slot4", "slots that alone have a weight, with every row filled"),
        ("sum-fma", "elements that show a product added without its rounding"),
        ("sum-order", "elements that show the sum taken in reverse"),
        ("random-plain-000", "random fixtures, each unlike the others"),
    ],
)
def test_a_corpus_without_the_fixture_falls_short(name: str, what: str) -> None:
    families = {fixture_spec(name).family, "canonical-slot", "nan", "signed-zero", "subnormal", "weight-edges"}
    rest = [spec for spec in of_family(*families) if spec.name != name]
    assert what in shortfalls(corpus_coverage(rest[:40]))


def test_the_same_random_fixture_many_times_is_one() -> None:
    one = fixture_spec("random-wide-002")
    copies = [replace(one, name=f"random-{place}") for place in range(8)]
    assert shortfalls(corpus_coverage(copies))["random fixtures, each unlike the others"] == 1


def test_a_fixture_of_other_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = list(SPECS[:3])
    registered = manifest.built_manifest(specs)
    monkeypatch.setattr(manifest, "registered_manifest", lambda: registered)
    assert manifest.check_manifest(specs) == registered

    def one_word_changed() -> Fixture:
        fixture = SPECS[1].build()
        fixture.rows[17, 2000] ^= 1
        return fixture

    specs[1] = replace(specs[1], build=one_word_changed)
    with pytest.raises(DigestMismatch, match="routed-finite-slot0-chunk1 arrays-v1") as refused:
        manifest.check_manifest(specs)
    assert refused.value.where == "corpus of laguna_m8"
    with pytest.raises(DigestMismatch, match="2 fixtures"):
        manifest.check_manifest(SPECS[:2])


# --- single fixtures --------------------------------------------------------------------------------------------------


def test_three_chunks_hold_every_finite_word_in_the_slot() -> None:
    for slot in (0, 9):
        seen = {
            int(word)
            for chunk in range(3)
            for word in by_slot(fixture_spec(f"routed-finite-slot{slot}-chunk{chunk}").build().rows)[:, slot].ravel()
        }
        assert seen == set(FINITE_WORDS.tolist())


def test_ties_of_the_scaled_rounding_are_as_many_as_there_can_be() -> None:
    # Of a significand m with 8 bits, 5m/2 lies midway where 5m leaves 2 of 4 (below 2**10) or 4 of 8 (from there on).
    normal = sum(5 * m % 4 == 2 if 5 * m < 1024 else 5 * m % 8 == 4 for m in range(128, 256))
    # Subnormal ones: the last bit of the result is worth 1 up to 8 bits of it, 2 or 4 beyond.
    subnormal = 0
    for m in range(1, 128):
        spacing = max(1 << ((5 * m // 2).bit_length() - 8), 1) if 5 * m // 2 >= 256 else 1
        subnormal += 5 * m % (2 * spacing) == spacing
    # Up to 2**126 every binade has all of them; below 2**127 products from 205 on are infinite, and above all are.
    last = sum(5 * m % 4 == 2 for m in range(128, 205))
    assert (normal, last) == (25, 19)
    assert 2 * (252 * normal + last + subnormal) == 12_752


def test_the_shared_output_of_a_residue_fixture_cancels_the_scaled_words() -> None:
    for name in ("residue-scaled-chunk1", "residue-routed-chunk2"):
        fixture = fixture_spec(name).build()
        found = gather_finalize(fixture.rows, fixture.weights, fixture.shared)
        finite = (found[SCALED].words & 0x7FFF) < 0x7F80
        assert set(found[FINAL].words[finite].tolist()) == {0x0000}
        assert finite.mean() > 0.95


def test_subnormal_weights_meet_rows_that_make_normal_products() -> None:
    fixture = fixture_spec("subnormal-weights").build()
    assert ((fixture.weights & 0x7F800000) == 0).all()
    assert ((fixture.weights & 0x007FFFFF) != 0).all()
    final = gather_finalize(fixture.rows, fixture.weights, fixture.shared)[FINAL].words
    exponents = (final[:, :1536] >> 7) & 0xFF
    assert np.count_nonzero(exponents > 80) > 12_000


def test_remote_rows_are_positive_zero_and_local_ones_are_not() -> None:
    for name, num in (("all-local", 80), ("all-remote", 0), ("mixed-remote0", 72), ("mixed-remote2", 24)):
        rows = fixture_spec(name).build().rows
        assert (name, np.count_nonzero((rows != 0).any(axis=1))) == (name, num)


def test_infinity_fixtures_have_no_nan() -> None:
    for spec in of_family("infinity"):
        fixture = spec.build()
        for rounding in gather_finalize(fixture.rows, fixture.weights, fixture.shared).values():
            assert np.count_nonzero((rounding.words & 0x7FFF) > 0x7F80) == 0
            assert np.count_nonzero((rounding.words & 0x7FFF) == 0x7F80) > 0


def test_random_fixtures_take_every_place_among_the_ranks() -> None:
    fixtures = [
        fixture_spec(f"random-{name}").build() for name in ("plain-000", "router-001", "wide-002", "cancelling-003")
    ]
    assert [fixture.rank for fixture in fixtures] == [0, 1, 2, 3]
    assert len({fixture.peers_digest for fixture in fixtures}) == 4
