"""What the recorder inside an engine wrote: one frame file a rank, and traces. See docs/formats/recording.md."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.routes.bundle import OFFICIAL_NAME
from moegauge.adapters.routes.recorded_checks import check_head, check_iterations, check_model
from moegauge.adapters.routes.recorded_facts import conditions_of, findings_of, request_rows, step_rows
from moegauge.adapters.routes.serving import (
    BundleMeta,
    Parallel,
    RankFiles,
    RoutedTable,
    ServingSource,
    Step,
    check_steps,
    inconsistent,
    model_shape,
    routed_table,
)
from moegauge.adapters.traces.host_clock import host_clock_trace
from moegauge.adapters.traces.joined import joined
from moegauge.adapters.traces.kineto import read_kineto
from moegauge.evidence.frame_log import FrameLog, read_frames
from moegauge.evidence.serving_tables import REQUESTS, STEPS
from moegauge.kernels.trace import Trace
from moegauge.records.recording import NOT_WRITTEN, Head, IterationFrame, ProfiledRange, RecordingSchema
from moegauge.records.schema import check_schema

_FRAMES = re.compile(r"^rank(?P<rank>[0-9]{1,5})\.frames\Z")
_TRACE_NAME = re.compile(r"^rank[0-9]{1,5}\.trace-[0-9]{1,9}\.json\.gz\Z")
_NUMPY_TYPES = {"int16": "<i2", "int32": "<i4"}


@dataclass(frozen=True, kw_only=True)
class Recording(ServingSource):
    """An opened recording.

    Attributes:
        logs: whole frames of each recorded rank. iterations: those that every recorded rank has, by rank.
    """

    source: ClassVar[str] = "recording"
    meta_name: ClassVar[str] = "rank0.frames"

    logs: Mapping[int, FrameLog]
    iterations: Mapping[int, tuple[IterationFrame, ...]]

    def read_trace(self, rank: int) -> Trace:
        """Times on the host clock from the frames themselves, or the device's from the traces beside them."""
        log = self.logs[rank]
        if log.head.clock == "host":
            return host_clock_trace(log.head, self.iterations[rank], source=log.path.name)
        traces = [read_kineto(path) for path in self._traces(rank)]
        if not traces:
            raise errors.Incomplete(
                where=str(log.path),
                expected="at least one profiled range, with its trace",
                found="none",
                remedy="Record with a profiled range (MOEGAUGE_PROFILE); without one nothing was timed.",
            )
        return joined(traces)

    def read_routed(self, rank: int, num_logical: Mapping[int, int]) -> RoutedTable:
        """Rows of every invocation, up to the first row that was not written."""
        head = self.logs[rank].head
        meta: list[tuple[int, int, int]] = []
        ids: list[NDArray[np.int32]] = [np.empty((0, head.top_k), dtype=np.int32)]
        weights: list[NDArray[np.float32]] = [np.empty((0, head.top_k), dtype=np.float32)]
        for frame in self.iterations[rank]:
            all_ids, all_weights = frame_arrays(head, frame, where=str(self.logs[rank].path))
            for index, layer in enumerate(head.layers):
                written = (all_ids[index] != NOT_WRITTEN).all(axis=1)
                rows = len(written) if written.all() else int(written.argmin())
                if rows:
                    meta.append((frame.number, layer, rows))
                    ids.append(all_ids[index, :rows])
                    weights.append(all_weights[index, :rows])
        return routed_table(
            np.array(meta, dtype=np.int64).reshape(-1, 3),
            np.concatenate(ids),
            np.concatenate(weights),
            None if head.expert_map is None else np.array(head.expert_map, dtype=np.int64),
            shape=self.shape,
            num_logical=num_logical,
            where=str(self.logs[rank].path),
        )

    def raw_files(self, missing: Container[int]) -> tuple[Path, ...]:
        """Frames and traces; overhead, workload and the engine's own routes where they are there."""
        ranks = [rank for rank in sorted(self.logs) if rank not in missing]
        files = [path for rank in ranks for path in (self.logs[rank].path, *self._traces(rank))]
        more = (self.folder / OVERHEAD_NAME, self.folder / WORKLOAD_NAME, self.official_routes)
        return (*files, *(path for path in more if path is not None and path.is_file()))

    def further_tables(self) -> dict[str, pl.DataFrame]:
        """Requests and steps of every iteration."""
        ranks = sorted(self.iterations)
        return {
            REQUESTS.name: pl.concat([request_rows(rank, self.iterations[rank]) for rank in ranks]).sort(REQUESTS.key),
            STEPS.name: pl.concat([step_rows(rank, self.iterations[rank]) for rank in ranks]).sort(STEPS.key),
        }

    def _traces(self, rank: int) -> list[Path]:
        """Trace files of the ranges whose end was recorded."""
        names = [frame.file for frame in self.logs[rank].frames if isinstance(frame, ProfiledRange)]
        strange = [name for name in names if not _TRACE_NAME.match(name)]
        if strange:
            raise inconsistent(str(self.logs[rank].path), "traces named rank<r>.trace-<n>.json.gz", strange[0][:60])
        return [self.folder / name for name in names]


