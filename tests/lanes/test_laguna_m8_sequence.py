"""The oracle of the lane: literal words worked out by hand, and two other implementations on the whole corpus."""

from __future__ import annotations

import numpy as np
import pytest

import second_opinion
from moegauge.errors import MisuseError
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.fixture import Fixture, FixtureSpec, no_rows, no_shared, unit_weights
from moegauge.lanes.laguna_m8.sequence import FINAL, ROUTED, SCALED, gather_finalize, rank_sum, scaled_from, words_of

SPECS = corpus()
# Columns that exact integers compute again; fewer where the elements repeat those of another fixture or are random.
NUM_COLUMNS = {"routed-finite": 48, "canonical-slot": 48, "random": 8}
OTHER_COLUMNS = 128


def element(
    rows: dict[int, int], weights: dict[int, int], shared: int = 0, *, token: int = 3, column: int = 5
) -> tuple[int, int, int]:
    """Routed, scaled and final word of one element; weights are 1 and rows +0 where nothing else is given."""
    all_rows, all_weights, all_shared = no_rows(), unit_weights(), no_shared()
    for slot, word in rows.items():
        all_rows[token * 10 + slot, column] = word
    for slot, word in weights.items():
        all_weights[token, slot] = word
    all_shared[token, column] = shared
    found = gather_finalize(all_rows, all_weights, all_shared)
    return (
        int(found[ROUTED].words[token, column]),
        int(found[SCALED].words[token, column]),
        int(found[FINAL].words[token, column]),
    )


def test_one_times_one_is_one_then_two_and_a_half_then_three_and_a_half() -> None:
    assert element({0: 0x3F80}, {}, 0x3F80) == (0x3F80, 0x4020, 0x4060)


def test_the_routed_sum_is_rounded_before_it_is_scaled() -> None:
    # 1 + 2**-8 is a tie, to 1; 2.5 x 1 is 2.5. Unrounded, 2.5 + 2.5 x 2**-8 would be 0x4021 after rounding.
    assert element({0: 0x3F80, 1: 0x3B80}, {}) == (0x3F80, 0x4020, 0x4020)


def test_the_scaled_product_is_rounded_before_shared_is_added() -> None:
    # 2.5 x (1 + 2**-7) = 2.51953125 lies between 2.515625 (0x4021) and 2.53125 (0x4022); with -2.515625 it leaves 0.
    assert element({4: 0x3F81}, {}, 0xC021) == (0x3F81, 0x4021, 0x0000)


def test_slots_are_added_in_order() -> None:
    assert element({0: 0x4B80, 1: 0x3F80, 2: 0xCB80}, {})[0] == 0x0000  # 2**24 + 1 is 2**24
    assert element({0: 0x4B80, 1: 0xCB80, 2: 0x3F80}, {})[0] == 0x3F80


def test_a_product_is_rounded_before_it_is_added() -> None:
    weight = 0x3F800001
    assert element({0: 0x3FC0, 1: 0xBFC0}, {0: weight, 1: weight})[0] == 0x0000


def test_ten_products_of_negative_zero_give_positive_zero() -> None:
    assert element(dict.fromkeys(range(10), 0x8000), {}, 0x8000) == (0x0000, 0x0000, 0x0000)


def test_a_negative_sum_that_underflows_gives_negative_zero() -> None:
    # -2**-133 x 2**-1 is an FP32 subnormal and a tie of the routed rounding, to -0.
    assert element({0: 0x8001}, {0: 0x3F000000}, 0x8000) == (0x8000, 0x8000, 0x8000)


def test_subnormals_are_kept_at_every_step() -> None:
    assert element({9: 0x0001}, {}) == (0x0001, 0x0002, 0x0002)  # 2.5 of the smallest: a tie to even
    assert element({9: 0x7F00}, {9: 0x00000001}) == (0x3480, 0x3520, 0x3520)  # 2**127 x 2**-149


def test_every_nan_is_one_word_after_every_rounding() -> None:
    assert element({2: 0xFF81}, {}) == (0x7FC0, 0x7FC0, 0x7FC0)
    assert element({2: 0x7F80, 3: 0xFF80}, {}) == (0x7FC0, 0x7FC0, 0x7FC0)
    assert element({2: 0x7F80}, {2: 0}) == (0x7FC0, 0x7FC0, 0x7FC0)
    assert element({}, {2: 0x7F800000}) == (0x7FC0, 0x7FC0, 0x7FC0)  # a zero-filled row does not hide it
    assert element({2: 0x3F80}, {}, 0xFFFF) == (0x3F80, 0x4020, 0x7FC0)
    assert element({2: 0x7F80}, {}, 0xFF80) == (0x7F80, 0x7F80, 0x7FC0)


def test_a_finite_routed_word_may_overflow_when_it_is_scaled() -> None:
    assert element({0: 0x7F00}, {}, 0xFF00) == (0x7F00, 0x7F80, 0x7F80)


