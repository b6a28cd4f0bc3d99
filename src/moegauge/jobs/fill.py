"""moegauge profile run: measure exactly what is missing, pass by pass, and lose nothing that was finished.

What is written together (a chunk) is right before and after it was timed: the output is checked before the first
timing, and again, on hidden states that no call has seen, after each chunk and before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from moegauge import __version__, errors
from moegauge.adapters.profile_db import ProfileDb, now
from moegauge.adapters.runners.work import RunCondition, Runner
from moegauge.jobs.failed_rows import FailedRows
from moegauge.jobs.kernel_failure import KernelFailed, first_failures, kernel_failures
from moegauge.jobs.pass_facts import PassFacts, cross_check
from moegauge.jobs.pass_samples import pass_samples
from moegauge.jobs.profile_specs import InputSource, Spec
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.targets import (
    Target,
    missing_targets,
    refuse_changed_ids,
    refuse_wrong_output,
    targets_of,
    work_of,
)
from moegauge.records.profile import PassRecord, RowStatus


@dataclass(frozen=True)
class Filled:
    """What a run did.

    Attributes:
        num_rows: distinct rows asked for. num_measured: samples added. num_passes: passes written.
        num_missing: rows that still lack passes. failures: status and error text of what could not be measured.
        ranks: how the ranks of an invocation ran, and why, where there are several.
    """

    num_rows: int
    num_measured: int
    num_passes: int
    num_missing: int
    failures: tuple[tuple[str, str], ...]
    ranks: str | None = None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Specs that are measured together in one pass: one input, one condition, each invocation once."""

    specs: Sequence[Spec]
    condition: RunCondition


def fill(
    database: ProfileDb,
    source: InputSource,
    runner: Runner,
    groups: Sequence[Group],
    *,
    num_passes: int,
    force: bool = False,
    progress: Progress = silent,
) -> Filled:
    """Measure what is missing. Passes are the outer loop, so that drift falls on all groups alike.

    Args:
        database: open for writing. source: where the specs come from. runner: its output is checked first.
        groups: what is wanted. A row that two of them share (two samplers that draw the same) is measured in the first.
        num_passes: passes every row shall have. force: measure all again, as a new generation.
        progress: told after every chunk.

    Raises:
        Inconsistent: the runner's output disagrees with the float64 reference. Before the first timing, nothing is
            timed then; afterwards, every row of this run is marked WRONG_OUTPUT.
        Incomplete: a pass that does not close.
    """
    wanted = [targets_of(group.specs, runner, group.condition) for group in groups]
    have = {} if force else database.num_samples()
    todo = _todo(wanted, have, num_passes)
    lacking = sum(_num_lacking(have, target, num_passes) for targets in todo for target in targets)
    run = _Run(database, source, runner, progress, FailedRows(database), lacking)
    run.check_first([target for targets in todo for target in targets])
    for number in range(num_passes):
        for targets, group in zip(todo, groups, strict=True):
            rows = [target for target in targets if _num_lacking(have, target, num_passes) > number]
            run.one_pass(rows, group.condition, new_generation=force and number == 0)
    every = [target for targets in wanted for target in targets]
    left = missing_targets(database, every, num_passes=num_passes)
    return Filled(
        len({target.digest for target in every}), run.num_measured, run.num_passes, len(left), tuple(run.failed.texts)
    )


def _todo(wanted: Sequence[Sequence[Target]], have: Mapping[str, int], num_passes: int) -> list[list[Target]]:
    """Targets that lack passes, by group; none of a row that an earlier group measures."""
    todo: list[list[Target]] = []
    claimed: set[str] = set()
    for targets in wanted:
        mine = [t for t in targets if t.digest not in claimed and _num_lacking(have, t, num_passes)]
        claimed |= {target.digest for target in mine}
        todo.append(mine)
    return todo


def _num_lacking(have: Mapping[str, int], target: Target, num_passes: int) -> int:
    return max(num_passes - have.get(target.digest, 0), 0)


