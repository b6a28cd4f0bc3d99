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
from pathlib import Path
from typing import Any

import torch

from moegauge.adapters.vllm import engine
from moegauge.adapters.vllm.buffers import RoutedBuffers
from moegauge.adapters.vllm.frames import Iteration
from moegauge.adapters.vllm.kernel_choice import KernelChoice
from moegauge.adapters.vllm.profiling import RangeProfiler
from moegauge.adapters.vllm.settings import NOTHING, Control, Target, settings_of
from moegauge.adapters.vllm.take import Step, Take, max_rows, read_surroundings, say_status, time_host_calls
from moegauge.adapters.vllm.writer import TakeWriter, WriterThread
from moegauge.records.recording import ProfiledRange, RecorderStatus, Surroundings

logger = logging.getLogger("vllm.moegauge")

_EVERY_NS = 1_000_000_000
_CLOSE_S = 30.0
"""How long the end of a take is waited for where someone asked for it; never while the engine serves."""


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
            layers=len(self.layers), max_rows=max_rows(worker), top_k=self.head.top_k, device=self.device
        )
        self.kernel_choice = KernelChoice()
        self.requests = engine.Requests()
        self.thread = WriterThread()
        self.take: Take | None = None
        self.step: Step | None = None
        self.failed: str | None = None
        self._failed_target: Target | None = None
        self._last: TakeWriter | None = None
        self._captured_rows: set[int] = set()
        self._capturing: int | None = None
        self._unusable: str | None = None
        self._num_seen = 0
        self._call: int | None = None
        self._wrap()
        (folder / f"rank{self.head.rank}.not-recorded.txt").unlink(missing_ok=True)  # of an engine before
        self._report("idle", None)
        logger.info("moegauge records %d MoE layers of rank %d into %s", len(self.layers), self.head.rank, folder)

    def close(self) -> int:
        """End what is being recorded, and wait until it is written; returns the iterations of the take.

        Callable through the engine's RPC. A disk that hangs is waited for no longer than _CLOSE_S.
        """
        num = self.take.num_iterations if self.take is not None else 0
        self._end_take()
        if self._last is not None and not self._last.ended.wait(_CLOSE_S):
            logger.error("moegauge: the end of %s is not written yet", self._last.folder)
        return num

    def _end_take(self) -> None:
        take, self.take = self.take, None
        if take is None:
            return
        self._hand_over_range(take, take.profiler.stop(take.num_iterations - 1))
        self._read_surroundings(take, now=time.monotonic_ns())
        take.writer.end(recorder_ns=take.recorder_ns)

    @staticmethod
    def _hand_over_range(take: Take, exported: ProfiledRange | None) -> None:
        if exported is not None:
            take.writer.put(f"profiled range ({exported.first} to {exported.last})", lambda: exported)

    def _wrap(self) -> None:
        for index, layer in enumerate(self.layers):
            layer.experts.apply = functools.partial(self._experts, index, layer.experts.apply)
        self.runner._model_forward = functools.partial(self._forward, self.runner._model_forward)
        self.runner.execute_model = functools.partial(self._execute, self.runner.execute_model)
        shutdown = getattr(self.worker, "shutdown", None)
        if shutdown is not None:
            self.worker.shutdown = functools.partial(self._shutdown, shutdown)
        if self.on_host:
            time_host_calls(self.timed_call)

    def _shutdown(self, original: Callable[[], Any]) -> Any:
        self._guarded(self.close)
        self._guarded(self.thread.close, _CLOSE_S)
        return original()

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call something of the recorder; a failure ends the recording and leaves the engine alone."""
        try:
            return call(*args)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self.failed:
                logger.exception("moegauge stops recording rank %d; serving goes on", self.head.rank)
            self._fail(text)
            return None

    def _fail(self, text: str) -> None:
        """End the take without an end; nothing is recorded until another one is asked for."""
        known, self.failed, self._failed_target = self.failed == text, text, self.control.latest
        take, self.take, self.step = self.take, None, None
        self.requests = engine.Requests()
        if take is not None:
            take.writer.fail(text)
            try:
                take.profiler.abandon()
            except Exception:
                logger.exception("moegauge could not end the profiler of rank %d", self.head.rank)
        elif not known:
            self._report("failed", text)

    def _report(self, state: str, problem: str | None) -> None:
        """What is so outside any take."""
        status = self._status(state, None, 0, problem)
        self.thread.hand_over(functools.partial(say_status, self.control.folder, status), hurry=True)

    def _told(self, state: str, writer: TakeWriter) -> None:
        """On the writer's thread: a take began, ended or failed."""
        name = writer.folder.name if writer.folder != self.control.folder else "."
        say_status(self.control.folder, self._status(state, name, writer.num_iterations, writer.failed))

    def _status(self, state: str, take: str | None, num: int, problem: str | None) -> RecorderStatus:
        return RecorderStatus(
            schema=RecorderStatus.tag(),
            rank=self.head.rank,
            state=state,
            take=take,
            num_iterations=num,
            problem=problem,
        )

    def _execute(self, original: Callable[..., Any], scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        entered = time.perf_counter_ns()
        self._guarded(self.buffers.before_step)
        step = self._guarded(self._begin, scheduled)
        take = self.take
        if step is None or take is None:
            return original(scheduled, *args, **kwargs)
        scope = take.profiler.scope("iteration", step.number)
        start = time.perf_counter_ns()
        with scope:
            result = original(scheduled, *args, **kwargs)
        end = time.perf_counter_ns()
        self._guarded(self._finish, take, step, start, end)
        self.step = None
        take.recorder_ns += start - entered + time.perf_counter_ns() - end
        return result

    def _begin(self, scheduled: Any) -> Step | None:
        self.step = None
        seen = self.requests.observe(scheduled)
        if not scheduled.total_num_scheduled_tokens:
            return None
        number, self._num_seen = self._num_seen, self._num_seen + 1
        wanted = self.settings.iterations[0] <= number <= self.settings.iterations[1]
        target = self.control.target() if wanted else None
        if self.take is not None and self.take.writer.failed is not None:
            self._fail(self.take.writer.failed)
        if self.take is not None and self.take.target != target:
            self._end_take()
        if target is None or (self.failed is not None and target == self._failed_target):
            return None
        if self.take is None:
            self.take = self._open(target)
        take = self.take
        if not self.on_host:
            self._hand_over_range(take, take.profiler.before(take.num_iterations))
        now = time.monotonic_ns()
        if now - take.surroundings_at > _EVERY_NS:
            self._read_surroundings(take, now)
        self.step = Step(take.num_iterations, scheduled, seen)
        return self.step

    def _open(self, target: Target) -> Take:
        if self._unusable is not None:
            raise RuntimeError(self._unusable)
        self.failed = None
        self.buffers.reset()
        self._last = TakeWriter(self.thread, target.folder, self.head, self._told)
        span = self.settings.profile if target.profiled else NOTHING
        return Take(target, self._last, RangeProfiler(target.folder, self.head.rank, span))

    def _read_surroundings(self, take: Take, now: int) -> None:
        take.surroundings_at = now
        number = take.num_iterations
        uuid = None if self.on_host else self.head.device_uuid
        take.writer.put("surroundings", lambda: Surroundings(before_iteration=number, facts=read_surroundings(uuid)))

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.step is not None:
            self._guarded(self._see_forward, self.step, args, kwargs)
        return original(*args, **kwargs)

    def _see_forward(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds")]
        tensor = next((one for one in given if one is not None), None)
        if tensor is not None:
            step.executed_rows = int(tensor.shape[0])

    def _experts(self, index: int, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        step, take = self.step, self.take
        if step is None or take is None:
            if not self.on_host and torch.cuda.is_current_stream_capturing():
                self._guarded(self._capture, index, kwargs)
            return original(*args, **kwargs)
        self._guarded(self._before_experts, step, index, kwargs)
        self._call = index
        with take.profiler.scope("moe", step.number, self.layers[index].number):
            result = original(*args, **kwargs)
        self._call = None
        return result

    def _capture(self, index: int, kwargs: dict[str, Any]) -> None:
        """Make the copy part of the graph; a graph is for one number of rows, in all its layers."""
        rows = kwargs["topk_ids"].shape[0]
        if index and rows != self._capturing:
            self._unusable = f"layers of {self._capturing} and of {rows} rows in one graph"
            raise RuntimeError(self._unusable)
        self._capturing = rows
        self._captured_rows.add(rows)
        self.buffers.write(index, kwargs["topk_ids"], kwargs["topk_weights"], of_rows=rows)
        self.kernel_choice.observe(self.layers[index].experts, kwargs)

    def _before_experts(self, step: Step, index: int, kwargs: dict[str, Any]) -> None:
        if index in step.called:
            raise RuntimeError(f"layer {self.layers[index].number} called its experts twice in one step")
        step.called.add(index)
        if step.executed_rows is None:
            step.executed_rows = int(kwargs["topk_ids"].shape[0])
        self.buffers.write(index, kwargs["topk_ids"], kwargs["topk_weights"], of_rows=step.executed_rows)
        self.kernel_choice.observe(self.layers[index].experts, kwargs)

    def timed_call(self, start: int, end: int) -> None:
        """Times of the host operation that ran just now, on the host clock."""
        if self.step is not None and self._call is not None:
            self.step.intervals[self._call] = (start, end)

    def _finish(self, take: Take, step: Step, start: int, end: int) -> None:
        rows, called, scheduled, head = step.executed_rows, len(step.called), step.scheduled, self.head
        if rows and called == 0 and rows not in self._captured_rows:
            raise RuntimeError(f"a step of {rows} rows ran in no graph that was captured with as many")
        snapshot = self.buffers.take(rows or 0, wanted=bool(rows) and take.writer.has_room())
        iteration = Iteration(
            number=step.number,
            logical_tokens=int(scheduled.total_num_scheduled_tokens),
            executed_rows=rows,
            launch_mode="eager" if called == len(self.layers) else "graph" if called == 0 else "mixed",
            order=list(self.runner.input_batch.req_ids),
            scheduled=dict(scheduled.num_scheduled_tokens),
            prompts=self.requests.prompts(),
            seen=step.seen,
            num_draft_tokens=sum(len(tokens) for tokens in scheduled.scheduled_spec_decode_tokens.values()),
            start_ns=start,
            end_ns=end,
            intervals=step.intervals,
            on_host=self.on_host,
            kernel_config=None if rows is None else self.kernel_choice.digest(rows),
            num_layers=len(self.layers),
            top_k=head.top_k,
            num_experts=head.num_experts,
        )
        take.writer.put_iteration(step.number, iteration.frame, snapshot, rows=bool(rows))
        take.num_iterations += 1
