"""A pass under the profiler, with device events around all of it as a cross-check."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from moegauge.adapters.runners.work import ProfiledTimes
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.scopes import ScopeTags


def profiled(body: Callable[[], None], tags: ScopeTags) -> ProfiledTimes:
    """Run something on the current device under the profiler; ``tags`` are the annotations it makes."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        begin.record()
        body()
        end.record()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        data = path.read_bytes()
    return ProfiledTimes(parse_kineto(data, source="profiled pass"), tags, round(begin.elapsed_time(end) * 1e6))
