"""Mutation adequacy on a toy sequence: every way in which the check has to fail."""

from __future__ import annotations

import numpy as np
import pytest

from moegauge.errors import MisuseError
from moegauge.gate.mutation import Mutant, Outputs, check_mutation_adequacy
from moegauge.records.adequacy import Kill, MutationResult

Toy = np.ndarray
FIXTURES: dict[str, Toy] = {
    "plain": np.array([0x3F80, 0x3F81], dtype=np.uint16),
    "edge": np.array([0x3F80, 0x8000], dtype=np.uint16),
}


def oracle(fixture: Toy) -> Outputs:
    return {"final": fixture}


def lost_sign(fixture: Toy) -> Outputs:
    return {"final": fixture & np.uint16(0x7FFF)}


def no_final(fixture: Toy) -> Outputs:
    return {"routed": fixture}


MUTANT = Mutant("lost-sign", "drops the sign", lost_sign)
KILL = Kill(
    mutant="lost-sign", fixture="edge", boundary="final", first_index=(1,), expected_word="0x8000", found_word="0x0000"
)


def checked(mutants: list[Mutant[Toy]], kills: list[Kill], fixtures: dict[str, Toy] = FIXTURES) -> MutationResult:
    return check_mutation_adequacy(mutants, kills, fixture=fixtures.get, oracle=oracle, dtypes={"final": "bfloat16"})


def codes(result: MutationResult) -> list[str]:
    return [one.code for one in result.reasons]


def test_a_mutant_that_is_killed_as_registered_passes() -> None:
    result = checked([MUTANT], [KILL])
    assert (result.passed, codes(result)) == (True, [])
    assert result.checks[0].found == KILL


def test_a_mutant_whose_fixture_does_not_show_it_survives_and_fails() -> None:
    elsewhere = Kill(
        mutant="lost-sign", fixture="plain", boundary="final", first_index=(1,), expected_word="0x1", found_word="0x2"
    )
    result = checked([MUTANT], [elsewhere])
    assert (result.passed, codes(result)) == (False, ["MUTANT_SURVIVED"])


def test_a_mutant_that_never_gives_the_registered_boundary_survives_and_fails() -> None:
    result = checked([Mutant("lost-sign", "stores something else", no_final)], [KILL])
    assert (result.passed, codes(result)) == (False, ["MUTANT_SURVIVED"])


def test_taking_the_killing_fixture_away_fails() -> None:
    result = checked([MUTANT], [KILL], {"plain": FIXTURES["plain"]})
    assert (result.passed, codes(result)) == (False, ["KILLER_MISSING"])


@pytest.mark.parametrize(
    ("first_index", "expected_word", "found_word"),
    [((0,), "0x8000", "0x0000"), ((1,), "0x8001", "0x0000"), ((1,), "0x8000", "0x0001")],
)
def test_a_kill_at_another_index_or_with_other_words_fails(
    first_index: tuple[int], expected_word: str, found_word: str
) -> None:
    other = Kill(
        mutant="lost-sign",
        fixture="edge",
        boundary="final",
        first_index=first_index,
        expected_word=expected_word,
        found_word=found_word,
    )
    result = checked([MUTANT], [other])
    assert (result.passed, codes(result)) == (False, ["KILL_DIFFERS"])


def test_a_mutant_without_a_registered_kill_fails() -> None:
    result = checked([MUTANT, Mutant("other", "the same", lost_sign)], [KILL])
    assert (result.passed, codes(result)) == (False, ["KILL_NOT_REGISTERED"])


def test_a_kill_of_no_mutant_fails() -> None:
    stray = Kill(
        mutant="gone", fixture="edge", boundary="final", first_index=(1,), expected_word="0x8000", found_word="0x0000"
    )
    result = checked([MUTANT], [KILL, stray])
    assert (result.passed, codes(result)) == (False, ["MUTANT_MISSING"])


def test_no_mutants_at_all_fail() -> None:
    result = checked([], [])
    assert (result.passed, codes(result)) == (False, ["NO_CHECKS"])


def test_two_mutants_of_one_name_are_refused() -> None:
    with pytest.raises(MisuseError, match="mutants of the lane"):
        checked([MUTANT, MUTANT], [KILL])


def test_two_kills_of_one_mutant_are_refused() -> None:
    with pytest.raises(MisuseError, match="kills of the lane"):
        checked([MUTANT], [KILL, KILL])
