"""moegauge profile run, all ranks of an invocation at once: a pass is written for all ranks, or not at all.

Each rank's process checks its own output against float64 before anything is timed, and again after each chunk. Nothing
of a pass is written before all of its chunks are there, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import msgspec

from moegauge import errors
from moegauge.adapters.profile_db import ProfileDb, Sample
from moegauge.adapters.runners.work import RunCondition
from moegauge.jobs.failed_rows import FailedRows
from moegauge.jobs.fill import Filled, Group, pass_record
from moegauge.jobs.kernel_failure import KernelFailed, first_failures
from moegauge.jobs.pass_facts import PassFacts
from moegauge.jobs.pass_samples import Timed, sample_of
from moegauge.jobs.profile_specs import InputSource, Spec
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.rank_crew import RankCrew, WrongOutput
from moegauge.jobs.rank_messages import Check, Describe, Described, Measure, Measured, Passed, Ready, sent
from moegauge.jobs.targets import Target, keyed, missing_targets
from moegauge.records.measurement import TOGETHER
from moegauge.records.profile import InputLabel, RowStatus


@dataclass(frozen=True)
class Invocation:
    """One invocation on every rank that has work in it: a target each, by rank."""

    targets: tuple[Target, ...]

    @property
    def place(self) -> tuple[int, int]:
        """(iteration, layer)."""
        return self.targets[0].spec.iteration, self.targets[0].spec.layer

    @cached_property
    def digests(self) -> frozenset[str]:
        """Digests of its keys."""
        return frozenset(target.digest for target in self.targets)

    def num_lacking(self, have: Mapping[str, int], num_passes: int) -> int:
        """Passes that are missing on the rank where most are."""
        return max(num_passes - min(have.get(digest, 0) for digest in self.digests), 0)


@dataclass(frozen=True)
class TogetherGroup:
    """Invocations that are measured together in one pass, in serving order, and how."""

    invocations: tuple[Invocation, ...]
    condition: RunCondition


def invocations_of(crew: RankCrew, groups: Sequence[Group]) -> list[TogetherGroup]:
    """Ask every rank how it would measure, and key what it measures.

    Args:
        crew: whose runners are made. groups: of the specs of all ranks.

    Raises:
        MisuseError: a condition that a rank cannot achieve, or ranks of one invocation that are launched differently.
        KernelFailed: a rank failed over it.
    """
    _refuse_mixed_modes(groups)
    found = []
    for group in groups:
        by_rank = _by_rank(group.specs)
        asked = {rank: Describe(group.condition, sent(specs)) for rank, specs in by_rank.items()}
        places: dict[tuple[int, int], list[Target]] = {}
        for rank, described in crew.ask(asked, Described).items():
            facts = described.facts | {"ranks": TOGETHER}
            for target in keyed(by_rank[rank], facts, described.config_digests, group.condition):
                places.setdefault((target.spec.iteration, target.spec.layer), []).append(target)
        invocations = tuple(Invocation(tuple(places[place])) for place in sorted(places))
        found.append(TogetherGroup(invocations, group.condition))
    return found


def fill_together(
    database: ProfileDb,
    source: InputSource,
    crew: RankCrew,
    runner: Ready,
    groups: Sequence[TogetherGroup],
    *,
    num_passes: int,
    force: bool = False,
    progress: Progress = silent,
) -> Filled:
    """Measure what is missing, as :func:`moegauge.jobs.fill.fill` does, on all ranks at once.

    An invocation is measured on all of its ranks where any of their rows lacks a pass.

    Args:
        database: open for writing. source: where the specs come from. crew: a process for each rank.
        runner: what each of them made. groups: what is wanted. num_passes, force, progress: see fill.

    Raises:
        Inconsistent: an output disagrees with the float64 reference, see fill. Incomplete: a pass that does not close.
    """
    have = {} if force else database.num_samples()
    todo = _todo(groups, have, num_passes)
    lacking = sum(one.num_lacking(have, num_passes) * len(one.targets) for ones in todo for one in ones)
    run = _Run(database, source, crew, runner, progress, FailedRows(database), lacking)
    run.check_first([one for ones in todo for one in ones])
    for number in range(num_passes):
        for ones, group in zip(todo, groups, strict=True):
            wanted = [one for one in ones if one.num_lacking(have, num_passes) > number]
            run.one_pass(wanted, group.condition, new_generation=force and number == 0)
    every = [target for group in groups for one in group.invocations for target in one.targets]
    left = missing_targets(database, every, num_passes=num_passes)
    num_rows = len({target.digest for target in every})
    return Filled(num_rows, run.num_measured, run.num_passes, len(left), tuple(run.failed.texts))


def _todo(groups: Sequence[TogetherGroup], have: Mapping[str, int], num_passes: int) -> list[list[Invocation]]:
    """Invocations that lack passes, by group; none whose every lacking row an earlier group measures."""
    todo: list[list[Invocation]] = []
    claimed: set[str] = set()
    for group in groups:
        mine = [one for one in group.invocations if _lacks(one, have, num_passes) - claimed]
        claimed |= {digest for one in mine for digest in one.digests}
        todo.append(mine)
    return todo


def _lacks(one: Invocation, have: Mapping[str, int], num_passes: int) -> set[str]:
    return {digest for digest in one.digests if have.get(digest, 0) < num_passes}


@dataclass
class _Run:
    """One run: what it measures with and into, and what it has done so far."""

    database: ProfileDb
    source: InputSource
    crew: RankCrew
    runner: Ready
    progress: Progress
    failed: FailedRows
    num_wanted: int
    num_measured: int = 0
    num_passes: int = 0
    num_checks: int = 0
    ended: bool = False
    measured: dict[str, Target] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)

    def check_first(self, todo: Sequence[Invocation]) -> None:
        """Refuse a runner that computes something else, on the smallest and largest work of each rank.

        An invocation that finds too little memory on a rank is left out on all; after any other failure nothing is
        measured.
        """
        for rank in sorted({target.spec.rank for one in todo for target in one.targets}):
            if self.ended:
                return
            mine = [t for one in self._kept(todo) for t in one.targets if t.spec.rank == rank]
            for target, failed in first_failures(mine, self._check):
                concerned = [one for one in todo if target.digest in one.digests]
                self.failed.record([target for one in concerned for target in one.targets], failed)
                self.left_out.add(target.digest)
                self.ended = failed.status != RowStatus.OUT_OF_MEMORY

    def one_pass(self, wanted: Sequence[Invocation], condition: RunCondition, *, new_generation: bool) -> None:
        """Measure one pass on all ranks, chunk by chunk, and write it; what a chunk fails with ends the run."""
        facts: dict[int, PassFacts] = {}
        samples: list[Sample] = []
        for chunk in _chunks(self._kept(wanted), self.runner.works_at_once):
            if self.ended:
                return
            try:
                measured = self._measured(chunk, condition)
            except KernelFailed as failed:
                self.failed.record([target for one in chunk for target in one.targets], failed)
                self.ended = True
                return
            for rank, (targets, one) in measured.items():
                facts.setdefault(rank, PassFacts()).add(one.before, one.after, one.instruments)
                timed = [Timed(*both) for both in zip(one.columns, one.kernel_names, strict=True)]
                samples += [sample_of(*both) for both in zip(targets, timed, strict=True)]
            self.progress("measuring", self.num_measured + len(samples), self.num_wanted)
        if samples:
            every = {name: value for rank, one in facts.items() for name, value in one.facts(f".rank{rank}").items()}
            record = pass_record(self.source, self.runner.name, every)
            spec, kept = self.source.spec, self.opened
            self.database.add_pass(record, [], samples, spec=spec, new_generation=new_generation, kept=kept)
            targets_by_digest = {target.digest: target for one in self._kept(wanted) for target in one.targets}
            self.opened |= set(targets_by_digest) if new_generation else set()
            self.measured |= targets_by_digest
            self.num_measured += len(samples)
            self.num_passes += 1

    def _measured(
        self, chunk: Sequence[Invocation], condition: RunCondition
    ) -> dict[int, tuple[list[Target], Measured]]:
        """What each rank measured of a chunk: its targets and their times."""
        self.num_checks += 1
        by_rank: dict[int, list[Target]] = {}
        for target in (target for one in chunk for target in one.targets):
            by_rank.setdefault(target.spec.rank, []).append(target)
        places = tuple(one.place for one in chunk)
        asked = {
            rank: Measure(condition, sent([target.spec for target in targets]), places, self.num_checks)
            for rank, targets in by_rank.items()
        }
        try:
            return {rank: (by_rank[rank], one) for rank, one in self.crew.ask(asked, Measured).items()}
        except WrongOutput as wrong:
            self._refuse_all([target for targets in by_rank.values() for target in targets], wrong)

    def _refuse_all(self, targets: Sequence[Target], wrong: WrongOutput) -> NoReturn:
        """Refuse a runner that was right before it was timed, and whatever this run measured on any rank."""
        self.failed.record_wrong_output(targets, self.measured.values(), str(wrong.error))
        raise wrong.error

    def _check(self, target: Target) -> None:
        (work,) = sent([target.spec])
        self.crew.ask({target.spec.rank: Check(work)}, Passed)

    def _kept(self, invocations: Iterable[Invocation]) -> list[Invocation]:
        return [one for one in invocations if not one.digests & self.left_out]


def _chunks(invocations: Sequence[Invocation], at_once: int) -> list[list[Invocation]]:
    """Whole iterations together, a new chunk once one has ``at_once`` invocations."""
    chunks: list[list[Invocation]] = []
    for one in invocations:
        full = bool(chunks) and len(chunks[-1]) >= at_once
        if not chunks or (full and one.place[0] != chunks[-1][-1].place[0]):
            chunks.append([])
        chunks[-1].append(one)
    return chunks


def _by_rank(specs: Iterable[Spec]) -> dict[int, list[Spec]]:
    found: dict[int, list[Spec]] = {}
    for spec in sorted(specs, key=lambda spec: (spec.rank, spec.iteration, spec.layer)):
        found.setdefault(spec.rank, []).append(spec)
    return found


def _refuse_mixed_modes(groups: Sequence[Group]) -> None:
    """Refuse ranks of one invocation that are in groups of different launch modes: they could not run together.

    Raises:
        MisuseError
    """
    seen: dict[tuple[int, int, str, InputLabel], dict[int, set[str]]] = {}
    for group in groups:
        for spec in group.specs:
            label = msgspec.structs.replace(spec.label, popularity_digest=None)
            by_rank = seen.setdefault((spec.iteration, spec.layer, spec.match.input_type, label), {})
            by_rank.setdefault(spec.rank, set()).add(group.condition.launch_mode)
    for (iteration, *_), by_rank in seen.items():
        modes = {rank: " and ".join(sorted(found)) for rank, found in by_rank.items()}
        if len(set(modes.values())) > 1:
            raise errors.MisuseError(
                where="--launch-mode as-served",
                expected="ranks that were launched alike",
                found=f"iteration {iteration}: {', '.join(f'{m} on rank {r}' for r, m in sorted(modes.items()))}",
                remedy="Name the launch mode.",
            )
