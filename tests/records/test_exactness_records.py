"""Exactness records that say two things at once cannot be built."""

from __future__ import annotations

import msgspec
import pytest

from moegauge.records.decision import reason
from moegauge.records.exactness import (
    CorpusResult,
    CoverageRow,
    ExactnessOutcome,
    ExactnessResult,
    Kill,
    KillCheck,
    Mismatch,
    MismatchClass,
    MutationResult,
    Run,
    TorchEqual,
    WordComparison,
    WordCounts,
    WrittenCheck,
)

WHY = reason("WORDS_DIFFER", "Something differs.")
COUNTS = WordCounts(num_positive_zero=0, num_negative_zero=0, num_subnormal=0, num_normal=1, num_infinity=0, num_nan=0)
MISMATCH = Mismatch(
    num_words=1,
    first_index=(0, 7),
    left_word="0x3F80",
    right_word="0x3F81",
    kind=MismatchClass.TIE,
    num_by_class={MismatchClass.TIE: 1},
)
KILL = Kill(mutant="a", fixture="b", boundary="final", first_index=(0,), expected_word="0x0000", found_word="0x8000")


def comparison(left_digest: str, right_digest: str, mismatch: Mismatch | None) -> WordComparison:
    return WordComparison(
        fixture="one",
        boundary="final",
        left=Run.ORACLE,
        right=Run.CANDIDATE,
        left_digest=left_digest,
        right_digest=right_digest,
        left_counts=COUNTS,
        right_counts=COUNTS,
        torch_equal=TorchEqual.NOT_ASKED,
        mismatch=mismatch,
    )


def test_equal_digests_with_a_mismatch_or_other_ones_without_are_refused() -> None:
    with pytest.raises(ValueError, match="words are equal exactly where their digests are"):
        comparison("a", "a", MISMATCH)
    with pytest.raises(ValueError, match="words are equal exactly where their digests are"):
        comparison("a", "b", None)


@pytest.mark.parametrize("change", [{"num_words": 0, "num_by_class": {}}, {"num_words": 2}, {"right_word": "0x3F80"}])
def test_a_mismatch_of_no_words_or_of_classes_that_do_not_add_up_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a mismatch has at least one word"):
        msgspec.structs.replace(MISMATCH, **change)


def test_a_comparison_reads_back_as_it_was_written() -> None:
    found = comparison("a", "b", MISMATCH)
    assert msgspec.json.decode(msgspec.json.encode(found), type=WordComparison) == found


def test_an_unwritten_count_without_an_index_is_refused() -> None:
    with pytest.raises(ValueError, match="an unwritten word has an index"):
        WrittenCheck(fixture="one", run=Run.CANDIDATE, boundary="final", num_unwritten=1, first_index=None)


def test_an_exact_result_with_a_reason_or_another_one_without_is_refused() -> None:
    for outcome, reasons in ((ExactnessOutcome.EXACT, (WHY,)), (ExactnessOutcome.DIFFERS, ())):
        with pytest.raises(ValueError, match="an outcome other than EXACT has a reason"):
            ExactnessResult(comparisons=(), inputs=(), written=(), outcome=outcome, reasons=reasons)


def test_a_kill_that_was_not_found_as_registered_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="a kill that was found as registered"):
        KillCheck(mutant="a", breaks="b", registered=KILL, found=None, reason=None)
    with pytest.raises(ValueError, match="a kill that was found as registered"):
        KillCheck(mutant="a", breaks="b", registered=KILL, found=KILL, reason=WHY)


def test_results_without_checks_cannot_pass() -> None:
    with pytest.raises(ValueError, match="an empty one does not pass"):
        MutationResult(checks=(), passed=True, reasons=())
    with pytest.raises(ValueError, match="an empty one does not pass"):
        CorpusResult(families=(), rows=(), passed=True, reasons=())


def test_a_result_that_failed_needs_a_reason() -> None:
    row = CoverageRow(what="words", num_covered=0, num_required=1)
    with pytest.raises(ValueError, match="a result that did not pass has a reason"):
        CorpusResult(families=(), rows=(row,), passed=False, reasons=())
