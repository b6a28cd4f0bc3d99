"""Writing takes: one thread a recorder makes the frames and writes them. Nothing here waits on the engine's thread.

The thread leaves the newest iteration alone until the next one is handed over, or for _IDLE_S: by then its routing has
left the device, and its own work falls where the engine's thread waits for the device anyway, not where it prepares
the next step. Both need Python's one lock.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moegauge.adapters.vllm.buffers import Snapshot
from moegauge.evidence.frame_log import FrameWriter
from moegauge.records.recording import End, Frame, Head, IterationFrame, Problem

logger = logging.getLogger("vllm.moegauge")

_MOST_WAITING = 4096
_IDLE_S = 0.05

Job = Callable[[], None]
MakeIteration = Callable[[Snapshot | None], IterationFrame]


class WriterThread:
    """Runs jobs in order. ``hand_over`` returns at once, whatever the disk does."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._last = False
        self._thread = threading.Thread(target=self._run, name="moegauge-writer", daemon=True)
        self._thread.start()

    def has_room(self) -> bool:
        """Whether fewer than _MOST_WAITING jobs wait; only the thread that hands over can make it untrue."""
        return len(self._waiting) < _MOST_WAITING

    def hand_over(self, job: Job, *, hurry: bool = False) -> None:
        """Add a job, which must not raise.

        Args:
            job: to run after all before it. hurry: with all that waits, now; else once another is handed over.
        """
        self._waiting.append(job)
        self._wake.put(hurry)

    def close(self, timeout_s: float) -> bool:
        """Run what waits and end the thread; whether it ended in time."""
        self.hand_over(self._end, hurry=True)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _end(self) -> None:
        self._last = True

    def _run(self) -> None:
        while not self._last:
            try:
                hurry = self._wake.get(timeout=_IDLE_S if self._waiting else None)
            except queue.Empty:
                hurry = True
            for _ in range(len(self._waiting) - (0 if hurry else 1)):
                self._waiting.popleft()()


@dataclass
class _Numbers:
    """How many iterations, and the first and last of them."""

    num: int = 0
    first: int = 0
    last: int = 0

    def add(self, number: int) -> None:
        self.first = number if not self.num else self.first
        self.num, self.last = self.num + 1, number


@dataclass
class _Lost:
    """What the engine's thread could not hand over since that was last said."""

    iterations: _Numbers = field(default_factory=_Numbers)
    routes: _Numbers = field(default_factory=_Numbers)
    others: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.iterations.num or self.routes.num or self.others)

    def text(self) -> str:
        said = [
            f"{what} of {lost.num} iterations ({lost.first} to {lost.last})"
            for what, lost in (("everything", self.iterations), ("routed rows", self.routes))
            if lost.num
        ]
        said += [f"{num} {what}" for what, num in sorted(self.others.items())]
        return f"not recorded, since the writer was behind: {'; '.join(said)}"


class TakeWriter:
    """One rank's frames of one take.

    Where the writer is behind, first the routed rows of iterations are lost (their frames say so: NOT_WRITTEN), then
    whole iterations and whatever else was to be said; a Problem names all of it. Serving never waits.

    Args:
        thread: of the recorder. folder: of the take. head: its first frame.
        told: called on the writer's thread with ``recording``, ``ended`` or ``failed`` when that is so.
    """

    def __init__(self, thread: WriterThread, folder: Path, head: Head, told: Callable[[str, TakeWriter], None]) -> None:
        self.folder = folder
        self.num_iterations = 0
        self.num_dropped = 0
        self.failed: str | None = None
        self.ended = threading.Event()
        self._thread, self._told = thread, told
        self._path, self._head = folder / f"rank{head.rank}.frames", head
        self._log: FrameWriter | None = None
        self._lost = _Lost()
        thread.hand_over(self._open)

    def has_room(self) -> bool:
        """Whether an iteration would be taken."""
        return self._thread.has_room()

    def put(self, what: str, make: Callable[[], Frame]) -> None:
        """Hand over what makes a frame on the writer's thread; counted under ``what`` where it is lost."""
        if self.has_room():
            self._thread.hand_over(functools.partial(self._write, make))
        else:
            self._lost.others[what] += 1

    def put_iteration(self, number: int, make: MakeIteration, snapshot: Snapshot | None, *, rows: bool) -> None:
        """Hand over an iteration.

        Args:
            number: of it. make: makes the frame of what it is given, on the writer's thread.
            snapshot: its routing; None where there was no room for it. rows: whether it has any.
        """
        if not self.has_room():
            self._lost.iterations.add(number)
            self.num_dropped += 1
            return
        if snapshot is None and rows:
            self._lost.routes.add(number)
        elif self._lost:
            self._say_lost(number)
        self._thread.hand_over(functools.partial(self._write_iteration, make, snapshot))
        self.num_iterations += 1

    def end(self, *, recorder_ns: int) -> None:
        """The take is over; the thread writes what waits and the end, and closes the file."""
        if self._lost:
            self._say_lost(self.num_iterations + self.num_dropped)
        end = End(num_iterations=self.num_iterations, num_dropped=self.num_dropped, recorder_ns=recorder_ns)
        self._thread.hand_over(functools.partial(self._close, end), hurry=True)

    def fail(self, text: str) -> None:
        """The recorder failed: the thread writes what waits and that, and closes the file, which has no end."""
        number = self.num_iterations + self.num_dropped
        problem = Problem(before_iteration=number, what="RECORDER_FAILED", text=text)
        self._thread.hand_over(functools.partial(self._close, problem, text), hurry=True)

    def _say_lost(self, number: int) -> None:
        problem = Problem(before_iteration=number, what="WRITER_BEHIND", text=self._lost.text())
        self._lost = _Lost()
        self._thread.hand_over(functools.partial(self._write, lambda: problem))

    # On the writer's thread

    def _open(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._log = FrameWriter(self._path)
            self._log.write(self._head)
        except Exception as error:  # the engine goes on; the recorder sees that the take failed
            self._fail(error)
        else:
            self._told("recording", self)

    def _write(self, make: Callable[[], Frame]) -> None:
        if self.failed is not None or self._log is None:
            return
        try:
            self._log.write(make())
        except Exception as error:  # the engine goes on; the file ends here, and so says that it was cut
            self._fail(error)

    def _write_iteration(self, make: MakeIteration, snapshot: Snapshot | None) -> None:
        self._write(lambda: make(snapshot))
        if snapshot is not None:
            snapshot.release()

    def _close(self, last: Frame, failure: str | None = None) -> None:
        self._write(lambda: last)
        if self.failed is None:
            self.failed = failure
            self._close_file()
            self._told("ended" if failure is None else "failed", self)
        self.ended.set()

    def _fail(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {error}"
        logger.error("moegauge cannot write %s: %s", self._path, self.failed)
        self._close_file()
        self._told("failed", self)

    def _close_file(self) -> None:
        log, self._log = self._log, None
        try:
            if log is not None:
                log.close()
        except OSError as error:
            logger.error("moegauge could not close %s: %s", self._path, error)
