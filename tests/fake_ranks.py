"""Runners for ranks in processes of their own: they write down when they ran, and fail where a test says so.

A process that is started for a rank imports this module, so it imports little.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from fake_runner import GOOD, WRONG, FakeRunner
from moegauge.adapters.devices.places import Place
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import Checked, ProfiledTimes, RunCondition, Runner, Together, Work
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.jobs.fill import Filled, Group
from moegauge.jobs.profile_specs import EXACT, InputChoice, SpecSource
from moegauge.jobs.rank_crew import rank_crew
from moegauge.jobs.rank_process import RankStart
from moegauge.jobs.ranks_together import fill_together, invocations_of
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode
from simulator import Recording

EAGER = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="in_order")


class Step(msgspec.Struct, array_like=True):
    """When a rank came to a step, began and ended its call, and left: monotonic ns, alike in all processes."""

    iteration: int
    layer: int
    came: int
    began: int
    ended: int
    left: int


@dataclass
class RankRunner(FakeRunner):
    """A fake runner of one rank.

    Attributes:
        folder: where it writes its process id and its steps. busy_ns: how long each of its calls takes.
        fault: called with (number of the run_pass, work) before each timed call.
        checked_again: what the check after the n-th run_pass says.
    """

    rank: int = 0
    folder: Path = Path()
    busy_ns: int = 0
    fault: Callable[[int, Work], object] = lambda number, work: None
    checked_again: Callable[[int], Checked] = lambda number: GOOD
    steps: list[Step] = field(default_factory=list)

    def surroundings(self) -> dict[str, str]:
        return {"device_uuids": f"GPU-{self.rank}", "sm_clock_mhz": str(1980 - 10 * self.rank - len(self.passes))}

    def check(self, work: Work, *, draw: int = 0) -> Checked:
        return self.checked_again(len(self.passes)) if draw else super().check(work)

    def run_pass(self, works: Sequence[Work], condition: RunCondition, together: Together) -> ProfiledTimes:  # type: ignore[override]
        times = super().run_pass(works, condition, lambda work: self.noted(work, together))
        (self.folder / f"rank{self.rank}.steps").write_bytes(msgspec.json.encode(self.steps))
        return times

    @contextmanager
    def noted(self, work: Work, together: Together) -> Iterator[None]:
        came = time.monotonic_ns()
        with together(work):
            began = time.monotonic_ns()
            self.fault(len(self.passes), work)
            while time.monotonic_ns() < began + self.busy_ns:
                pass
            yield
            ended = time.monotonic_ns()
        self.steps.append(Step(work.iteration, work.layer, came, began, ended, time.monotonic_ns()))


def made(rank: int, recording: Recording, folder: Path, fault: str | None, works_at_once: int) -> Runner:
    """The runner of a rank, made in its process. Rank 1 takes 2 ms a call, and has the fault."""
    (folder / f"rank{rank}.pid").write_text(str(os.getpid()))
    runner = RankRunner(recording, rank=rank, folder=folder, works_at_once=works_at_once, busy_ns=2_000_000 * rank)
    if rank == 1 and fault is not None:
        FAULTS[fault](runner)
    return runner


def starts(
    recording: Recording, folder: Path, *, fault: str | None = None, works_at_once: int = 4096
) -> dict[int, RankStart]:
    """What the processes of all ranks of a recording are made from."""
    shape = ModelShape(hidden_size=64, intermediate_size=32, num_experts=recording.num_experts, top_k=recording.top_k)
    makes = {rank: partial(made, rank, recording, folder, fault, works_at_once) for rank in range(recording.ranks)}
    return {rank: RankStart(place=Place(), shape=shape, make=make) for rank, make in makes.items()}


def together(
    capture: CaptureFolder,
    db: Path,
    ranks: dict[int, RankStart],
    *groups: Group,
    num_passes: int = 1,
    force: bool = False,
) -> Filled:
    """Fill a database with all ranks at once; every exact input eagerly where no group is given."""
    every = [Group(specs=SpecSource(capture).specs(InputChoice(type=EXACT)), condition=EAGER)]
    with rank_crew(len(ranks)) as crew:
        ready = crew.start(ranks)
        wanted = invocations_of(crew, groups or every)
        with open_profile_db(db, create=True) as database:
            return fill_together(
                database, SpecSource(capture), crew, ready[0], wanted, num_passes=num_passes, force=force
            )


def at(number: int, iteration: int, fail: Callable[[], object]) -> Callable[[RankRunner], None]:
    """A fault in the n-th run_pass, before the first call of an iteration."""

    def planted(runner: RankRunner) -> None:
        def fault(run: int, work: Work) -> None:
            if (run, work.iteration) == (number, iteration):
                fail()

        runner.fault = fault

    return planted


def _raise(error: BaseException) -> None:
    raise error


def _wrong_at_first(runner: RankRunner) -> None:
    runner.checks = [WRONG]


def _wrong_after_second(runner: RankRunner) -> None:
    runner.checked_again = lambda number: WRONG if number == 2 else GOOD


def _no_memory_for_iteration_0(runner: RankRunner) -> None:
    right = runner.check

    def check(work: Work, *, draw: int = 0) -> Checked:
        if work.iteration == 0:
            raise MemoryError("cannot allocate 8 bytes")
        return right(work, draw=draw)

    runner.check = check  # type: ignore[method-assign]


def _rewriting(runner: RankRunner) -> None:
    runner.call = lambda work: work.topk_ids.__setitem__((0, 0), work.topk_ids[0, 0] ^ 1)


FAULTS: dict[str, Callable[[RankRunner], object]] = {
    "killed": at(1, 1, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "out of memory": at(1, 1, lambda: _raise(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))),
    "defect": at(0, 0, lambda: _raise(TypeError("a defect of the runner"))),
    "no memory for weights": lambda runner: _raise(MemoryError("cannot allocate the weights")),
    "wrong at first": _wrong_at_first,
    "wrong after the second pass": _wrong_after_second,
    "no memory for iteration 0": _no_memory_for_iteration_0,
    "rewrites ids": _rewriting,
}


def two_ranks() -> Recording:
    """Two ranks with half of the experts each, three iterations of three layers."""
    return Recording(ranks=2, expert_parallel=True)


def main(words: list[str]) -> None:
    """Measure both ranks of two_ranks together: capture, database, folder for their notes, number of passes."""
    capture, db, folder = map(Path, words[:3])
    together(open_capture(capture), db, starts(two_ranks(), folder, works_at_once=3), num_passes=int(words[3]))