OVERHEAD_NAME = "overhead.json"
WORKLOAD_NAME = "workload.jsonl"


def is_recording(folder: Path) -> bool:
    """Whether a folder holds frame files."""
    return folder.is_dir() and any(_FRAMES.match(path.name) for path in folder.iterdir())


def open_recording(folder: Path) -> Recording:
    """Read the frames of every rank.

    Iterations that not every recorded rank has (the engine was killed between two ranks' writes) are left out, and a
    finding says how many.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, SchemaNewer: a frame file.
        Inconsistent: heads or iterations of two ranks that contradict each other.
        Incomplete: no iteration at all.
    """
    logs = {
        int(match["rank"]): read_frames(path)
        for path in sorted(folder.iterdir())
        if (match := _FRAMES.match(path.name))
    }
    first = logs[min(logs)]
    for rank, log in logs.items():
        check_schema(log.head.schema, RecordingSchema, where=str(log.path))
        check_head(rank, log, first.head)
    whole = {rank: [f for f in log.frames if isinstance(f, IterationFrame)] for rank, log in logs.items()}
    common = _common(whole)
    iterations = {rank: tuple(frames[: len(common)]) for rank, frames in whole.items()}
    if not common:
        raise errors.Incomplete(
            where=str(folder),
            expected="at least one iteration that every rank has",
            found=", ".join(f"rank {rank}: {len(frames)}" for rank, frames in whole.items()),
            remedy="The engine was stopped before it served anything; record again.",
        )
    check_iterations(logs, iterations)
    steps = [_step(frame) for frame in iterations[min(logs)]]
    check_steps(steps, where=str(first.path))
    shape = model_shape(first.head.config, where=str(first.path))
    check_model(first, shape)
    official = folder / OFFICIAL_NAME
    return Recording(
        folder=folder,
        meta=_meta(logs, steps),
        shape=shape,
        ranks=tuple(_files(logs.get(rank)) for rank in range(first.head.world_size)),
        official_routes=official if official.is_file() else None,
        findings=findings_of(logs, num_common=len(common)),
        moe_layers=first.head.layers,
        logs=logs,
        iterations=iterations,
    )


def frame_arrays(head: Head, frame: IterationFrame, *, where: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(topk_ids, topk_weights) of a frame, both [layers, executed_rows, top_k]; NOT_WRITTEN and NaN where absent."""
    rows = frame.executed_rows or 0
    shape = (len(head.layers), rows, head.top_k)
    kind = _NUMPY_TYPES.get(frame.ids_type)
    if kind is None:
        raise inconsistent(where, f"ids of type {' or '.join(_NUMPY_TYPES)}", frame.ids_type)
    size = int(np.prod(shape))
    lengths = (size * np.dtype(kind).itemsize, size * 4)
    if (len(frame.topk_ids), len(frame.topk_weights)) != lengths:
        found = f"{len(frame.topk_ids)} and {len(frame.topk_weights)} bytes"
        raise inconsistent(where, f"iteration {frame.number}: {lengths} bytes of ids and weights", found)
    ids = np.frombuffer(frame.topk_ids, dtype=kind).reshape(shape).astype(np.int32)
    return ids, np.frombuffer(frame.topk_weights, dtype="<f4").reshape(shape)


def _common(whole: Mapping[int, Sequence[IterationFrame]]) -> list[int]:
    """Numbers of the iterations that every rank has, from the first one on."""
    rows = [[frame.number for frame in frames] for frames in whole.values()]
    return [numbers[0] for numbers in takewhile(lambda each: len(set(each)) == 1, zip(*rows, strict=False))]


def _step(frame: IterationFrame) -> Step:
    modes = {"eager": False, "graph": True}
    return Step(
        iteration=frame.number,
        tokens=frame.logical_tokens,
        padded=frame.executed_rows,
        reqs=len(frame.requests) or None,
        graph=None if frame.launch_mode is None else modes.get(frame.launch_mode),
        weights_recorded=True,
    )


def _meta(logs: Mapping[int, FrameLog], steps: list[Step]) -> BundleMeta:
    head = logs[min(logs)].head
    uuids = [log.head.device_uuid for _, log in sorted(logs.items())]
    known = [uuid for uuid in uuids if uuid is not None]
    return BundleMeta(
        config={**head.config, "torch_dtype": head.numeric_format},
        steps=steps,
        kernel_kind=head.kernel_kind,
        torch=head.versions.get("torch"),
        vllm=head.versions.get("vllm"),
        ranks=head.world_size,
        parallel=Parallel(tp=head.tp_size, ep=head.ep_size, dp=head.dp_size),
        device_uuids=known if len(known) == head.world_size else None,
        conditions=conditions_of(logs),
    )


def _files(log: FrameLog | None) -> RankFiles:
    return RankFiles(None, None) if log is None else RankFiles(log.path, log.path)
