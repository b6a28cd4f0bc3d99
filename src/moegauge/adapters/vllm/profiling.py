"""Device times of a range of iterations: the torch profiler, exported piece by piece into the take."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from moegauge.adapters.traces.slim import write_slim
from moegauge.adapters.vllm.settings import ITERATIONS_A_TRACE
from moegauge.records.recording import ProfiledRange

_NO_SCOPE: AbstractContextManager[object] = nullcontext()


class RangeProfiler:
    """Profiles iterations first..last of a take, in pieces of ITERATIONS_A_TRACE; only on CUDA.

    Started and stopped from the engine's own thread: the profiler keeps its state there.
    """

    def __init__(self, folder: Path, rank: int, span: tuple[int, int]) -> None:
        self.folder, self.rank, self.span = folder, rank, span
        self._profile: profile | None = None
        self._first = 0
        self._num_traces = 0

    @property
    def running(self) -> bool:
        """Whether device operations are being recorded."""
        return self._profile is not None

    def scope(self, what: str, iteration: int, layer: int | None = None) -> AbstractContextManager[object]:
        """An annotation while the profiler runs, else nothing."""
        if self._profile is None:
            return _NO_SCOPE
        name = f"{what} I{iteration}" if layer is None else f"{what} L{layer} I{iteration}"
        annotation: AbstractContextManager[object] = record_function(name)
        return annotation

    def abandon(self) -> None:
        """End the running piece without an export: what failed has no use for it."""
        running, self._profile = self._profile, None
        if running is not None:
            running.__exit__(None, None, None)

    def before(self, iteration: int) -> ProfiledRange | None:
        """Start, or end a full piece, before an iteration; returns the piece that was exported."""
        inside = self.span[0] <= iteration <= self.span[1]
        full = self._profile is not None and iteration - self._first >= ITERATIONS_A_TRACE
        exported = self.stop(iteration - 1) if self._profile is not None and (full or not inside) else None
        if inside and self._profile is None:
            torch.cuda.synchronize()
            self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            self._profile.__enter__()
            self._first = iteration
        return exported

    def stop(self, last: int) -> ProfiledRange | None:
        """End the running piece and export it; None where none runs."""
        if self._profile is None:
            return None
        running, self._profile = self._profile, None
        torch.cuda.synchronize()
        running.__exit__(None, None, None)
        name = f"rank{self.rank}.trace-{self._num_traces}.json.gz"
        self._num_traces += 1
        whole = self.folder / f".{name}.whole.json"
        running.export_chrome_trace(str(whole))
        write_slim(whole, self.folder / name)
        whole.unlink()
        return ProfiledRange(first=self._first, last=last, file=name)