@dataclass
class _Run:
    """One run: what it measures with and into, and what it has done so far."""

    database: ProfileDb
    source: InputSource
    runner: Runner
    progress: Progress
    failed: FailedRows
    num_wanted: int
    num_measured: int = 0
    num_passes: int = 0
    num_checks: int = 0
    ended: bool = False
    measured: dict[str, Target] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def check_first(self, todo: Sequence[Target]) -> None:
        """Refuse a runner that computes something else, on its smallest and largest work, before anything is timed.

        A row that finds too little memory is left out; after any other failure nothing is measured.
        """
        for target, failed in first_failures(todo, self._check):
            self.failed.record([target], failed)
            self.left_out.add(target.digest)
            self.ended = failed.status != RowStatus.OUT_OF_MEMORY

    def _check(self, target: Target) -> None:
        with kernel_failures():
            refuse_wrong_output(self.runner, [work_of(target.spec)])

    def one_pass(self, rows: Sequence[Target], condition: RunCondition, *, new_generation: bool) -> None:
        """Measure and write one pass, chunk by chunk; what a chunk fails with ends the run."""
        number: int | None = None
        facts = PassFacts()
        for chunk in _chunks([row for row in rows if row.digest not in self.left_out], self.runner.works_at_once):
            if self.ended:
                return
            before = self.runner.surroundings()
            try:
                with kernel_failures():
                    times = self.runner.run_pass([work_of(target.spec) for target in chunk], condition)
                    after = self.runner.surroundings()
                    samples = pass_samples(chunk, times, self.runner)
                    self._check_again(chunk)
            except KernelFailed as failed:
                self.failed.record(chunk, failed)
                self.ended = True
                return
            facts.add(before, after, cross_check(times))
            if number is None:
                record = pass_record(self.source, self.runner.name, facts.facts())
                number = self.database.add_pass(
                    record, [], samples, spec=self.source.spec, new_generation=new_generation
                )
                self.num_passes += 1
            else:
                record = msgspec.structs.replace(record, facts=facts.facts())
                self.database.extend_pass(number, record, samples, new_generation=new_generation)
            self.measured |= {target.digest: target for target in chunk}
            self.num_measured += len(samples)
            self.progress("measuring", self.num_measured, self.num_wanted)

    def _check_again(self, chunk: Sequence[Target]) -> None:
        """Refuse a runner that was right before it was timed and no longer is, and whatever it measured in this run."""
        self.num_checks += 1
        try:
            works = [work_of(target.spec) for target in chunk]
            refuse_changed_ids(zip(works, [target.key.match.input_digest for target in chunk], strict=True))
            refuse_wrong_output(self.runner, works, draw=self.num_checks)
        except errors.Inconsistent as error:
            self.failed.record_wrong_output(chunk, self.measured.values(), str(error))
            raise


def _chunks(rows: Sequence[Target], at_once: int) -> list[list[Target]]:
    """Whole iterations of one rank together, a new chunk once one has ``at_once`` works."""
    chunks: list[list[Target]] = []
    last: tuple[int, int] | None = None
    for target in sorted(rows, key=lambda t: (t.spec.rank, t.spec.iteration, t.spec.layer)):
        place = (target.spec.rank, target.spec.iteration)
        full = bool(chunks) and (len(chunks[-1]) >= at_once or chunks[-1][0].spec.rank != place[0])
        if not chunks or (full and place != last):
            chunks.append([])
        chunks[-1].append(target)
        last = place
    return chunks


def pass_record(source: InputSource, runner: str, facts: dict[str, str]) -> PassRecord:
    """Record of a pass that a runner measured."""
    return PassRecord(
        source="run",
        capture_digest=source.capture_digest,
        spec_digest=None if source.spec is None else source.spec.content_digest,
        runner=runner,
        tag=None,
        launch_mode=None,
        declared={},
        traces={},
        facts=facts,
        tool_version=__version__,
        recorded_at=now(),
    )
