"""Reported faults from their literal inputs on: the oracle's words, the wrong kernel's words, and the mismatch report.

B27 skipped slot: vllm-project/vllm#46408. B29 signs of zero: pytorch/pytorch#188680. B32 contraction:
pytorch/pytorch#163073. B33 flush to zero: pytorch/pytorch#185878. B34 moved rounding: NVIDIA/TensorRT-LLM#16778,
pytorch/pytorch#181918.
"""

from __future__ import annotations

import numpy as np
import pytest

from moegauge.gate.words import first_mismatch
from moegauge.lanes.laguna_m8.fixture import Fixture, no_rows, no_shared, unit_weights
from moegauge.lanes.laguna_m8.mutants import MUTANTS
from moegauge.lanes.laguna_m8.sequence import FINAL, ROUTED, gather_finalize, words_of
from moegauge.numerics import bf16, fp32

AT = (0, 0)


def given(rows: dict[int, int], weights: dict[int, int] | None = None, shared: int = 0) -> Fixture:
    """Words of token 0, column 0, by slot; everything else is +0, and every weight not given is 1."""
    found = Fixture(no_rows(), unit_weights(), no_shared())
    for slot, word in rows.items():
        found.rows[slot, 0] = word
    for slot, word in (weights or {}).items():
        found.weights[0, slot] = word
    found.shared[AT] = shared
    return found


def right(fixture: Fixture, boundary: str = FINAL) -> int:
    return int(words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))[boundary][AT])


def wrong(name: str, fixture: Fixture, boundary: str = FINAL) -> int:
    mutant = next(one for one in MUTANTS if one.name == name)
    return int(mutant.run(fixture)[boundary][AT])


def report(fixture: Fixture, name: str) -> tuple[str, str, str]:
    oracle = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))[FINAL]
    mutant = next(one for one in MUTANTS if one.name == name)
    found = first_mismatch("bfloat16", oracle, mutant.run(fixture)[FINAL])
    assert found is not None
    return found.incumbent_word, found.candidate_word, found.word_class


def test_b27_a_zero_filled_slot_adds_nothing_and_a_poisoned_one_leaks() -> None:
    zeroed = given({0: 0x3F80, 1: 0x0000})
    assert right(zeroed) == 0x4020
    assert right(given({0: 0x3F80, 1: 0x7FC1})) == 0x7FC0  # NaN poison in a slot nobody wrote


def test_b29_ten_products_of_negative_zero_start_from_positive_zero() -> None:
    fixture = given(dict.fromkeys(range(10), 0x8000), shared=0x8000)
    assert (right(fixture), wrong("dropped-zero", fixture)) == (0x0000, 0x8000)
    assert report(fixture, "dropped-zero") == ("0x0000", "0x8000", "signed zero")


def test_b32_a_contracted_product_does_not_cancel() -> None:
    fixture = given({0: 0xBF80, 1: 0x3F81}, {0: 0x3DCE6667, 1: 0x3DCCCCCD})
    assert (right(fixture, ROUTED), right(fixture)) == (0x0000, 0x0000)
    assert (wrong("fma", fixture, ROUTED), wrong("fma", fixture)) == (0xB14C, 0xB1FF)
    assert report(fixture, "fma") == ("0x0000", "0xB1FF", "other")


@pytest.mark.parametrize(
    ("fixture", "final"),
    [
        (given({0: 0x0001}), 0x0002),  # routed 0x0001, 2.5 units, a tie to even
        (given({}, shared=0x0001), 0x0001),
        (given({0: 0x3F80}, {0: 0x000116C2}), 0x0002),  # 1e-40
    ],
)
def test_b33_subnormal_words_are_kept_and_a_flush_is_reported_as_subnormal(fixture: Fixture, final: int) -> None:
    assert int(np.float32(1e-40).view(np.uint32)) == 0x000116C2
    assert (right(fixture), wrong("flush-inputs", fixture)) == (final, 0x0000)
    assert report(fixture, "flush-inputs") == (f"0x{final:04X}", "0x0000", "subnormal")


def test_b34_a_rounding_for_each_term_loses_eight() -> None:
    fixture = given({0: 0x4380, **dict.fromkeys(range(1, 10), 0x3F80)})
    assert right(fixture, ROUTED) == 0x4384
    word = np.array(0, dtype=np.uint16)
    for slot in range(10):
        product = fp32.product(bf16.widened(fixture.rows[slot, :1]), fixture.weights[0, slot : slot + 1])
        word = bf16.rounded(fp32.total(bf16.widened(np.atleast_1d(word)), product))
    assert int(word[0]) == 0x4380


def test_b34_both_bf16_boundaries_cancel_exactly_and_without_them_a_rest_stays() -> None:
    fixture = given({0: 0x3F80, 1: 0x3B80}, shared=0xC020)
    assert (right(fixture), wrong("fused-final", fixture)) == (0x0000, 0x3C20)
    assert report(fixture, "fused-final") == ("0x0000", "0x3C20", "other")
