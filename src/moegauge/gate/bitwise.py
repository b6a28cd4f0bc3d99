"""Exactness of a run, judged from what it observed: coverage of the frozen corpus, then every word.

Raw bits decide. The incumbent comes first: where it does not repeat itself, or the oracle is not what it gives,
nothing can be said of the candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moegauge.records.decision import Reason, reason
from moegauge.records.lane import FixtureDigests
from moegauge.records.observation import (
    ArmName,
    BoundaryWords,
    ExactnessObservation,
    FixtureObservation,
    Mismatch,
    RepeatObservation,
)
from moegauge.records.subject import Subject

MOMENTS = ("pre", "post")
Frozen = Mapping[str, FixtureDigests]


def missing_observations(
    subject: Subject,
    frozen: Frozen,
    seen: Sequence[ExactnessObservation],
    repeats: Sequence[RepeatObservation],
) -> list[Reason]:
    """What the corpus and the repeats ask for and the run did not observe, or observed twice or besides."""
    found = []
    for moment in MOMENTS:
        names = [fixture.fixture for one in seen if one.moment == moment for fixture in one.fixtures]
        if sorted(names) != sorted(frozen):
            missing = sorted(set(frozen) - set(names)) or sorted(names)
            found.append(
                reason(
                    "OBSERVATION_MISSING",
                    f"{subject.name}, {moment}: {len(names)} fixtures were compared; {len(frozen)} are frozen "
                    f"({missing[0]} is missing or there twice).",
                )
            )
    wanted = [(fixture, arm) for fixture in subject.exactness.repeat_fixtures for arm in ("incumbent", "candidate")]
    if sorted((one.fixture, str(one.arm)) for one in repeats) != sorted(wanted):
        found.append(reason("OBSERVATION_MISSING", f"{subject.name}: repeats of {len(repeats)} of {len(wanted)} arms."))
    found += [
        reason(
            "OBSERVATION_MISSING",
            f"{subject.name}, {one.fixture}: {sum(one.digests.values())} repeats of the {one.arm}; "
            f"{subject.exactness.num_repeats} are registered.",
        )
        for one in repeats
        if sum(one.digests.values()) != subject.exactness.num_repeats
    ]
    return found


def exactness_failures(
    subject: Subject,
    frozen: Frozen,
    seen: Sequence[ExactnessObservation],
    repeats: Sequence[RepeatObservation],
) -> list[Reason]:
    """Every reason against, in the order they were observed."""
    found: list[Reason] = []
    for one in seen:
        for fixture in one.fixtures:
            where = f"{subject.name}, {one.moment}, {fixture.fixture}"
            found += _fixture(subject, frozen.get(fixture.fixture), fixture, where)
    for repeat in repeats:
        found += _repeat(subject, repeat)
    found += _between_arms(subject, repeats)
    found += _between_moments(subject, seen)
    return found


def _fixture(subject: Subject, frozen: FixtureDigests | None, seen: FixtureObservation, where: str) -> Iterable[Reason]:
    if frozen is None:
        yield reason("EVIDENCE_DAMAGED", f"{where}: the fixture is not in the source freeze.")
        return
    if seen.inputs_before != frozen.inputs:
        yield reason("INPUT_NOT_REGISTERED", f"{where}: the inputs on the device are not the frozen ones.")
    if seen.inputs_after != seen.inputs_before:
        yield reason("INPUT_CHANGED", f"{where}: an arm changed its inputs.")
    if set(seen.boundaries) != {one.name for one in subject.boundaries}:
        yield reason("OBSERVATION_MISSING", f"{where}: compared at {sorted(seen.boundaries)}.")
    for boundary, words in seen.boundaries.items():
        yield from _words(subject, frozen, words, boundary, f"{where}, {boundary}")


def _words(
    subject: Subject, frozen: FixtureDigests, words: BoundaryWords, boundary: str, where: str
) -> Iterable[Reason]:
    incumbent, candidate = words.incumbent, words.candidate
    if _contradicts(words):
        yield reason("EVIDENCE_DAMAGED", f"{where}: digests and comparison contradict each other.")
    if incumbent[0] != incumbent[1]:
        yield reason(
            "INCUMBENT_NOT_REPEATABLE",
            _unwritten(words, "incumbent", where)
            or f"{where}: two calls of the incumbent gave different words, or left some.",
        )
    if subject.exactness.incumbent_vs_oracle == "equal" and incumbent[0] != frozen.oracle.get(boundary):
        yield reason("ORACLE_INVALID", f"{where}: the incumbent does not give the oracle's words.")
    if candidate[0] != candidate[1]:
        yield reason(
            "NOT_FULLY_WRITTEN",
            _unwritten(words, "candidate", where)
            or f"{where}: words of the candidate depend on what its output held before.",
        )
    if words.mismatch is not None:
        yield reason("WORDS_DIFFER", f"{where}: {_mismatch(words.mismatch)}")
    elif words.torch_equal is False:
        yield reason("TORCH_UNEQUAL", f"{where}: torch.equal calls equal words different.")


def _contradicts(words: BoundaryWords) -> bool:
    """Whether digests and comparison cannot both be true."""
    unwritten = words.unwritten or {}
    calls = {"incumbent": words.incumbent, "candidate": words.candidate}
    return (
        (words.incumbent[0] != words.candidate[0]) != (words.mismatch is not None)
        or words.contains_nan != (words.torch_equal is None)
        or any(len(set(calls[arm])) == 1 for arm in unwritten)
    )


def _unwritten(words: BoundaryWords, arm: ArmName, where: str) -> str | None:
    """What an arm left unwritten; None where nothing was seen to be, or nobody looked."""
    one = (words.unwritten or {}).get(arm)
    if one is None:
        return None
    return f"{where}: the {arm} left {one.num_words} words unwritten, first at {list(one.first_index)}."


def _mismatch(one: Mismatch) -> str:
    """Count, first index, both words and class; counts of the classes where there are several."""
    counts = one.num_by_class or {}
    classes = f"; {', '.join(f'{num} {name}' for name, num in counts.items())}" if len(counts) > 1 else ""
    return (
        f"{one.num_words} words differ, first at {list(one.first_index)}: incumbent {one.incumbent_word}, "
        f"candidate {one.candidate_word} ({one.word_class}{classes})."
    )


def _repeat(subject: Subject, seen: RepeatObservation) -> Iterable[Reason]:
    if len(seen.digests) > 1:
        code = "INCUMBENT_NOT_REPEATABLE" if seen.arm == "incumbent" else "CANDIDATE_NOT_REPEATABLE"
        yield reason(
            code,
            f"{subject.name}, {seen.fixture}: {sum(seen.digests.values())} identical calls of the {seen.arm} gave "
            f"{len(seen.digests)} different outputs.",
        )


def _between_arms(subject: Subject, repeats: Sequence[RepeatObservation]) -> Iterable[Reason]:
    """Both arms repeat the same words: a candidate may not repeat wrong ones."""
    by_fixture: dict[str, dict[str, set[str]]] = {}
    for one in repeats:
        by_fixture.setdefault(one.fixture, {}).setdefault(str(one.arm), set()).update(one.digests)
    for fixture, arms in by_fixture.items():
        each_repeats = all(len(digests) == 1 for digests in arms.values())
        if each_repeats and len(set().union(*arms.values())) > 1:
            yield reason(
                "WORDS_DIFFER", f"{subject.name}, {fixture}: the candidate repeats other words than the incumbent."
            )


def _between_moments(subject: Subject, seen: Sequence[ExactnessObservation]) -> Iterable[Reason]:
    """The incumbent gives the same words before and after timing."""
    first: dict[tuple[str, str], str] = {}
    for one in seen:
        for fixture in one.fixtures:
            for boundary, words in fixture.boundaries.items():
                before = first.setdefault((fixture.fixture, boundary), words.incumbent[0])
                if before != words.incumbent[0]:
                    yield reason(
                        "INCUMBENT_NOT_REPEATABLE",
                        f"{subject.name}, {fixture.fixture}, {boundary}: other words after timing than before it.",
                    )
