"""The parent's side of the ranks that run together: it starts their processes, asks them, and sees one that dies."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeVar

from moegauge.errors import MoegaugeError
from moegauge.jobs.kernel_failure import KernelFailed
from moegauge.jobs.rank_messages import Failed, Ready, Refused, Reply, Request, decode_reply, encode, error_of
from moegauge.jobs.rank_process import RankStart, serve
from moegauge.jobs.start_line import StartLine
from moegauge.records.profile import RowStatus

R = TypeVar("R")


class WrongOutput(Exception):
    """What a rank had timed turned out to be wrong.

    Attributes:
        error: which work, and how.
    """

    def __init__(self, error: MoegaugeError) -> None:
        super().__init__(str(error))
        self.error = error


class RankCrew:
    """A process for each rank. Use :func:`rank_crew`."""

    def __init__(self, num_ranks: int) -> None:
        self.line = StartLine(num_ranks)
        self._processes: dict[int, SpawnProcess] = {}
        self._connections: dict[int, Connection] = {}
        self._broken = False

    def start(self, starts: Mapping[int, RankStart]) -> dict[int, Ready]:
        """Start a process for each rank; what each one's runner is, once all are made.

        Raises:
            KernelFailed, MoegaugeError
        """
        context = get_context("spawn")
        for index, rank in enumerate(sorted(starts)):
            mine, theirs = context.Pipe()
            arguments = (theirs, self.line, index, starts[rank])
            process = context.Process(target=serve, args=arguments, name=f"rank {rank}", daemon=True)
            process.start()
            theirs.close()
            self._processes[rank], self._connections[rank] = process, mine
        return self._replies(self._processes, Ready)

    def ask(self, requests: Mapping[int, Request], kind: type[R]) -> dict[int, R]:
        """Ask some ranks at once, and wait for the answer of each.

        Args:
            requests: by rank. kind: of the answers.

        Raises:
            KernelFailed: a kernel failed, or a process ended. WrongOutput. MoegaugeError: a rank refused. Where several
            ranks were asked, none can be asked again then: the others may still be at work.
        """
        self.line.reset()
        for index, rank in enumerate(sorted(self._processes)):
            if rank not in requests:
                self.line.leave(index)
        for rank, request in requests.items():
            try:
                self._connections[rank].send_bytes(encode(request))
            except ConnectionError:
                raise self._ended(rank) from None
        return self._replies(requests, kind)

    def close(self, *, at_once: bool) -> None:
        """Hang up, and wait until every process has ended; they are not let finish where one of them failed."""
        self.line.give_up()
        for rank, process in self._processes.items():
            self._connections[rank].close()
            if at_once or self._broken:
                process.kill()
        for process in self._processes.values():
            process.join()

    def _replies(self, ranks: Collection[int], kind: type[R]) -> dict[int, R]:
        found: dict[int, R] = {}
        while len(found) < len(ranks):
            waiting = [rank for rank in ranks if rank not in found]
            sources = [(self._connections[rank], self._processes[rank].sentinel) for rank in waiting]
            ready = wait([source for pair in sources for source in pair])
            for rank, pair in zip(waiting, sources, strict=True):
                if set(pair) & set(ready):
                    self._broken = len(ranks) > 1
                    reply = self._reply(rank)
                    assert isinstance(reply, kind)  # noqa: S101 - each request has one kind of answer
                    found[rank] = reply
        self._broken = False
        return dict(sorted(found.items()))

    def _reply(self, rank: int) -> Reply:
        connection = self._connections[rank]
        try:
            reply = decode_reply(connection.recv_bytes()) if connection.poll() else None
        except (EOFError, ConnectionError):
            reply = None
        if reply is None:
            raise self._ended(rank)
        if isinstance(reply, Failed):
            raise KernelFailed(RowStatus(reply.status), reply.text)
        if isinstance(reply, Refused):
            error = error_of(reply)
            raise WrongOutput(error) if reply.wrong_output else error
        return reply

    def _ended(self, rank: int) -> KernelFailed:
        """Why the process of a rank is no longer there."""
        self._broken = True
        process = self._processes[rank]
        process.join()
        code = process.exitcode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return KernelFailed(RowStatus.LAUNCH_FAILED, f"the process of rank {rank} {how}")


@contextmanager
def rank_crew(num_ranks: int) -> Iterator[RankCrew]:
    """Processes for some ranks, all of them ended when it is left."""
    crew = RankCrew(num_ranks)
    try:
        yield crew
    except BaseException:
        crew.close(at_once=True)
        raise
    crew.close(at_once=False)
