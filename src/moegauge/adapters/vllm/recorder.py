"""The recorder of one worker: wraps its step and its experts' calls, and writes what they were given.

Nothing here may change what is served. The engine's own call is made exactly once, whatever happens around it; a
failure of the recorder ends the recording, not the engine.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moegauge.adapters.devices import cpu
from moegauge.adapters.vllm import engine
from moegauge.adapters.vllm.buffers import RoutedBuffers, Snapshot
from moegauge.adapters.vllm.kernel_choice import KernelChoice
from moegauge.adapters.vllm.profiling import RangeProfiler
from moegauge.adapters.vllm.settings import NOTHING, Control, Target, settings_of
from moegauge.adapters.vllm.writer import TakeWriter
from moegauge.records.recording import IterationFrame, Problem, Surroundings

logger = logging.getLogger("vllm.moegauge")

_EVERY_NS = 1_000_000_000
_SMALL_IDS = 1 << 15


@dataclass
class _Step:
    """What one engine step has shown so far."""

    number: int
    scheduled: Any
    known: dict[str, tuple[int, bool]]
    executed_rows: int | None = None
    called: set[int] = field(default_factory=set)
    intervals: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _Take:
    """A recording that is under way."""

    target: Target
    writer: TakeWriter
    profiler: RangeProfiler
    num_iterations: int = 0
    recorder_ns: int = 0
    surroundings_at: int = 0


class Recorder:
    """Attached to one worker after its model is loaded.

    Args:
        worker: a vLLM worker. folder: where to record; see settings.Control.

    Raises:
        EvidenceError, MisuseError: the worker cannot be recorded, or a setting makes no sense.
    """

    def __init__(self, worker: Any, folder: Path) -> None:
        engine.check_supported(worker)
        self.worker = worker
        self.runner = worker.model_runner
        self.settings = settings_of(os.environ)
        folder.mkdir(parents=True, exist_ok=True)
        self.control = Control(folder)
        self.layers = engine.moe_layers(self.runner.model)
        self.device = self.runner.device
        self.on_host = self.device.type == "cpu"
        self.head = engine.head_of(worker, self.layers, clock="host" if self.on_host else "device")
        self.buffers = RoutedBuffers(
            layers=len(self.layers), max_rows=_max_rows(worker), top_k=self.head.top_k, device=self.device
        )
        self.kernel_choice = KernelChoice()
        self.requests = engine.Requests()
        self.take: _Take | None = None
        self.step: _Step | None = None
        self.failed = False
        self._num_seen = 0
        self._call: int | None = None
        self._wrap()
        logger.info("moegauge records %d MoE layers of rank %d into %s", len(self.layers), self.head.rank, folder)

    def close(self) -> int:
        """End what is being recorded; returns the iterations of the take. Callable through the engine's RPC."""
        take, self.take = self.take, None
        if take is None:
            return 0
        exported = take.profiler.stop(take.num_iterations - 1)
        if exported is not None:
            take.writer.put(exported)
        self._read_surroundings(take, now=time.monotonic_ns())
        take.writer.close(recorder_ns=take.recorder_ns)
        return take.num_iterations

    def _wrap(self) -> None:
        for index, layer in enumerate(self.layers):
            layer.experts.apply = functools.partial(self._experts, index, layer.experts.apply)
        self.runner._model_forward = functools.partial(self._forward, self.runner._model_forward)
        self.runner.execute_model = functools.partial(self._execute, self.runner.execute_model)
        shutdown = getattr(self.worker, "shutdown", None)
        if shutdown is not None:
            self.worker.shutdown = functools.partial(self._shutdown, shutdown)
        if self.on_host:
            _time_host_calls(self)

    def _shutdown(self, original: Callable[[], Any]) -> Any:
        self._guarded(self.close)
        return original()

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call something of the recorder; a failure ends the recording and leaves the engine alone."""
        if self.failed:
            return None
        try:
            return call(*args)
        except Exception as error:
            self.failed = True
            logger.exception("moegauge stops recording rank %d; serving goes on", self.head.rank)
            take, self.take, self.step = self.take, None, None
            if take is not None:
                text = f"{type(error).__name__}: {error}"
                take.writer.put(Problem(before_iteration=take.num_iterations, what="RECORDER_FAILED", text=text))
            return None

    def _execute(self, original: Callable[..., Any], scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        entered = time.perf_counter_ns()
        step = self._guarded(self._begin, scheduled)
        take = self.take
        if step is None or take is None:
            return original(scheduled, *args, **kwargs)
        scope = take.profiler.scope(f"iteration I{step.number}")
        start = time.perf_counter_ns()
        with scope:
            result = original(scheduled, *args, **kwargs)
        end = time.perf_counter_ns()
        self._guarded(self._finish, take, step, start, end)
        self.step = None
        take.recorder_ns += start - entered + time.perf_counter_ns() - end
        return result

    def _begin(self, scheduled: Any) -> _Step | None:
        self.step = None
        known = self.requests.observe(scheduled)
        if not scheduled.total_num_scheduled_tokens:
            return None
        number, self._num_seen = self._num_seen, self._num_seen + 1
        wanted = self.settings.iterations[0] <= number <= self.settings.iterations[1]
        target = self.control.target() if wanted else None
        if self.take is not None and self.take.target != target:
            self.close()
        if target is None:
            return None
        if self.take is None:
            self.take = self._open(target)
        take = self.take
        exported = take.profiler.before(take.num_iterations) if not self.on_host else None
        if exported is not None:
            take.writer.put(exported)
        now = time.monotonic_ns()
        if now - take.surroundings_at > _EVERY_NS:
            self._read_surroundings(take, now)
        self.step = _Step(take.num_iterations, scheduled, known)
        return self.step

    def _open(self, target: Target) -> _Take:
        writer = TakeWriter(target.folder, self.head)
        span = self.settings.profile if target.profiled else NOTHING
        return _Take(target, writer, RangeProfiler(target.folder, self.head.rank, span))

    def _read_surroundings(self, take: _Take, now: int) -> None:
        take.surroundings_at = now
        number, on_host = take.num_iterations, self.on_host
        take.writer.put_job(lambda: Surroundings(before_iteration=number, facts=_surroundings(on_host=on_host)))

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.step is not None:
            self._guarded(self._see_forward, self.step, args, kwargs)
        return original(*args, **kwargs)

    def _see_forward(self, step: _Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds")]
        tensor = next((one for one in given if one is not None), None)
        if tensor is not None:
            step.executed_rows = int(tensor.shape[0])

    def _experts(self, index: int, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        step, take = self.step, self.take
        if step is None or take is None:
            if not self.on_host and torch.cuda.is_current_stream_capturing():
                self._guarded(self._before_experts, index, kwargs)
            return original(*args, **kwargs)
        self._guarded(self._before_experts, index, kwargs)
        self._call = index
        with take.profiler.scope(f"moe L{self.layers[index].number} I{step.number}"):
            result = original(*args, **kwargs)
        self._call = None
        return result

    def _before_experts(self, index: int, kwargs: dict[str, Any]) -> None:
        self.buffers.write(index, kwargs["topk_ids"], kwargs["topk_weights"])
        self.kernel_choice.observe(self.layers[index].experts, kwargs)
        if self.step is not None:
            if index in self.step.called:
                raise RuntimeError(f"layer {self.layers[index].number} called its experts twice in one step")
            self.step.called.add(index)
            rows = int(kwargs["topk_ids"].shape[0])
            self.step.executed_rows = max(self.step.executed_rows or 0, rows)

    def timed_call(self, start: int, end: int) -> None:
        """Times of the host operation that ran just now, on the host clock."""
        if self.step is not None and self._call is not None:
            self.step.intervals[self._call] = (start, end)

    def _finish(self, take: _Take, step: _Step, start: int, end: int) -> None:
        rows = step.executed_rows
        snapshot = self.buffers.take(rows or 0)
        scheduled = dict(step.scheduled.num_scheduled_tokens)
        order = [str(request) for request in self.runner.input_batch.req_ids]
        parts = tuple(self.requests.parts(order, scheduled, step.known))
        complete = sum(part.num_tokens for part in parts) == step.scheduled.total_num_scheduled_tokens
        drafts = sum(len(tokens) for tokens in step.scheduled.scheduled_spec_decode_tokens.values())
        called = len(step.called)
        mode = "eager" if called == len(self.layers) else "graph" if called == 0 else "mixed"
        timed = tuple(sorted(step.intervals))
        make = functools.partial(
            _frame,
            snapshot,
            narrow=self.head.num_experts < _SMALL_IDS,
            fields={
                "number": step.number,
                "logical_tokens": int(step.scheduled.total_num_scheduled_tokens),
                "executed_rows": rows,
                "launch_mode": mode,
                "requests": parts if complete else (),
                "num_draft_tokens": drafts,
                "start_ns": start,
                "end_ns": end,
                "intervals_ns": tuple(step.intervals[index] for index in timed) if self.on_host else None,
                "timed_layers": timed,
                "kernel_config": None if rows is None else self.kernel_choice.digest(rows),
            },
        )
        take.writer.put_iteration(make)
        take.num_iterations += 1


def _frame(snapshot: Snapshot, *, narrow: bool, fields: dict[str, Any]) -> IterationFrame:
    ids, weights = snapshot.arrays()
    frame = IterationFrame(
        ids_type="int16" if narrow else "int32",
        topk_ids=ids.astype("<i2" if narrow else "<i4").tobytes(),
        topk_weights=np.ascontiguousarray(weights, dtype="<f4").tobytes(),
        **fields,
    )
    snapshot.release()
    return frame


def _max_rows(worker: Any) -> int:
    config = worker.vllm_config
    sizes = config.compilation_config.cudagraph_capture_sizes or []
    return max([int(config.scheduler_config.max_num_batched_tokens), *(int(size) for size in sizes)])


def _surroundings(*, on_host: bool) -> dict[str, str]:
    if on_host:
        return cpu.host_surroundings(threads=torch.get_num_threads())
    from moegauge.adapters.devices import cuda  # noqa: PLC0415 - needs a driver library that a host lacks

    return cuda.surroundings()


def _time_host_calls(recorder: Recorder) -> None:
    """Read the clock around the operation itself, one line inside the experts' call."""
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe  # noqa: PLC0415 - only on the host

    original = cpu_moe.cpu_fused_moe

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter_ns()
        result = original(*args, **kwargs)
        recorder.timed_call(start, time.perf_counter_ns())
        return result

    cpu_moe.cpu_fused_moe = timed
