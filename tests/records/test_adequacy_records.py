"""Adequacy records that say two things at once cannot be built."""

from __future__ import annotations

import pytest

from moegauge.records.adequacy import CorpusResult, CoverageRow, Kill, KillCheck, MutationResult
from moegauge.records.decision import reason

WHY = reason("WORDS_DIFFER", "Something differs.")
KILL = Kill(mutant="a", fixture="b", boundary="final", first_index=(0,), expected_word="0x0000", found_word="0x8000")


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
