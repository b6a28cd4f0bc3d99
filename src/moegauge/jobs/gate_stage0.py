"""moegauge gate check, audit, freeze: stage 0, and the sources, tool and fixtures as every later step finds them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moegauge.adapters.git import source_state
from moegauge.evidence.toml import read_toml
from moegauge.gate.checks import command_check
from moegauge.jobs.gate_processes import FIXED, stage0_answer
from moegauge.jobs.lane_code import code_digests, source_paths, tool_digest
from moegauge.jobs.lane_state import OpenLane
from moegauge.records.lane import AuditFinding, AuditStep, CheckResult, FreezeStep, SourceState, Stage0Step
from moegauge.records.registration import Registration
from moegauge.records.verdict import LaneStatus


class Audit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An audit as its author writes it, in TOML; commits default to what stage 0 saw."""

    auditor: str
    text: str
    read: tuple[str, ...]
    findings: tuple[AuditFinding, ...] = ()
    commits: dict[str, str] | None = None


def check(lane: OpenLane) -> LaneStatus:
    """Run stage 0 over the sources as they stand, and keep the result, a failed one too."""
    lane.gate.require(Stage0Step)
    lane.refuse_problems()
    registration = lane.gate.registration
    answer = stage0_answer(registration, lane.folder, "checks")
    step = lane.new_step(
        Stage0Step,
        sources=source_states(registration, lane.folder),
        checks=(*answer.checks, *_commands(registration, lane.folder)),
        mutations=answer.mutations,
        coverage=answer.coverage,
        device_libraries=answer.device_libraries,
    )
    return lane.take(step)


def source_states(registration: Registration, folder: Path) -> tuple[SourceState, ...]:
    """State of every source."""
    paths = source_paths(registration, folder)
    return tuple(
        source_state(one.name, paths[one.name], starting_commit=one.starting_commit, lane=folder)
        for one in registration.sources
    )


def _commands(registration: Registration, folder: Path) -> Iterable[CheckResult]:
    """The registered commands, run in the first source's folder."""
    first = next(iter(source_paths(registration, folder).values()))
    for words in registration.stage0.commands:
        try:
            done = subprocess.run(  # noqa: S603 - the registered words
                list(words), cwd=first, capture_output=True, text=True, check=False, env={**os.environ, **FIXED}
            )
            said = (done.stdout + done.stderr).strip().splitlines()
            ending = f"status {done.returncode}" + (f": {said[-1]}" if said else "")
            passed = done.returncode == 0
        except OSError as error:
            passed, ending = False, error.strerror or str(error)
        yield CheckResult(name=command_check(words), passed=passed, num_cases=1, sentence=ending)


def audit(lane: OpenLane, path: Path) -> LaneStatus:
    """Take an audit that somebody wrote."""
    lane.gate.require(AuditStep)
    lane.refuse_problems()
    written = read_toml(path, Audit)
    commits = written.commits
    if commits is None:
        commits = {one.name: one.commit for one in source_states(lane.gate.registration, lane.folder)}
    step = lane.new_step(
        AuditStep,
        auditor=written.auditor,
        text=written.text,
        commits=commits,
        read=written.read,
        findings=written.findings,
    )
    return lane.take(step)


def freeze(lane: OpenLane) -> LaneStatus:
    """Freeze sources, tool, code and fixtures."""
    lane.gate.require(FreezeStep)
    lane.refuse_problems()
    registration = lane.gate.registration
    states = source_states(registration, lane.folder)
    step = lane.new_step(
        FreezeStep,
        commits={one.name: one.commit for one in states},
        tool_digest=tool_digest(),
        code=code_digests(registration, lane.folder),
        fixtures=stage0_answer(registration, lane.folder, "fixtures").fixtures,
    )
    return lane.take(step)
