"""Whether two kernels give the same bits: every planned check has to be there, once, and pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from moegauge.gate.word_comparison import Pair
from moegauge.records.decision import Reason, reason
from moegauge.records.exactness import (
    ExactnessOutcome,
    ExactnessResult,
    InputCheck,
    Run,
    WordComparison,
    WrittenCheck,
)

Check = WordComparison | InputCheck | WrittenCheck
Key = tuple[str, ...]


@dataclass(frozen=True)
class ExactnessPlan:
    """Every check that a campaign owes.

    Attributes:
        fixtures: names; each owes every check below.
        pairs: comparisons of words.
        inputs: runs around which the inputs are digested.
        written: (run, boundary) of the outputs that are poisoned.
    """

    fixtures: tuple[str, ...]
    pairs: tuple[Pair, ...]
    inputs: tuple[Run, ...]
    written: tuple[tuple[Run, str], ...]


def judge_exactness(
    plan: ExactnessPlan,
    *,
    comparisons: Sequence[WordComparison],
    inputs: Sequence[InputCheck],
    written: Sequence[WrittenCheck],
) -> ExactnessResult:
    """Hold the checks that were made against those that were planned.

    Every planned check has to be there once and pass. Failures in which the candidate has no part come first: a
    candidate is not judged by an incumbent that does not repeat or by an oracle that does not fit.
    """
    checks: list[Check] = [*comparisons, *inputs, *written]
    incomplete = _incompleteness(plan, [_key(check) for check in checks])
    failed = [check for check in checks if not check.passed]
    others = [_failure(check) for check in failed if not _concerns_candidate(check)]
    candidate = [_failure(check) for check in failed if _concerns_candidate(check)]
    if incomplete:
        outcome = ExactnessOutcome.INCOMPLETE
    elif others:
        outcome = ExactnessOutcome.NOT_EVALUABLE
    else:
        outcome = ExactnessOutcome.DIFFERS if candidate else ExactnessOutcome.EXACT
    return ExactnessResult(
        comparisons=tuple(comparisons),
        inputs=tuple(inputs),
        written=tuple(written),
        outcome=outcome,
        reasons=(*incomplete, *others, *candidate),
    )


def _key(check: Check) -> Key:
    if isinstance(check, WordComparison):
        return ("words", check.fixture, check.boundary, check.left, check.right)
    if isinstance(check, InputCheck):
        return ("inputs", check.fixture, check.run)
    return ("written", check.fixture, check.boundary, check.run)


def _planned(plan: ExactnessPlan) -> list[Key]:
    keys: list[Key] = []
    for fixture in plan.fixtures:
        keys += [("words", fixture, pair.boundary, pair.left, pair.right) for pair in plan.pairs]
        keys += [("inputs", fixture, run) for run in plan.inputs]
        keys += [("written", fixture, boundary, run) for run, boundary in plan.written]
    return keys


def _incompleteness(plan: ExactnessPlan, found: list[Key]) -> list[Reason]:
    empty = [name for name in ("fixtures", "pairs", "inputs", "written") if not getattr(plan, name)]
    if empty or not any(pair.left.is_candidate or pair.right.is_candidate for pair in plan.pairs):
        what = ", ".join(empty) or "pairs with the candidate"
        return [reason("NO_CHECKS", f"The plan has no {what}, so nothing was shown.")]
    planned = _planned(plan)
    reasons = []
    missing = sorted(set(planned) - set(found))
    if missing:
        reasons.append(
            reason("CHECK_MISSING", f"{len(missing)} planned checks were not made, {_say(missing[0])} first.")
        )
    wanted = set(planned)
    odd = sorted(key for key, times in Counter(found).items() if times > 1 or key not in wanted)
    if odd:
        reasons.append(
            reason("CHECK_NOT_PLANNED", f"{len(odd)} checks are not planned or came twice, {_say(odd[0])} first.")
        )
    return reasons


def _say(key: Key) -> str:
    return " / ".join(key)


def _concerns_candidate(check: Check) -> bool:
    if isinstance(check, WordComparison):
        return check.left.is_candidate or check.right.is_candidate
    return check.run.is_candidate and not (isinstance(check, InputCheck) and _is_foreign(check))


def _is_foreign(check: InputCheck) -> bool:
    """The input was another one from the start."""
    return check.before_digest != check.registered_digest


def _failure(check: Check) -> Reason:
    if isinstance(check, InputCheck):
        if _is_foreign(check):
            return reason(
                "INPUT_NOT_REGISTERED", f"{check.fixture}: the input of {check.run} is not the registered one."
            )
        return reason("INPUT_CHANGED", f"{check.fixture}: the input of {check.run} is not the same afterwards.")
    if isinstance(check, WrittenCheck):
        return reason(
            "NOT_FULLY_WRITTEN",
            f"{check.fixture}: {check.run} left {check.num_unwritten} words of {check.boundary} unwritten, "
            f"{check.first_index} first.",
        )
    where = f"{check.fixture} at the {check.boundary} boundary: {check.left} against {check.right}"
    if check.mismatch is None:
        return reason("TORCH_UNEQUAL", f"{where}: the words are equal, but torch.equal says they are not.")
    found = check.mismatch
    return reason(
        "WORDS_DIFFER",
        f"{where}: {found.num_words} words differ, at {found.first_index} first, {found.left_word} against "
        f"{found.right_word} ({found.kind}).",
    )
