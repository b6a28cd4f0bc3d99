"""What stage 0, audits and a source freeze have to show. Each function returns the reasons against; none is a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moegauge.records.decision import Reason, reason
from moegauge.records.lane import AuditStep, CheckResult, FixtureDigests, FreezeStep, SourceState, Stage0Step
from moegauge.records.registration import Registration
from moegauge.records.subject import Subject

MIN_AUDITS = 2
COMPILE = "compile"
"""Name of the engine's own check: every changed Python file parses and compiles."""


def command_check(words: Sequence[str]) -> str:
    """Name of the check that a registered command becomes."""
    return f"command {' '.join(words)}"


def stage0_failures(registration: Registration, step: Stage0Step) -> tuple[Reason, ...]:
    """Everything that keeps a stage 0 from being a pass."""
    wanted = [
        COMPILE,
        *(command_check(words) for words in registration.stage0.commands),
        *registration.stage0.required_checks,
    ]
    return (
        *_device_libraries(step),
        *_sources(registration, step.sources),
        *_checks(wanted, step.checks),
        *(why for subject in registration.subjects for why in _adequacy(subject, step)),
    )


def _device_libraries(step: Stage0Step) -> Iterable[Reason]:
    for name in step.device_libraries:
        yield reason("DEVICE_LIBRARY_LOADED", f"{name} was loaded; stage 0 runs without any device library.")


def _sources(registration: Registration, found: Sequence[SourceState]) -> Iterable[Reason]:
    registered = {one.name: one for one in registration.sources}
    if [one.name for one in found] != list(registered):
        yield reason("CHECK_MISSING", "The sources of stage 0 are not those of the registration.")
        return
    for state in found:
        for path in state.uncommitted:
            yield reason("TREE_DIRTY", f"{state.name}: {path} differs from commit {state.commit} or is not tracked.")
        for path in sorted(set(state.changed_paths) - set(registered[state.name].changed_paths)):
            yield reason(
                "OUTSIDE_CHANGED",
                f"{state.name}: {path} differs from the starting commit, and is not in the registered changed_paths.",
            )


def _checks(wanted: Sequence[str], found: Sequence[CheckResult]) -> Iterable[Reason]:
    given = {one.name: one for one in found}
    if not found:
        yield reason("NO_CHECKS", "No check was run; an empty set of checks proves nothing.")
    if len(given) != len(found):
        yield reason("CHECK_FAILED", "Two checks have one name.")
    for name in wanted:
        if name not in given:
            yield reason("CHECK_MISSING", f"{name}: required, and not run.")
    for one in found:
        if not one.passed:
            yield reason("CHECK_FAILED", f"{one.name}: {one.sentence}")
        elif one.num_cases < 1:
            yield reason("NO_CHECKS", f"{one.name}: held against no case at all.")


def _adequacy(subject: Subject, step: Stage0Step) -> Iterable[Reason]:
    """Every wrong candidate was killed as registered, and the corpus covers what is registered."""
    result = step.mutations.get(subject.name)
    counted = step.coverage.get(subject.name)
    if result is None or counted is None:
        yield reason("CHECK_MISSING", f"{subject.name}: mutants and coverage were not run.")
        return
    if subject.kills or result.checks:  # without either there is no wrong candidate to tell
        yield from (reason(why.code, f"{subject.name}: {why.sentence}") for why in result.reasons)
    found = [one.found for one in result.checks]
    for kill in subject.kills:
        if kill not in found and result.passed:
            yield reason("MUTANT_MISSING", f"{subject.name}: the registered kill of {kill.mutant} was not made.")
    for bound in subject.coverage:
        if bound.what not in counted:
            yield reason("COVERAGE_SHORT", f"{subject.name}, {bound.what}: not counted; {bound.at_least:,} needed.")
        elif counted[bound.what] < bound.at_least:
            short = f"{counted[bound.what]:,} of {bound.at_least:,}"
            yield reason("COVERAGE_SHORT", f"{subject.name}, {bound.what}: {short}.")


def audit_failures(audits: Sequence[AuditStep]) -> tuple[Reason, ...]:
    """Everything that keeps the audits from sufficing for a source freeze."""
    found = []
    if len({one.auditor for one in audits}) < MIN_AUDITS:
        found.append(
            reason(
                "AUDITS_MISSING",
                f"{len({one.auditor for one in audits})} auditors; {MIN_AUDITS} independent audits are needed.",
            )
        )
    for audit in audits:
        found += [
            reason("FINDING_OPEN", f"{audit.auditor}: {finding.sentence}")
            for finding in audit.findings
            if finding.closing_commit is None
        ]
    return tuple(found)


def freeze_failures(registration: Registration, freeze: FreezeStep) -> tuple[Reason, ...]:
    """Everything that keeps a freeze from covering the registered corpus."""
    found: list[Reason] = []
    for subject in registration.subjects:
        fixtures = freeze.fixtures.get(subject.name, {})
        for family in subject.corpus:
            names = [name for name in fixtures if name.partition("/")[0] == family.name]
            if len(names) != family.num_fixtures:
                found.append(
                    reason(
                        "CORPUS_INCOMPLETE",
                        f"{subject.name}, {family.name}: {len(names)} fixtures; {family.num_fixtures} are registered.",
                    )
                )
        found += _strays(subject.name, fixtures, {one.name for one in subject.corpus})
        found += [
            reason("CORPUS_INCOMPLETE", f"{subject.name}: the repeat fixture {name} is not in the corpus.")
            for name in subject.exactness.repeat_fixtures
            if name not in fixtures
        ]
        boundaries = {one.name for one in subject.boundaries}
        found += [
            reason("CORPUS_INCOMPLETE", f"{subject.name}, {name}: the oracle has {sorted(fixture.oracle)}.")
            for name, fixture in fixtures.items()
            if set(fixture.oracle) != boundaries
        ]
    return tuple(found)


def _strays(subject: str, fixtures: Mapping[str, FixtureDigests], families: set[str]) -> list[Reason]:
    return [
        reason("CORPUS_INCOMPLETE", f"{subject}: {name} is of no registered family.")
        for name in fixtures
        if name.partition("/")[0] not in families
    ]