def test_scaled_words_follow_from_routed_words_alone() -> None:
    routed = no_shared()
    routed[:] = 0x3F81
    assert set(scaled_from(routed).words.ravel().tolist()) == {0x4021}


def test_ranks_are_added_in_order_each_sum_rounded_to_bf16() -> None:
    outputs = np.zeros((4, 8, 3072), dtype=np.uint16)
    outputs[:, 0, 0] = [0x4380, 0x3F80, 0xC380, 0x3F80]  # 256 + 1 is a tie, to 256; then 0; then 1
    outputs[:, 7, 3071] = [0x3F80, 0x4380, 0x3F80, 0xC380]  # 1 + 256 is 256, + 1 is 256, - 256 is 0
    found = rank_sum(outputs).words
    assert (found[0, 0], found[7, 3071], np.count_nonzero(found)) == (0x3F80, 0x0000, 1)


def test_this_ranks_output_stands_among_the_others_in_the_order_of_ranks() -> None:
    peers = np.zeros((3, 8, 3072), dtype=np.uint16)
    peers[:] = np.array([1, 2, 3])[:, None, None]
    fixture = Fixture(no_rows(), unit_weights(), no_shared(), peers, 2)
    assert fixture.outputs(no_shared() + np.uint16(9))[:, 0, 0].tolist() == [1, 2, 9, 3]


def test_inputs_are_not_changed() -> None:
    fixture = SPECS[-1].build()
    before = fixture.digest
    gather_finalize(fixture.rows, fixture.weights, fixture.shared)
    assert Fixture(fixture.rows, fixture.weights, fixture.shared).digest == before


@pytest.mark.parametrize(
    ("name", "array", "found"),
    [
        ("rows", np.zeros((80, 3071), dtype=np.uint16), "uint16 [80, 3071]"),
        ("rows", np.zeros((80, 3072), dtype=np.float32), "float32 [80, 3072]"),
        ("weights", np.zeros((10, 8), dtype=np.uint32), "uint32 [10, 8]"),
        ("weights", np.zeros((8, 10), dtype=np.float32), "float32 [8, 10]"),
        ("shared", np.zeros((7, 3072), dtype=np.uint16), "uint16 [7, 3072]"),
    ],
)
def test_an_input_of_another_shape_or_type_is_refused_by_name(name: str, array: np.ndarray, found: str) -> None:
    given = {"rows": no_rows(), "weights": unit_weights(), "shared": no_shared(), name: array}
    with pytest.raises(MisuseError) as refused:
        gather_finalize(**given)
    assert (refused.value.where, refused.value.found) == (f"{name} of laguna_m8", found)


def test_outputs_of_another_number_of_ranks_are_refused() -> None:
    with pytest.raises(MisuseError, match=r"outputs of laguna_m8: expected uint16 words \[4, 8, 3072\]"):
        rank_sum(np.zeros((3, 8, 3072), dtype=np.uint16))


def in_parts(num: int) -> list[tuple[FixtureSpec, ...]]:
    return [SPECS[part::num] for part in range(num)]


@pytest.mark.parametrize("specs", in_parts(4), ids=["part0", "part1", "part2", "part3"])
def test_every_word_of_the_whole_corpus_is_the_one_that_this_machines_float32_gives(
    specs: tuple[FixtureSpec, ...],
) -> None:
    for spec in specs:
        fixture = spec.build()
        found = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
        expected = second_opinion.machine_finalize(fixture.rows, fixture.weights, fixture.shared)
        differing = {
            name for name, words in zip(found, expected, strict=True) if not np.array_equal(found[name], words)
        }
        assert (spec.name, differing) == (spec.name, set())
        sum_ = fixture.outputs(found[FINAL])
        machine_sum = sum_[0]
        with np.errstate(all="ignore"):
            for other in sum_[1:]:
                wide = second_opinion.machine_from_bf16(machine_sum) + second_opinion.machine_from_bf16(other)
                machine_sum = second_opinion.machine_to_bf16(wide)
        assert (spec.name, np.array_equal(rank_sum(sum_).words, machine_sum)) == (spec.name, True)


@pytest.mark.parametrize("specs", in_parts(4), ids=["part0", "part1", "part2", "part3"])
def test_sampled_words_of_every_fixture_are_those_of_exact_integers(specs: tuple[FixtureSpec, ...]) -> None:
    for place, spec in enumerate(specs):
        fixture = spec.build()
        found = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
        num = NUM_COLUMNS.get(spec.family, OTHER_COLUMNS)
        columns = (np.arange(num) * 3072 // num + 5 * place) % 3072
        rows = fixture.rows.reshape(8, 10, 3072)[:, :, columns].transpose(0, 2, 1).tolist()
        shared = fixture.shared[:, columns].tolist()
        expected = [
            [second_opinion.finalize_element(rows[token][one], weights, shared[token][one]) for one in range(num)]
            for token, weights in enumerate(fixture.weights.tolist())
        ]
        actual = np.stack([words[:, columns] for words in found.values()], axis=-1)
        assert (spec.name, np.argwhere(actual != np.array(expected)).tolist()) == (spec.name, [])
