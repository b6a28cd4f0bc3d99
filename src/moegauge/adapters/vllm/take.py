"""What the recorder keeps of a step and of a take, and what it reads of its worker's surroundings."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from moegauge.adapters.devices import cpu
from moegauge.adapters.vllm import engine
from moegauge.adapters.vllm.profiling import RangeProfiler
from moegauge.adapters.vllm.settings import Target, write_status
from moegauge.adapters.vllm.writer import TakeWriter
from moegauge.records.recording import RecorderStatus

logger = logging.getLogger("vllm.moegauge")


@dataclass
class Step:
    """What one engine step has shown so far."""

    number: int
    scheduled: Any
    seen: engine.Scheduled
    executed_rows: int | None = None
    called: set[int] = field(default_factory=set)
    intervals: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Take:
    """A recording that is under way."""

    target: Target
    writer: TakeWriter
    profiler: RangeProfiler
    num_iterations: int = 0
    recorder_ns: int = 0
    surroundings_at: int = 0


def say_status(folder: Path, status: RecorderStatus) -> None:
    """Write a rank's status; the log says so where that fails."""
    try:
        write_status(folder, status)
    except OSError:
        logger.exception("moegauge cannot write its status into %s", folder)


def max_rows(worker: Any) -> int:
    """Most rows of a step, padding included."""
    config = worker.vllm_config
    sizes = config.compilation_config.cudagraph_capture_sizes or []
    return max([int(config.scheduler_config.max_num_batched_tokens), *(int(size) for size in sizes)])


def read_surroundings(uuid: str | None) -> dict[str, str]:
    """Facts of the device of that UUID; of the host where it is None."""
    if uuid is None:
        return cpu.host_surroundings(threads=torch.get_num_threads())
    from moegauge.adapters.devices import cuda  # noqa: PLC0415 - needs a driver library that a host lacks

    return cuda.surroundings(uuid)


def time_host_calls(told: Callable[[int, int], None]) -> None:
    """Read the clock around the operation itself, one line inside the experts' call."""
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe  # noqa: PLC0415 - only on the host

    original = cpu_moe.cpu_fused_moe

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter_ns()
        result = original(*args, **kwargs)
        told(start, time.perf_counter_ns())
        return result

    cpu_moe.cpu_fused_moe = timed
