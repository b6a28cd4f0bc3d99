from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from moegauge import errors
from moegauge.records.workload import ExactInput, FullRunPopularity, IterationPopularity, Reconstruction
from moegauge.routing.apportionment import counts_for, inclusion
from moegauge.routing.expert_load import expert_load
from moegauge.routing.maximum_entropy import inclusion_probabilities, working_weights
from moegauge.routing.reconstruction import (
    full_run_popularity,
    given_popularity_digest,
    given_rows,
    iteration_popularity,
    popularity_digest,
    rebuild,
    stream_of,
)
from moegauge.routing.samplers import SAMPLERS, ascending_order, sample, sampler_named

ROOT = Path(__file__).parents[2]
FOLLOW_POPULARITY = ["counts_exact", "systematic", "conditional_poisson", "gumbel_topk"]


def counts(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def zipf(num_experts: int) -> NDArray[np.int64]:
    return counts(*(10**12 // rank for rank in range(1, num_experts + 1)))


def loads(topk_ids: NDArray[np.int32], num_experts: int) -> list[int]:
    return [int(count) for count in expert_load(topk_ids, num_experts=num_experts).counts]


def is_distinct(topk_ids: NDArray[np.int32]) -> bool:
    return bool((np.diff(topk_ids, axis=1) > 0).all())


def captured(topk_ids: list[list[int]], *, logical: int, iteration: int = 3, layer: int = 1) -> ExactInput:
    return ExactInput(
        iteration=iteration,
        layer=layer,
        rank=0,
        topk_ids=np.array(topk_ids, dtype=np.int32),
        topk_weights=None,
        num_logical_rows=logical,
        expert_map=None,
    )


@st.composite
def targets(draw: st.DrawFn) -> tuple[NDArray[np.int64], int, int]:
    """A popularity, rows and top_k for which rows of distinct experts exist."""
    num_experts = draw(st.integers(1, 12))
    top_k = draw(st.integers(1, num_experts))
    values = draw(st.lists(st.integers(0, 10**9), min_size=num_experts, max_size=num_experts))
    for expert in draw(st.permutations(range(num_experts)))[:top_k]:
        values[expert] = max(values[expert], 1)
    return counts(*values), draw(st.integers(1, 40)), top_k


class TestApportionment:
    def test_largest_remainders_get_the_rows_that_are_left(self) -> None:
        # 10 x (7, 2, 1, 2) / 12 = 5.83, 1.67, 0.83, 1.67: floors 5, 1, 0, 1 and three left for .83, .83, .67.
        assert counts_for(counts(7, 2, 1, 2), 10, 1).tolist() == [6, 2, 1, 1]

    def test_equal_remainders_go_to_the_lowest_expert(self) -> None:
        assert counts_for(counts(1, 1, 1, 1), 3, 2).tolist() == [2, 2, 1, 1]

    def test_a_tie_beyond_float_precision_is_still_a_tie(self) -> None:
        assert counts_for(counts(2**60 + 1, 2**60 + 1, 2**60 + 1), 4, 1).tolist() == [2, 1, 1]
        assert counts_for(counts(2**60, 2**60, 2**60 + 1), 4, 1).tolist() == [1, 1, 2]

    def test_an_expert_above_the_rows_is_capped_and_the_others_take_the_rest_in_proportion(self) -> None:
        # 2 x 10 slots: the first takes all 10 rows; 10 rows in proportion 4 : 3 : 3.
        assert counts_for(counts(90, 4, 3, 3), 10, 2).tolist() == [10, 4, 3, 3]

    def test_capping_one_expert_can_push_the_next_above_the_rows(self) -> None:
        # After the first, 2 x 50 / 80 is above 1 too; then 10 rows in proportion 15 : 15.
        assert counts_for(counts(1000, 50, 15, 15), 10, 3).tolist() == [10, 10, 5, 5]

    def test_counts_of_these_very_rows_are_kept(self) -> None:
        assert counts_for(counts(8, 8, 0, 0), 8, 2).tolist() == [8, 8, 0, 0]
        assert counts_for(counts(5, 4, 4, 3), 8, 2).tolist() == [5, 4, 4, 3]

    def test_the_skewed_vector_of_the_pairing_check_has_its_known_rank_rows(self) -> None:
        by_rank = counts_for(zipf(64), 512, 8).reshape(8, 8).sum(axis=1)
        assert by_rank.tolist() == [2157, 635, 379, 270, 211, 172, 146, 126]

    @given(targets())
    def test_counts_always_fit_the_rows_and_follow_the_popularity(
        self, target: tuple[NDArray[np.int64], int, int]
    ) -> None:
        popularity, rows, top_k = target
        try:
            found = counts_for(popularity, rows, top_k)
        except errors.Inconsistent:
            assert popularity.sum() == rows * top_k
            assert popularity.max() > rows
            return
        assert found.sum() == rows * top_k
        assert found.min() >= 0
        assert found.max() <= rows
        assert not found[popularity == 0].any()
        if popularity.sum() != rows * top_k:
            numerators, denominator = inclusion(popularity, top_k)
            ideal = [Fraction(int(n) * rows, denominator) for n in numerators]
            assert all(abs(Fraction(int(f)) - i) < 1 for f, i in zip(found, ideal, strict=True))

    @given(targets())
    def test_inclusions_add_up_to_top_k_exactly(self, target: tuple[NDArray[np.int64], int, int]) -> None:
        popularity, _, top_k = target
        numerators, denominator = inclusion(popularity, top_k)
        assert numerators.sum() == top_k * denominator
        assert numerators.max() <= denominator


class TestRefusals:
    @pytest.mark.parametrize("name", FOLLOW_POPULARITY)
    @pytest.mark.parametrize(
        ("popularity", "rows", "top_k", "message"),
        [
            (counts(1, 1, 1), -1, 2, "-1 rows"),
            (counts(0, 0, 0), 4, 2, "found a sum of 0"),
            (counts(5, 0, 0), 4, 2, "1 experts with a count"),
            (counts(5, -1, 3), 4, 2, "-1 for expert 1"),
            (counts(5, 5, 5), 4, 4, "top_k 4"),
            (counts(5, 5, 5), 4, 0, "top_k 0"),
        ],
    )
    def test_a_target_without_any_table_is_refused(
        self, name: str, popularity: NDArray[np.int64], rows: int, top_k: int, message: str
    ) -> None:
        with pytest.raises(errors.Inconsistent, match=message):
            draw(name, popularity, rows, top_k)

    def test_uniform_needs_no_mass_but_enough_experts(self) -> None:
        assert draw("uniform", counts(0, 0), 3, 2).tolist() == [[0, 1]] * 3
        with pytest.raises(errors.Inconsistent, match="top_k 3"):
            draw("uniform", counts(1, 1), 3, 3)

    def test_counts_of_another_type_are_refused(self) -> None:
        with pytest.raises(errors.Inconsistent, match="float64"):
            draw("systematic", np.array([0.5, 0.5]), 3, 1)

    @pytest.mark.parametrize("name", FOLLOW_POPULARITY)
    def test_an_inclusion_above_one_is_refused_when_strict(self, name: str) -> None:
        with pytest.raises(errors.Inconsistent, match=r"found 1\.8 for expert 0"):
            sample(name, counts(90, 4, 3, 3), rows=10, top_k=2, seed=1, stream=0, strict=True)

    def test_counts_too_large_for_exact_steps_are_refused(self) -> None:
        with pytest.raises(errors.Inconsistent, match="62 bits"):
            draw("systematic", counts(2**60, 2**60, 1), 3, 2)

    def test_more_experts_than_the_sort_keys_hold_are_refused(self) -> None:
        with pytest.raises(errors.Inconsistent, match="5000 experts"):
            draw("uniform", np.ones(5000, dtype=np.int64), 3, 2)

    def test_an_unknown_sampler_is_misuse(self) -> None:
        with pytest.raises(errors.MisuseError, match=r"counts_exact \| systematic"):
            draw("exact", counts(1, 1), 1, 1)

    @pytest.mark.parametrize(("seed", "stream"), [(-1, 0), (0, -1), (2**64, 0)])
    def test_a_seed_outside_64_bits_is_misuse(self, seed: int, stream: int) -> None:
        with pytest.raises(errors.MisuseError, match="seed"):
            sample("uniform", counts(1, 1), rows=1, top_k=1, seed=seed, stream=stream)


def draw(name: str, popularity: NDArray[Any], rows: int, top_k: int, *, seed: int = 1) -> NDArray[np.int32]:
    return sample(name, popularity, rows=rows, top_k=top_k, seed=seed, stream=0)


class TestEverySampler:
    def test_the_table_has_the_five_names_and_says_version_and_rule(self) -> None:
        assert list(SAMPLERS) == ["counts_exact", "systematic", "conditional_poisson", "gumbel_topk", "uniform"]
        assert sampler_named("counts_exact").label == (
            "counts_exact v1 (largest remainder, cap = rows, ties to the lowest expert)"
        )
        assert "capped at 1" in sampler_named("systematic").label

    @pytest.mark.parametrize("name", SAMPLERS)
    @given(target=targets())
    @settings(max_examples=40)
    def test_rows_hold_distinct_experts_that_have_a_count(
        self, name: str, target: tuple[NDArray[np.int64], int, int]
    ) -> None:
        popularity, rows, top_k = target
        if popularity.sum() == rows * top_k and popularity.max() > rows:
            return
        topk_ids = draw(name, popularity, rows, top_k)
        assert topk_ids.shape == (rows, top_k)
        assert topk_ids.dtype == np.int32
        assert is_distinct(topk_ids)
        if name != "uniform":
            assert popularity[topk_ids].all()

    @pytest.mark.parametrize("name", SAMPLERS)
    def test_no_rows_give_an_empty_table(self, name: str) -> None:
        topk_ids = draw(name, counts(0, 0, 0), 0, 2)
        assert topk_ids.shape == (0, 2)
        assert topk_ids.dtype == np.int32

    @pytest.mark.parametrize("name", SAMPLERS)
    def test_seed_and_stream_alone_decide_the_draw(self, name: str) -> None:
        first = sample(name, zipf(16), rows=50, top_k=4, seed=5, stream=9)
        draw(name, zipf(16), 7, 2)
        assert np.array_equal(first, sample(name, zipf(16), rows=50, top_k=4, seed=5, stream=9))
        assert not np.array_equal(first, sample(name, zipf(16), rows=50, top_k=4, seed=6, stream=9))
        assert not np.array_equal(first, sample(name, zipf(16), rows=50, top_k=4, seed=5, stream=10))

    @pytest.mark.parametrize(
        ("name", "version", "topk_ids"),
        [
            ("counts_exact", 1, [[1, 2], [0, 2], [0, 1], [0, 3]]),
            ("systematic", 1, [[0, 2], [0, 4], [2, 5], [1, 2]]),
            ("conditional_poisson", 1, [[0, 2], [0, 1], [2, 4], [0, 1]]),
            ("gumbel_topk", 1, [[2, 5], [0, 1], [0, 2], [0, 2]]),
            ("uniform", 1, [[1, 3], [2, 4], [1, 3], [3, 4]]),
        ],
    )
    def test_ids_of_a_version_never_change(self, name: str, version: int, topk_ids: list[list[int]]) -> None:
        found = sample(name, counts(5, 4, 3, 2, 1, 1), rows=4, top_k=2, seed=7, stream=11)
        assert (SAMPLERS[name].version, found.tolist()) == (version, topk_ids), "raise the version with the ids"

    @pytest.mark.parametrize(
        ("num_experts", "rows", "top_k", "digest"),
        [
            (256, 8193, 8, "0f4bad6453a1b410fb65ccd48e6724e274e6c90dacf1684d85a09ed1580c31d0"),
            (64, 2048, 6, "9643d8ab3d2f36ef7c189ef9a0b9d72cbe3a2f8b79f1be29f844563ba92846ad"),
            (512, 701, 10, "24af65b205896c2cb7fadbb7ac379161aa30dbd6d4584996329f96725fe0ac38"),
            (9, 65, 1, "a577b7f78f9ce482b5d16c36e50578e37754dbef0d3b0b01451961db371f4d66"),
        ],
    )
    def test_large_tables_of_counts_exact_version_1_never_change(
        self, num_experts: int, rows: int, top_k: int, digest: str
    ) -> None:
        # Digests of the first form of version 1, which sorted whole words and compared neighbours pair by pair.
        found = sample("counts_exact", zipf(num_experts), rows=rows, top_k=top_k, seed=7, stream=11)
        assert hashlib.sha256(found.astype("<i4").tobytes()).hexdigest() == digest

    @pytest.mark.parametrize("num_words", [1, 2047, 2048, 9001])
    def test_the_order_of_random_words_is_that_of_whole_words(self, num_words: int) -> None:
        words = np.random.default_rng(3).integers(0, 2**64 - 1, num_words, dtype=np.uint64, endpoint=True)
        assert np.array_equal(ascending_order(words), np.argsort(words))

    def test_words_with_equal_high_halves_are_ordered_by_their_low_halves(self) -> None:
        words = np.arange(4096, dtype=np.uint64)[::-1] + np.uint64(7 << 32)
        assert ascending_order(words).tolist() == list(range(4095, -1, -1))

    def test_the_stream_of_an_invocation_never_changes(self) -> None:
        assert stream_of(3, 1) == 10420337907376274319


class TestCountsExact:
    @given(targets(), st.integers(0, 2**64 - 1))
    def test_every_count_is_exact(self, target: tuple[NDArray[np.int64], int, int], seed: int) -> None:
        popularity, rows, top_k = target
        if popularity.sum() == rows * top_k and popularity.max() > rows:
            return
        topk_ids = draw("counts_exact", popularity, rows, top_k, seed=seed)
        assert is_distinct(topk_ids)
        assert loads(topk_ids, len(popularity)) == counts_for(popularity, rows, top_k).tolist()

    @given(st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**32), st.data())
    def test_an_iterations_own_counts_come_back(
        self, num_experts: int, rows: int, seed: int, data: st.DataObject
    ) -> None:
        top_k = data.draw(st.integers(1, num_experts))
        served = np.argsort(np.random.default_rng(seed).random((rows, num_experts)), axis=1)[:, :top_k]
        own = np.bincount(served.ravel(), minlength=num_experts).astype(np.int64)
        topk_ids = draw("counts_exact", own, rows, top_k, seed=seed)
        assert is_distinct(topk_ids)
        assert loads(topk_ids, num_experts) == own.tolist()

    def test_the_pairing_is_like_a_random_one(self) -> None:
        # Measured with long random swaps on the same counts: 512 distinct rows, 3.951 ranks a token, and
        # 512 399 287 231 187 153 134 120 tokens touching each rank. Dealt in order: 61 rows, 4.547 ranks.
        topk_ids = draw("counts_exact", zipf(64), 512, 8)
        assert len(np.unique(topk_ids, axis=0)) >= 508
        touched = np.zeros((512, 8), dtype=bool)
        np.put_along_axis(touched, topk_ids // 8, True, axis=1)
        assert touched.sum(axis=1).mean() == pytest.approx(3.951, abs=0.1)
        reference = np.array([512, 399, 287, 231, 187, 153, 134, 120])
        assert np.abs(touched.sum(axis=0) - reference).max() <= 30

    def test_the_number_of_co_occurring_pairs_is_that_of_independent_rows(self) -> None:
        exact = num_pairs(draw("counts_exact", zipf(256), 512, 8))
        independent = num_pairs(draw("conditional_poisson", zipf(256), 512, 8))
        assert exact == pytest.approx(independent, rel=0.06)
        dealt = np.repeat(np.arange(256), counts_for(zipf(256), 512, 8)).reshape(8, 512).T
        assert num_pairs(dealt) < 0.5 * independent

    def test_every_table_of_a_small_case_is_equally_likely(self) -> None:
        # Counts 2, 2, 2, 2 on 4 rows of 2: 90 tables. Chi-square with 89 degrees of freedom, 99.99 % point 145.
        found: dict[bytes, int] = {}
        for seed in range(9000):
            key = draw("counts_exact", counts(2, 2, 2, 2), 4, 2, seed=seed).tobytes()
            found[key] = found.get(key, 0) + 1
        assert len(found) == 90
        assert sum((seen - 100) ** 2 / 100 for seen in found.values()) < 145

    def test_one_row_takes_the_experts_with_a_count(self) -> None:
        assert draw("counts_exact", counts(0, 1, 0, 1), 1, 2).tolist() == [[1, 3]]


def num_pairs(topk_ids: NDArray[Any]) -> int:
    member = np.zeros((len(topk_ids), 256), dtype=np.int64)
    np.put_along_axis(member, topk_ids, 1, axis=1)
    return int(np.count_nonzero(np.triu(member.T @ member, 1)))


class TestInclusionProbabilities:
    ROWS = 200_000

    @pytest.mark.parametrize("name", ["systematic", "conditional_poisson"])
    def test_inclusions_are_kept_within_five_sigma(self, name: str) -> None:
        numerators, denominator = inclusion(zipf(64), 8)
        target = numerators / denominator
        share = np.array(loads(draw(name, zipf(64), self.ROWS, 8), 64)) / self.ROWS
        sigma = np.sqrt(target * (1 - target) / self.ROWS)
        assert target[0] == share[0] == 1
        assert (np.abs(share - target)[1:] < 5 * sigma[1:]).all()

    def test_gumbel_top_k_loses_the_busiest_expert(self) -> None:
        # The popularity asks for the first expert in every row; top-k of perturbed logits has it in 71 % of them.
        popularity = counts_for(zipf(64), 512, 8)
        assert popularity[0] == 512
        share = np.array(loads(draw("gumbel_topk", popularity, self.ROWS, 8), 64)) / self.ROWS
        assert share[0] == pytest.approx(0.71, abs=0.01)
        target = popularity / 512
        assert np.abs(share / target - 1).max() == pytest.approx(0.29, abs=0.01)

    def test_uniform_ignores_the_popularity(self) -> None:
        share = np.array(loads(draw("uniform", zipf(64), self.ROWS, 8), 64)) / self.ROWS
        assert np.abs(share - 1 / 8).max() < 5 * np.sqrt(7 / 64 / self.ROWS)

    def test_working_weights_of_a_known_design(self) -> None:
        # Sets of 2 of 3 with weights 1, 2, 4: products 2, 4, 8 of 14; inclusions 6/14, 10/14, 12/14.
        assert inclusion_probabilities(np.array([1.0, 2.0, 4.0]), 2) == pytest.approx([6 / 14, 10 / 14, 12 / 14])
        weights = working_weights(np.array([6 / 14, 10 / 14, 12 / 14]), 2)
        assert weights / weights[0] == pytest.approx([1, 2, 4])

    def test_conditional_poisson_draws_sets_in_proportion_to_their_products(self) -> None:
        # 6 : 10 : 12 are the inclusions of weights 1, 2, 4; the sets have 1/7, 2/7 and 4/7.
        topk_ids = draw("conditional_poisson", counts(6, 10, 12), 70_000, 2)
        sets, seen = np.unique(topk_ids, axis=0, return_counts=True)
        assert sets.tolist() == [[0, 1], [0, 2], [1, 2]]
        assert np.abs(seen - [10_000, 20_000, 40_000]).max() < 5 * 131

    @given(targets())
    @settings(max_examples=200)
    def test_working_weights_reach_any_target(self, target: tuple[NDArray[np.int64], int, int]) -> None:
        popularity, _, top_k = target
        numerators, denominator = inclusion(popularity, top_k)
        open_ = (numerators > 0) & (numerators < denominator)
        size = top_k - int((numerators == denominator).sum())
        if size:
            wanted = numerators[open_] / denominator
            assert inclusion_probabilities(working_weights(wanted, size), size) == pytest.approx(wanted, abs=2e-12)


class TestUniformAndSkewedRouting:
    """B45: near-uniform routing presented as a workload. T = 8, K = 2, E = 8."""

    UNIFORM = counts(2, 2, 2, 2, 2, 2, 2, 2)
    SKEWED = counts(8, 8, 0, 0, 0, 0, 0, 0)

    def test_active_experts_are_eight_against_two(self) -> None:
        assert len(np.unique(draw("counts_exact", self.UNIFORM, 8, 2))) == 8
        assert len(np.unique(draw("counts_exact", self.SKEWED, 8, 2))) == 2

    def test_assignments_of_two_expert_parallel_ranks_are_even_against_all_on_one(self) -> None:
        def halves(popularity: NDArray[np.int64]) -> list[int]:
            topk_ids = draw("counts_exact", popularity, 8, 2)
            return [int((topk_ids < 4).sum()), int((topk_ids >= 4).sum())]

        assert halves(self.UNIFORM) == [8, 8]
        assert halves(self.SKEWED) == [16, 0]

    def test_a_count_of_nine_in_eight_tokens_is_refused(self) -> None:
        with pytest.raises(errors.Inconsistent, match=r"at most 8.*count 9 for expert 0"):
            draw("counts_exact", counts(9, 7, 0, 0, 0, 0, 0, 0), 8, 2)

    def test_equal_counts_do_not_make_two_inputs_one(self) -> None:
        one = captured([[0, 1], [2, 3], [4, 5], [6, 7]] * 2, logical=8)
        twin = captured([[0, 2], [1, 3], [4, 6], [5, 7]] * 2, logical=8)
        assert loads(one.topk_ids, 8) == loads(twin.topk_ids, 8) == self.UNIFORM.tolist()
        rebuilt = [rebuild(iteration_popularity(x, 8), x, sampler="counts_exact", seed=4) for x in (one, twin)]
        assert rebuilt[0].popularity_digest == rebuilt[1].popularity_digest
        assert np.array_equal(rebuilt[0].topk_ids, rebuilt[1].topk_ids)
        assert not any(isinstance(x, ExactInput) for x in rebuilt)
        assert not np.array_equal(one.topk_ids, twin.topk_ids)

    def test_drawn_rows_carry_algorithm_version_seed_and_window(self) -> None:
        one = captured([[0, 1], [2, 3], [4, 5], [6, 7]] * 2, logical=8)
        rebuilt = rebuild(iteration_popularity(one, 8), one, sampler="counts_exact", seed=4)
        labels = (rebuilt.sampler, rebuilt.version, rebuilt.seed, rebuilt.window, rebuilt.padding)
        assert labels == ("counts_exact", 1, 4, "iteration 3", "captured")
        assert rebuilt.popularity_digest.startswith("popularity-v1+sha256:")


class TestPopularity:
    def test_padded_rows_are_not_counted(self) -> None:
        found = iteration_popularity(captured([[0, 1], [0, 2], [3, 3], [-1, -1]], logical=2), 4)
        assert found.expert_load.tolist() == [2, 1, 1, 0]
        assert (found.num_tokens, found.iteration, found.layer) == (2, 3, 1)

    def test_an_id_beyond_the_experts_is_refused(self) -> None:
        with pytest.raises(errors.Inconsistent, match="id 2"):
            iteration_popularity(captured([[0, 2]], logical=1), 2)

    def test_a_full_run_adds_counts_and_tokens(self) -> None:
        found = full_run_popularity([iteration(5, 2, 2, 0), iteration(4, 0, 2, 2)])
        assert found.expert_load.tolist() == [2, 4, 2]
        assert found.num_tokens == 4
        assert found.window == "iterations 4 to 5"

    @pytest.mark.parametrize(
        ("iterations", "message"),
        [
            ([], "none"),
            (["again", "again"], r"iterations \[4, 4\]"),
            (["again", "other layer"], r"layers \[1, 2\]"),
            (["again", "other model"], "3 and 4"),
        ],
    )
    def test_what_is_not_one_layer_of_one_run_is_refused(self, iterations: list[str], message: str) -> None:
        known = {
            "again": iteration(4, 1, 1, 2),
            "other layer": iteration(5, 1, 1, 2, layer=2),
            "other model": iteration(5, 1, 1, 1, 1),
        }
        with pytest.raises(errors.Inconsistent, match=message):
            full_run_popularity([known[name] for name in iterations])

    def test_the_digest_covers_counts_tokens_layer_and_window(self) -> None:
        base = iteration(4, 1, 1, 2)
        others: list[IterationPopularity | FullRunPopularity] = [
            iteration(4, 1, 2, 1),
            iteration(5, 1, 1, 2),
            iteration(4, 1, 1, 2, layer=2),
            iteration(4, 1, 1, 2, tokens=3),
            full_run_popularity([base]),
        ]
        assert len({popularity_digest(one) for one in (base, *others)}) == 6
        assert popularity_digest(base) == (
            "popularity-v1+sha256:65304dceb531dc8156f1c981b2bbdd57406ad0276650383b0b8948e99d50ec4f"
        )


def iteration(index: int, *load: int, layer: int = 1, tokens: int | None = None) -> IterationPopularity:
    return IterationPopularity(
        iteration=index, layer=layer, expert_load=counts(*load), num_tokens=tokens or max(sum(load) // 2, *load)
    )


class TestRebuild:
    SERVED = captured([[0, 1], [0, 2], [1, 3], [2, 4], [5, 4], [5, 4]], logical=4)

    def popularity(self) -> IterationPopularity:
        return iteration_popularity(self.SERVED, 6)

    def test_padded_rows_keep_their_captured_ids(self) -> None:
        rebuilt = rebuild(self.popularity(), self.SERVED, sampler="counts_exact", seed=1)
        assert rebuilt.topk_ids[4:].tolist() == [[5, 4], [5, 4]]
        assert loads(rebuilt.topk_ids[:4], 6) == [2, 2, 2, 1, 1, 0]
        assert (rebuilt.num_logical_rows, rebuilt.padding) == (4, "captured")

    def test_drawn_padding_takes_its_ids_from_the_popularity(self) -> None:
        rebuilt = rebuild(self.popularity(), self.SERVED, sampler="counts_exact", seed=1, padding="drawn")
        # 12 slots in proportion 2 : 2 : 2 : 1 : 1 = 3, 3, 3, 1.5, 1.5.
        assert loads(rebuilt.topk_ids, 6) == [3, 3, 3, 2, 1, 0]
        assert (rebuilt.num_logical_rows, rebuilt.padding) == (4, "drawn")

    def test_a_full_run_changes_the_source_and_nothing_else(self) -> None:
        run = FullRunPopularity(
            layer=1, expert_load=counts(0, 0, 0, 20, 20, 40), num_tokens=40, first_iteration=0, last_iteration=9
        )
        rebuilt = rebuild(run, self.SERVED, sampler="counts_exact", seed=1)
        assert loads(rebuilt.topk_ids[:4], 6) == [0, 0, 0, 2, 2, 4]
        assert rebuilt.topk_ids[4:].tolist() == [[5, 4], [5, 4]]
        assert rebuilt.window == "iterations 0 to 9"

    def test_an_iteration_of_padding_alone_stays_as_captured(self) -> None:
        idle = captured([[5, 4], [5, 4]], logical=0)
        rebuilt = rebuild(iteration_popularity(idle, 6), idle, sampler="systematic", seed=1)
        assert rebuilt.topk_ids.tolist() == [[5, 4], [5, 4]]

    def test_layers_and_iterations_draw_different_rows(self) -> None:
        served = np.array([[0, 1], [2, 3]] * 20)
        drawn = []
        for at, layer in ((3, 1), (3, 2), (4, 1)):
            one = captured(served.tolist(), logical=40, iteration=at, layer=layer)
            drawn.append(rebuild(iteration_popularity(one, 4), one, sampler="counts_exact", seed=1).topk_ids.tobytes())
        assert len(set(drawn)) == 3

    @pytest.mark.parametrize(
        ("popularity", "message"),
        [
            (iteration(3, 2, 2, 2, 1, 1, layer=2), "one of layer 2"),
            (iteration(4, 2, 2, 2, 1, 1), "iteration 4"),
            (iteration(3, 2, 2, 1, 1), "3 in its popularity"),
            (iteration(3, 2, 2, 2, 1, tokens=4), "a sum of 7"),
        ],
    )
    def test_a_popularity_of_something_else_is_refused(self, popularity: IterationPopularity, message: str) -> None:
        with pytest.raises(errors.Inconsistent, match=message):
            rebuild(popularity, self.SERVED, sampler="counts_exact", seed=1)

    def test_a_window_without_the_iteration_is_refused(self) -> None:
        run = FullRunPopularity(layer=1, expert_load=counts(4, 4), num_tokens=4, first_iteration=4, last_iteration=9)
        with pytest.raises(errors.Inconsistent, match="iterations 4 to 9"):
            rebuild(run, self.SERVED, sampler="counts_exact", seed=1)

    def test_skipped_slots_of_logical_tokens_are_refused(self) -> None:
        skipped = captured([[0, -1], [0, 1]], logical=2)
        with pytest.raises(errors.Inconsistent, match="a sum of 3"):
            rebuild(iteration_popularity(skipped, 2), skipped, sampler="counts_exact", seed=1)
        run = FullRunPopularity(layer=1, expert_load=counts(4, 4), num_tokens=4, first_iteration=0, last_iteration=9)
        with pytest.raises(errors.Inconsistent, match="id -1 among them"):
            rebuild(run, skipped, sampler="counts_exact", seed=1)

    @pytest.mark.parametrize("sampler", ["nothing", "Counts_exact"])
    def test_an_unknown_sampler_is_misuse(self, sampler: str) -> None:
        with pytest.raises(errors.MisuseError, match=sampler):
            rebuild(self.popularity(), self.SERVED, sampler=sampler, seed=1)

    def test_an_unknown_padding_is_misuse(self) -> None:
        with pytest.raises(errors.MisuseError, match=r"captured \| drawn"):
            rebuild(self.popularity(), self.SERVED, sampler="counts_exact", seed=1, padding="zeros")


class TestReconstructionIsNoExactInput:
    def rebuilt(self) -> Reconstruction:
        served = captured([[0, 1], [0, 2]], logical=2)
        return rebuild(iteration_popularity(served, 3), served, sampler="counts_exact", seed=1)

    def test_it_is_refused_at_run_time(self) -> None:
        drawn: Any = self.rebuilt()
        assert not isinstance(drawn, ExactInput)
        with pytest.raises(errors.MisuseError, match="found Reconstruction"):
            iteration_popularity(drawn, 3)
        with pytest.raises(errors.MisuseError, match="found Reconstruction"):
            rebuild(iteration(3, 2, 1, 1), drawn, sampler="counts_exact", seed=1)

    def test_it_is_refused_by_the_type_checker(self, tmp_path: Path) -> None:
        pytest.importorskip("mypy")
        program = tmp_path / "program.py"
        program.write_text(
            "from moegauge.records.workload import ExactInput, Reconstruction\n"
            "from moegauge.routing.reconstruction import iteration_popularity\n"
            "def measured(drawn: Reconstruction) -> None:\n"
            "    iteration_popularity(drawn, 4)\n"
            "    exact: ExactInput = drawn\n"
        )
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(program)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert 'program.py:4: error: Argument 1 to "iteration_popularity" has incompatible type "Reconstruction"' in (
            done.stdout
        )
        assert "program.py:5: error: Incompatible types in assignment" in done.stdout

    def test_it_cannot_be_changed_afterwards(self) -> None:
        drawn: Any = self.rebuilt()
        with pytest.raises(FrozenInstanceError):
            drawn.sampler = "exact"

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("topk_ids", np.zeros((2, 2)), "int32"),
            ("num_logical_rows", 3, "3 of 2"),
            ("padding", "zeros", "captured, drawn"),
        ],
    )
    def test_one_that_contradicts_itself_cannot_be_built(self, field: str, value: object, message: str) -> None:
        fields: dict[str, Any] = {**vars(self.rebuilt()), field: value}
        with pytest.raises(ValueError, match=message):
            Reconstruction(**fields)


class TestGivenPopularity:
    """Rows of a popularity that belongs to no captured invocation."""

    @staticmethod
    def rows(rows: int, *, layer: int = 0, seed: int = 7) -> NDArray[np.int32]:
        return given_rows(counts(1, 1, 1, 1, 1), rows=rows, top_k=2, sampler="uniform", seed=seed, layer=layer)

    def test_the_draw_is_named_by_rows_and_layer(self) -> None:
        stream = int.from_bytes(hashlib.sha256(b"moegauge-stream-v1 given 3 1").digest()[:8], "little")
        words = np.random.Philox(key=np.array([7, stream], dtype=np.uint64)).random_raw(15).reshape(3, 5)
        expected = np.sort(np.argsort(words >> np.uint64(12), axis=1)[:, :2], axis=1)
        assert self.rows(3, layer=1).tolist() == expected.tolist()

    def test_fewer_rows_are_not_the_first_of_more(self) -> None:
        assert self.rows(8).tolist() != self.rows(16)[:8].tolist()

    def test_layers_and_seeds_draw_apart(self) -> None:
        drawn = [self.rows(16), self.rows(16, layer=1), self.rows(16, seed=8)]
        assert len({one.tobytes() for one in drawn}) == 3

    def test_it_is_drawn_apart_from_a_captured_invocation_with_the_same_numbers(self) -> None:
        stream = stream_of(16, 0)
        captured = sample("uniform", counts(1, 1, 1, 1, 1), rows=16, top_k=2, seed=7, stream=stream)
        assert self.rows(16).tolist() != captured.tolist()

    def test_the_digest_is_of_the_counts_under_a_name_of_its_own(self) -> None:
        data = b"given-popularity-v1 experts 3\n" + np.array([4, 0, 2], dtype="<i8").tobytes()
        assert given_popularity_digest(counts(4, 0, 2)) == (
            "given-popularity-v1+sha256:" + hashlib.sha256(data).hexdigest()
        )
