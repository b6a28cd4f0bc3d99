"""moegauge profile run: measure exactly what is missing, pass by pass, and lose nothing that was finished.

What is written together (a chunk) is right before and after it was timed: the output is checked before the first
timing, and again, on hidden states that no call has seen, after each chunk and before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moegauge import __version__, errors
from moegauge.adapters.profile_db import ProfileDb, now
from moegauge.adapters.runners.work import ClockTimes, ProfiledTimes, RunCondition, Runner
from moegauge.jobs.pass_samples import pass_samples
from moegauge.jobs.profile_specs import InputSource, Spec
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.targets import (
    Target,
    missing_targets,
    refuse_changed_ids,
    refuse_wrong_output,
    smallest_and_largest,
    targets_of,
    work_of,
)
from moegauge.records.profile import PassRecord, RowStatus


@dataclass(frozen=True)
class Filled:
    """What a run did.

    Attributes:
        num_rows: distinct rows asked for. num_measured: samples added. num_passes: passes written.
        num_missing: rows that still lack passes. failures: status and error text of what ended the run early.
    """

    num_rows: int
    num_measured: int
    num_passes: int
    num_missing: int
    failures: tuple[tuple[str, str], ...]


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
    run = _Run(database, source, runner, progress, sum(_num_lacking(have, t, num_passes) for ts in todo for t in ts))
    if any(todo):
        run.check_first([target for targets in todo for target in targets])
    for number in range(num_passes):
        for targets, group in zip(todo, groups, strict=True):
            rows = [target for target in targets if _num_lacking(have, target, num_passes) > number]
            if rows and not run.failures:
                run.one_pass(rows, group.condition, new_generation=force and number == 0)
    every = [target for targets in wanted for target in targets]
    left = missing_targets(database, every, num_passes=num_passes)
    return Filled(
        len({target.digest for target in every}), run.num_measured, run.num_passes, len(left), tuple(run.failures)
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
    num_wanted: int
    num_measured: int = 0
    num_passes: int = 0
    num_checks: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    measured: dict[str, Target] = field(default_factory=dict)

    def check_first(self, todo: Sequence[Target]) -> None:
        """Refuse a runner that computes something else, on its smallest and largest work, before anything is timed."""
        for target in smallest_and_largest(todo):
            try:
                refuse_wrong_output(self.runner, [target])
            except (MemoryError, RuntimeError) as error:
                self._record_failure([target], error)
                return

    def one_pass(self, rows: Sequence[Target], condition: RunCondition, *, new_generation: bool) -> None:
        """Measure and write one pass, chunk by chunk; what a chunk fails with ends the run."""
        number: int | None = None
        for chunk in _chunks(rows, self.runner.works_at_once):
            before = self.runner.surroundings()
            try:
                times = self.runner.run_pass([work_of(target.spec) for target in chunk], condition)
                after = self.runner.surroundings()
                samples = pass_samples(chunk, times, self.runner)
                self._check_again(chunk)
            except (MemoryError, RuntimeError) as error:
                self._record_failure(chunk, error)
                return
            if number is None:
                record = _pass_record(self.source, self.runner, before, after | _cross_check(times))
                number = self.database.add_pass(
                    record, [], samples, spec=self.source.spec, new_generation=new_generation
                )
                self.num_passes += 1
            else:
                self.database.extend_pass(number, samples, new_generation=new_generation)
            self.measured |= {target.digest: target for target in chunk}
            self.num_measured += len(samples)
            self.progress("measuring", self.num_measured, self.num_wanted)

    def _check_again(self, chunk: Sequence[Target]) -> None:
        """Refuse a runner that was right before it was timed and no longer is, and whatever it measured in this run."""
        self.num_checks += 1
        try:
            refuse_changed_ids(chunk)
            refuse_wrong_output(self.runner, chunk, draw=self.num_checks)
        except errors.Inconsistent as error:
            self._mark(chunk, RowStatus.WRONG_OUTPUT, str(error))
            self._mark(self.measured.values(), RowStatus.WRONG_OUTPUT, str(error), also_measured=True)
            raise

    def _record_failure(self, targets: Sequence[Target], error: BaseException) -> None:
        status = _status_of(error)
        self.failures.append((status, str(error)))
        self._mark(targets, status, str(error))

    def _mark(self, targets: Iterable[Target], status: RowStatus, text: str, *, also_measured: bool = False) -> None:
        failures = [(target.key, target.spec.label, status, text) for target in targets]
        self.database.add_failures(failures, also_measured=also_measured)


def _cross_check(times: ClockTimes | ProfiledTimes) -> dict[str, str]:
    """Device events around the chunk beside the profiler's first start to last end: two instruments of one span."""
    if isinstance(times, ClockTimes):
        return {}
    ops = times.trace.ops
    return {"event_ns": str(times.event_ns), "profiler_span_ns": str(int(ops.end_ns.max() - ops.start_ns.min()))}


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


def _status_of(error: BaseException) -> RowStatus:
    text = f"{type(error).__name__} {error}".lower()
    short_of_memory = any(words in text for words in ("outofmemory", "out of memory", "allocate memory"))
    if short_of_memory or isinstance(error, MemoryError):
        return RowStatus.OUT_OF_MEMORY
    return RowStatus.LAUNCH_FAILED


def _pass_record(source: InputSource, runner: Runner, before: dict[str, str], after: dict[str, str]) -> PassRecord:
    facts = {f"{name}.before": value for name, value in before.items()}
    facts |= {f"{name}.after": value for name, value in after.items()}
    return PassRecord(
        source="run",
        capture_digest=source.capture_digest,
        spec_digest=None if source.spec is None else source.spec.content_digest,
        runner=runner.name,
        tag=None,
        launch_mode=None,
        declared={},
        traces={},
        facts=facts,
        tool_version=__version__,
        recorded_at=now(),
    )
