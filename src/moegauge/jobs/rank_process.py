"""The process of one rank: it makes the rank's runner, answers its parent, and meets the other ranks on the line."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait

from moegauge import errors
from moegauge.adapters.devices.places import Place
from moegauge.adapters.runners.work import Runner, Together, Work
from moegauge.jobs.kernel_failure import KernelFailed, kernel_failures
from moegauge.jobs.pass_facts import cross_check
from moegauge.jobs.pass_samples import timed_works
from moegauge.jobs.rank_messages import (
    Check,
    Describe,
    Described,
    Failed,
    Measure,
    Measured,
    Passed,
    Ready,
    Refused,
    Reply,
    Request,
    decode_request,
    encode,
    refusal,
)
from moegauge.jobs.start_line import GivenUp, StartLine
from moegauge.jobs.targets import refuse_changed_ids, refuse_wrong_output
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode


@dataclass(frozen=True, kw_only=True)
class RankStart:
    """What the process of one rank is made from.

    Attributes:
        place: where it runs. shape: of the model.
        make: makes the runner, in the process; a function that can be imported there, with its arguments.
    """

    place: Place
    shape: ModelShape
    make: Callable[[], Runner]


def serve(connection: Connection, line: StartLine, index: int, start: RankStart) -> None:
    """Answer the parent's requests, one after the other, until it hangs up.

    Args:
        connection: to the parent. line: shared by all ranks. index: of this one on it. start: what it is made from.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start.place.take()
    with suppress(EOFError, ConnectionError, GivenUp):
        rank = _Rank(line, index, start)
        connection.send_bytes(encode(rank.answer(rank.made)))
        while True:
            request = decode_request(connection.recv_bytes())
            connection.send_bytes(encode(rank.answer(lambda: rank.done(request))))  # noqa: B023 - called at once


def _end_with_parent() -> None:
    """End this process at once when its parent ends, whatever it is doing: nobody is left to measure for."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class _Rank:
    """A runner, and its rank's place on the start line."""

    def __init__(self, line: StartLine, index: int, start: RankStart) -> None:
        self.line, self.index, self.start = line, index, start

    def answer(self, found: Callable[[], Reply]) -> Reply:
        """An answer, or what went wrong; a defect of the program ends the process."""
        try:
            with kernel_failures():
                return found()
        except errors.MoegaugeError as error:
            return refusal(error)
        except KernelFailed as failed:
            return Failed(failed.status, failed.text)

    def made(self) -> Ready:
        """Make the runner; the first thing that is asked for."""
        self.runner = self.start.make()
        return Ready(self.runner.name, self.runner.kernel_kind, self.runner.works_at_once)

    def done(self, request: Request) -> Reply:
        """Do what the parent asks."""
        if isinstance(request, Describe):
            return self._described(request)
        if isinstance(request, Check):
            refuse_wrong_output(self.runner, [request.work.work()])
            return Passed()
        return self._measured(request)

    def _described(self, request: Describe) -> Described:
        works = [one.work() for one in request.works]
        facts = self.runner.facts(request.condition, works)
        return Described(facts, tuple(self.runner.kernel_config_digest(work) for work in works))

    def _measured(self, request: Measure) -> Measured | Refused:
        works = [one.work() for one in request.works]
        before = self.runner.surroundings()
        times = self.runner.run_pass(works, request.condition, self._steps(request))
        self.line.leave(self.index)
        after = self.runner.surroundings()
        mode = request.condition.launch_mode
        timed = timed_works(works, times, kind=self.runner.kernel_kind, shape=self.start.shape, launch_mode=mode)
        try:
            digests = [one.input_digest for one in request.works]
            refuse_changed_ids(zip(works, digests, strict=True))
            refuse_wrong_output(self.runner, works, draw=request.draw)
        except errors.Inconsistent as error:
            return refusal(error, wrong_output=True)
        return Measured(
            columns=tuple(one.columns for one in timed),
            kernel_names=tuple(one.kernel_names for one in timed),
            before=before,
            after=after,
            instruments=cross_check(times),
        )

    def _steps(self, request: Measure) -> Together:
        """Each invocation is a step of the line; in graphs each iteration, at its first invocation."""
        numbers = {place: number for number, place in enumerate(request.places)}
        if request.condition.launch_mode == LaunchMode.GRAPH:
            first: dict[int, int] = {}
            for (iteration, _), number in numbers.items():
                first.setdefault(iteration, number)
            numbers = {place: first[place[0]] for place in numbers}

        def step(work: Work) -> AbstractContextManager[None]:
            return self.line.step(self.index, numbers[work.iteration, work.layer])

        return step
