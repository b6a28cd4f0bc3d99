"""Whether the corpus can tell a wrong kernel from a right one: every registered wrong one is killed where it says.

A mutant is a candidate that is wrong in one known way. Its kill names the fixture, the boundary, the first index and
both words, so that the table is evidence and not an assertion: the comparison that judges real candidates has to find
exactly that. A mutant without a registered kill, or whose fixture is gone, fails the whole check; so does an empty
set of mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from moegauge import errors
from moegauge.gate.words import Words, first_mismatch
from moegauge.records.adequacy import Kill, KillCheck, MutationResult
from moegauge.records.decision import Reason, reason

FixtureT = TypeVar("FixtureT")

Outputs = Mapping[str, Words]
"""Words by boundary."""


@dataclass(frozen=True)
class Mutant(Generic[FixtureT]):
    """A candidate that is wrong on purpose.

    Attributes:
        name: stable name, unique among the mutants of a lane.
        breaks: what it does instead of the literal sequence, in a few words.
        run: the words it gives, by boundary; a boundary that it never rounds to is absent.
    """

    name: str
    breaks: str
    run: Callable[[FixtureT], Outputs]


def check_mutation_adequacy(
    mutants: Sequence[Mutant[FixtureT]],
    kills: Sequence[Kill],
    *,
    fixture: Callable[[str], FixtureT | None],
    oracle: Callable[[FixtureT], Outputs],
    dtypes: Mapping[str, str],
) -> MutationResult:
    """Run every mutant on the fixture that is registered to kill it, and compare as real candidates are compared.

    Args:
        mutants: every wrong candidate of the lane.
        kills: one registered kill for each of them.
        fixture: the fixture of a name; None where the corpus has none.
        oracle: the right words of a fixture, by boundary.
        dtypes: number format of each boundary.

    Raises:
        MisuseError: two mutants of one name, or two kills of one mutant.
    """
    registered = _by_mutant(kills)
    _refuse_twins("mutants", [mutant.name for mutant in mutants])
    checks = tuple(_check(mutant, registered.get(mutant.name), fixture, oracle, dtypes) for mutant in mutants)
    reasons = [check.reason for check in checks if check.reason is not None]
    reasons += [
        reason("MUTANT_MISSING", f"A kill of {name} is registered, but there is no such mutant.")
        for name in sorted(set(registered) - {mutant.name for mutant in mutants})
    ]
    if not checks:
        reasons.append(reason("NO_CHECKS", "There are no mutants, so nothing shows that a wrong kernel would be seen."))
    return MutationResult(checks=checks, passed=not reasons, reasons=tuple(reasons))


def found_kill(
    mutant: Mutant[FixtureT], registered: Kill, fixture: FixtureT, oracle: Outputs, dtypes: Mapping[str, str]
) -> Kill | None:
    """What the comparison finds of a mutant on its fixture and boundary; None where it finds nothing."""
    boundary = registered.boundary
    words = mutant.run(fixture).get(boundary)
    if words is None or boundary not in dtypes:
        return None
    mismatch = first_mismatch(dtypes[boundary], oracle[boundary], words)
    if mismatch is None:
        return None
    return Kill(
        mutant=mutant.name,
        fixture=registered.fixture,
        boundary=boundary,
        first_index=mismatch.first_index,
        expected_word=mismatch.incumbent_word,
        found_word=mismatch.candidate_word,
    )


def _check(
    mutant: Mutant[FixtureT],
    registered: Kill | None,
    fixture: Callable[[str], FixtureT | None],
    oracle: Callable[[FixtureT], Outputs],
    dtypes: Mapping[str, str],
) -> KillCheck:
    if registered is None:
        why = reason("KILL_NOT_REGISTERED", f"No fixture is registered to kill {mutant.name}.")
        return KillCheck(mutant=mutant.name, breaks=mutant.breaks, registered=None, found=None, reason=why)
    built = fixture(registered.fixture)
    if built is None:
        why = reason(
            "KILLER_MISSING", f"The corpus has no fixture {registered.fixture}, which has to kill {mutant.name}."
        )
        return KillCheck(mutant=mutant.name, breaks=mutant.breaks, registered=registered, found=None, reason=why)
    found = found_kill(mutant, registered, built, oracle(built), dtypes)
    return KillCheck(
        mutant=mutant.name,
        breaks=mutant.breaks,
        registered=registered,
        found=found,
        reason=_failure(mutant.name, registered, found),
    )


def _failure(name: str, registered: Kill, found: Kill | None) -> Reason | None:
    if found is None:
        where = f"{registered.fixture} at the {registered.boundary} boundary"
        return reason("MUTANT_SURVIVED", f"{name} gives every word of {where}.")
    if found != registered:
        return reason(
            "KILL_DIFFERS",
            f"{name} is killed at {found.first_index} with {found.expected_word} against {found.found_word}; "
            f"registered is {registered.first_index} with {registered.expected_word} against {registered.found_word}.",
        )
    return None


def _by_mutant(kills: Sequence[Kill]) -> dict[str, Kill]:
    _refuse_twins("kills", [kill.mutant for kill in kills])
    return {kill.mutant: kill for kill in kills}


def _refuse_twins(what: str, names: Sequence[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise errors.MisuseError(
            where=f"{what} of the lane",
            expected="each mutant once",
            found=f"{', '.join(twins)} more than once",
            remedy="Give each mutant a name of its own and one registered kill.",
        )
