"""Writing a take: frames from a thread of its own, so that the engine's thread only hands them over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from moegauge.evidence.frame_log import FrameWriter
from moegauge.records.recording import End, Frame, Head

_WAITING = 256
_PATIENCE_S = 1.0

Job = Callable[[], Frame]


class TakeWriter:
    """One rank's frames of one take.

    At most ``_WAITING`` frames wait in memory. An engine that is faster waits for at most ``_PATIENCE_S``; then the
    iteration is dropped and counted, and serving goes on.
    """

    def __init__(self, folder: Path, head: Head) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.num_iterations = 0
        self.num_dropped = 0
        self.failed: str | None = None
        self._log = FrameWriter(folder / f"rank{head.rank}.frames")
        self._log.write(head)
        self._jobs: queue.Queue[Job | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="moegauge-writer", daemon=True)
        self._thread.start()

    def put(self, frame: Frame) -> None:
        """Hand over a frame that is complete."""
        self.put_job(lambda: frame)

    def put_job(self, job: Job) -> None:
        """Hand over what makes a frame; it is made on the writer's thread."""
        self._jobs.put(job)

    def put_iteration(self, job: Job) -> None:
        """Hand over what makes an iteration's frame (it may have to wait for the device)."""
        try:
            self._jobs.put(job, timeout=_PATIENCE_S)
            self.num_iterations += 1
        except queue.Full:
            self.num_dropped += 1

    def close(self, *, recorder_ns: int) -> None:
        """Write what is waiting and the end, and close the file."""
        end = End(num_iterations=self.num_iterations, num_dropped=self.num_dropped, recorder_ns=recorder_ns)
        self._jobs.put(lambda: end)
        self._jobs.put(None)
        self._thread.join()
        self._log.close()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self.failed is not None:
                continue
            try:
                self._log.write(job())
            except Exception as error:  # the engine goes on; the file ends here, and so says that it was cut
                self.failed = f"{type(error).__name__}: {error}"
