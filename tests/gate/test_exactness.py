"""The comparison of bits: what counts as a difference, how it is described, and when a campaign is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moegauge.errors import MisuseError
from moegauge.gate.exactness import ExactnessPlan, judge_exactness
from moegauge.gate.word_comparison import POISONS, Pair, check_written, compare_words, first_mismatch, word_counts
from moegauge.records.exactness import (
    ExactnessOutcome,
    ExactnessResult,
    InputCheck,
    MismatchClass,
    Run,
    TorchEqual,
    WordComparison,
    WrittenCheck,
)

PAIR = Pair("final", Run.INCUMBENT, Run.CANDIDATE)


def words(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint16)


def fp32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def compared(
    left: np.ndarray, right: np.ndarray, *, pair: Pair = PAIR, torch_equal: bool | None = None, fixture: str = "one"
) -> WordComparison:
    return compare_words(left, right, fixture=fixture, pair=pair, torch_equal=torch_equal)


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "before", "kind"),
    [
        (0x7FC0, 0x7FFF, None, MismatchClass.NAN_PAYLOAD),
        (0x7FC0, 0xFFC0, None, MismatchClass.NAN_PAYLOAD),
        (0x0000, 0x8000, None, MismatchClass.SIGNED_ZERO),
        (0x0001, 0x0000, None, MismatchClass.SUBNORMAL),
        (0x807F, 0x8080, None, MismatchClass.SUBNORMAL),
        (0x3F80, 0x3F81, 0x3F808000, MismatchClass.TIE),
        (0x3F82, 0x3F81, 0x3F818000, MismatchClass.TIE),
        (0xBF80, 0xBF81, 0xBF808000, MismatchClass.TIE),
        (0x7F80, 0x7F7F, 0x7F7F8000, MismatchClass.TIE),
        (0x3F80, 0x3F81, 0x3F808001, MismatchClass.OTHER),  # next to a tie
        (0x3F80, 0x3F82, 0x3F808000, MismatchClass.OTHER),  # a tie, but not of these two
        (0x3F80, 0x3F81, None, MismatchClass.OTHER),  # nothing says what was rounded
        (0x7F80, 0x7FC0, None, MismatchClass.OTHER),
        (0x0000, 0x3F80, None, MismatchClass.OTHER),
        (0x0000, 0x7FC0, None, MismatchClass.OTHER),
    ],
)
def test_a_difference_has_the_first_class_that_fits(
    left: int, right: int, before: int | None, kind: MismatchClass
) -> None:
    rounded = None if before is None else fp32(before)
    found = first_mismatch(words(left), words(right), before=rounded)
    assert found is not None
    assert (found.kind, found.num_by_class) == (kind, {kind: 1})


def test_a_mismatch_tells_count_first_index_both_words_and_classes() -> None:
    left, right = np.zeros((3, 4), dtype=np.uint16), np.zeros((3, 4), dtype=np.uint16)
    right[1, 2], right[2, 0], left[2, 3] = 0x8000, 0x3F80, 0xABCD
    found = first_mismatch(left, right)
    assert found is not None
    assert (found.num_words, found.first_index, found.left_word, found.right_word) == (3, (1, 2), "0x0000", "0x8000")
    assert found.num_by_class == {MismatchClass.SIGNED_ZERO: 1, MismatchClass.OTHER: 2}


def test_equal_nans_are_equal_and_torch_has_no_say_in_them() -> None:
    found = compared(words(0x7FC0, 1), words(0x7FC0, 1), torch_equal=False)
    assert (found.passed, found.mismatch, found.torch_equal) == (True, None, TorchEqual.INAPPLICABLE)


def test_torch_that_calls_equal_words_unequal_fails_the_comparison() -> None:
    assert compared(words(1, 2), words(1, 2), torch_equal=True).torch_equal is TorchEqual.EQUAL
    assert compared(words(1, 2), words(1, 2)).torch_equal is TorchEqual.NOT_ASKED
    assert not compared(words(1, 2), words(1, 2), torch_equal=False).passed


def test_torch_that_calls_zeros_of_both_signs_equal_saves_nothing() -> None:
    found = compared(words(0x0000), words(0x8000), torch_equal=True)
    assert (found.passed, found.torch_equal) == (False, TorchEqual.EQUAL)


def test_digests_of_both_sides_differ_exactly_where_words_do() -> None:
    same, other = compared(words(5, 6), words(5, 6)), compared(words(5, 6), words(5, 7))
    assert same.left_digest == same.right_digest == other.left_digest
    assert other.left_digest != other.right_digest


def test_words_are_counted_by_class() -> None:
    found = word_counts(words(0, 0, 0x8000, 0x0001, 0x807F, 0x3F80, 0xFF80, 0x7F80, 0x7F81, 0xFFFF))
    counted = found.num_positive_zero, found.num_negative_zero, found.num_subnormal
    assert counted == (2, 1, 2)
    assert (found.num_normal, found.num_infinity, found.num_nan) == (1, 2, 2)


@pytest.mark.parametrize(
    ("left", "right", "before"),
    [
        (words(1, 2), words(1, 2, 3), None),
        (words(1), np.array([1], dtype=np.int16), None),
        (np.array([1.0], dtype=np.float32), np.array([1.0], dtype=np.float32), None),
        (words(1), words(1), np.array([1, 2], dtype=np.uint32)),
        (words(1), words(1), np.array([1], dtype=np.uint64)),
        (words(), words(), None),
    ],
)
def test_arrays_that_are_no_words_of_one_shape_or_hold_none_are_refused(
    left: np.ndarray, right: np.ndarray, before: np.ndarray | None
) -> None:
    with pytest.raises(MisuseError, match="comparison of words"):
        first_mismatch(left, right, before=before)


# --- poison -----------------------------------------------------------------------------------------------------------


def written(first: np.ndarray, second: np.ndarray) -> WrittenCheck:
    return check_written(first, second, fixture="one", run=Run.CANDIDATE, boundary="final")


def test_words_that_hold_both_poisons_were_never_written() -> None:
    found = written(words(1, POISONS[0], 2, POISONS[0]), words(1, POISONS[1], 2, POISONS[1]))
    assert (found.passed, found.num_unwritten, found.first_index) == (False, 2, (1,))


def test_a_kernel_that_writes_the_poison_word_has_written_it() -> None:
    assert written(words(POISONS[0], POISONS[1]), words(POISONS[0], POISONS[1])).passed


# --- the whole campaign -----------------------------------------------------------------------------------------------

PAIRS = (
    Pair("final", Run.ORACLE, Run.INCUMBENT),
    Pair("final", Run.INCUMBENT, Run.INCUMBENT_REPEAT),
    Pair("final", Run.INCUMBENT, Run.CANDIDATE),
    Pair("final", Run.CANDIDATE, Run.CANDIDATE_REPEAT),
)
PLAN = ExactnessPlan(
    fixtures=("one", "two"),
    pairs=PAIRS,
    inputs=(Run.INCUMBENT, Run.CANDIDATE),
    written=((Run.INCUMBENT, "final"), (Run.CANDIDATE, "final")),
)
DIGEST = "arrays-v1+sha256:00"

Checks = tuple[list[WordComparison], list[InputCheck], list[WrittenCheck]]


def complete() -> Checks:
    comparisons = [
        compared(words(1, 2), words(1, 2), pair=pair, fixture=name) for name in PLAN.fixtures for pair in PAIRS
    ]
    inputs = [
        InputCheck(fixture=name, run=run, registered_digest=DIGEST, before_digest=DIGEST, after_digest=DIGEST)
        for name in PLAN.fixtures
        for run in PLAN.inputs
    ]
    unpoisoned = [
        check_written(words(1, 2), words(1, 2), fixture=name, run=run, boundary=boundary)
        for name in PLAN.fixtures
        for run, boundary in PLAN.written
    ]
    return comparisons, inputs, unpoisoned


def judged(checks: Checks, plan: ExactnessPlan = PLAN) -> ExactnessResult:
    return judge_exactness(plan, comparisons=checks[0], inputs=checks[1], written=checks[2])


def codes(result: ExactnessResult) -> list[str]:
    return [one.code for one in result.reasons]


def with_pair(pair: Pair) -> Checks:
    checks = complete()
    place = 4 + PAIRS.index(pair)  # of fixture two
    checks[0][place] = compared(words(1, 2), words(1, 3), pair=pair, fixture="two")
    return checks


def test_every_planned_check_that_passes_makes_a_campaign_exact() -> None:
    assert (judged(complete()).outcome, codes(judged(complete()))) == (ExactnessOutcome.EXACT, [])


@pytest.mark.parametrize("pair", PAIRS[2:])
def test_a_difference_of_the_candidate_is_its_failure(pair: Pair) -> None:
    result = judged(with_pair(pair))
    assert (result.outcome, codes(result)) == (ExactnessOutcome.DIFFERS, ["WORDS_DIFFER"])
    assert result.reasons[0].sentence == (
        f"two at the final boundary: {pair.left} against {pair.right}: 1 words differ, at (1,) first, 0x0002 against "
        "0x0003 (SUBNORMAL)."
    )


@pytest.mark.parametrize("pair", PAIRS[:2])
def test_an_incumbent_that_does_not_repeat_or_fit_the_oracle_judges_nobody(pair: Pair) -> None:
    checks = with_pair(pair)
    checks[0][2] = compared(words(1, 2), words(7, 2), pair=PAIRS[2])  # the candidate differs too
    result = judged(checks)
    assert (result.outcome, codes(result)) == (ExactnessOutcome.NOT_EVALUABLE, ["WORDS_DIFFER", "WORDS_DIFFER"])


def test_an_input_that_the_candidate_changed_is_its_failure() -> None:
    checks = complete()
    changed = InputCheck(
        fixture="one", run=Run.CANDIDATE, registered_digest=DIGEST, before_digest=DIGEST, after_digest=DIGEST + "1"
    )
    checks[1][1] = changed
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.DIFFERS, ["INPUT_CHANGED"])


def test_an_input_that_the_incumbent_changed_judges_nobody() -> None:
    checks = complete()
    checks[1][0] = InputCheck(
        fixture="one", run=Run.INCUMBENT, registered_digest=DIGEST, before_digest=DIGEST, after_digest=DIGEST + "1"
    )
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.NOT_EVALUABLE, ["INPUT_CHANGED"])


def test_an_input_that_is_not_the_registered_one_judges_nobody() -> None:
    checks = complete()
    other = DIGEST + "1"
    checks[1][1] = InputCheck(
        fixture="one", run=Run.CANDIDATE, registered_digest=DIGEST, before_digest=other, after_digest=other
    )
    result = judged(checks)
    assert (result.outcome, codes(result)) == (ExactnessOutcome.NOT_EVALUABLE, ["INPUT_NOT_REGISTERED"])


def test_an_output_that_the_candidate_left_unwritten_is_its_failure() -> None:
    checks = complete()
    checks[2][1] = written(words(1, POISONS[0]), words(1, POISONS[1]))
    result = judged(checks)
    assert (result.outcome, codes(result)) == (ExactnessOutcome.DIFFERS, ["NOT_FULLY_WRITTEN"])


def test_torch_against_equal_words_is_a_failure_with_a_code_of_its_own() -> None:
    checks = complete()
    checks[0][2] = compared(words(1, 2), words(1, 2), pair=PAIRS[2], torch_equal=False)
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.DIFFERS, ["TORCH_UNEQUAL"])


@pytest.mark.parametrize(("kind", "place"), [(0, 5), (1, 3), (2, 0)])
def test_a_planned_check_that_was_not_made_leaves_the_campaign_incomplete(kind: int, place: int) -> None:
    checks = complete()
    del checks[kind][place]
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.INCOMPLETE, ["CHECK_MISSING"])


def test_a_check_that_came_twice_leaves_the_campaign_incomplete() -> None:
    checks = complete()
    checks[0].append(checks[0][0])
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.INCOMPLETE, ["CHECK_NOT_PLANNED"])


def test_a_check_of_a_fixture_that_is_not_in_the_plan_leaves_the_campaign_incomplete() -> None:
    checks = complete()
    checks[0].append(compared(words(1), words(1), pair=PAIRS[0], fixture="three"))
    assert (judged(checks).outcome, codes(judged(checks))) == (ExactnessOutcome.INCOMPLETE, ["CHECK_NOT_PLANNED"])


@pytest.mark.parametrize("empty", ["fixtures", "pairs", "inputs", "written"])
def test_a_plan_that_owes_no_check_of_a_kind_fails(empty: str) -> None:
    result = judged(([], [], []), replace(PLAN, **{empty: ()}))
    assert (result.outcome, codes(result)) == (ExactnessOutcome.INCOMPLETE, ["NO_CHECKS"])
    assert empty in result.reasons[0].sentence


def test_a_plan_that_never_looks_at_the_candidate_fails() -> None:
    plan = replace(PLAN, pairs=PAIRS[:2])
    comparisons, inputs, unpoisoned = complete()
    kept = [one for one in comparisons if Pair(one.boundary, one.left, one.right) in plan.pairs]
    result = judged((kept, inputs, unpoisoned), plan)
    assert (result.outcome, codes(result)) == (ExactnessOutcome.INCOMPLETE, ["NO_CHECKS"])
