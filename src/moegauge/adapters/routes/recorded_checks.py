"""Frames of a recording held against themselves, against those of other ranks and against the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from moegauge.adapters.routes.serving import inconsistent
from moegauge.evidence.frame_log import FrameLog
from moegauge.records.identity import ModelShape
from moegauge.records.recording import Head, IterationFrame

_MAX_NUMBER = (1 << 31) - 1
_MAX_NS = (1 << 63) - 1
_MAX_RANKS = 99_999
_SAME = ("world_size", "tp_size", "ep_size", "dp_size", "config", "layers", "num_experts", "top_k", "experts_class",
         "kernel_kind", "numeric_format", "clock", "versions")  # fmt: skip
_LAUNCH_MODES = (None, "eager", "graph", "mixed")


def check_head(rank: int, log: FrameLog, first: Head) -> None:
    """Refuse a head that is not of this rank, not of the first rank's engine, or of no engine.

    Args:
        rank: in the name of the file. log: of the rank. first: head of the first recorded rank.

    Raises:
        Inconsistent
    """
    head, where = log.head, str(log.path)
    different = [name for name in _SAME if getattr(head, name) != getattr(first, name)]
    if different:
        raise inconsistent(where, "ranks of one engine", f"another {different[0]} than the first rank's")
    if head.rank != rank or rank >= head.world_size or head.world_size > _MAX_RANKS:
        raise inconsistent(where, f"the frames of rank {rank}", f"rank {head.rank} of {head.world_size}")
    ascends = all(one < other for one, other in pairwise(head.layers))
    if not head.layers or not ascends or not _counts(head.layers):
        raise inconsistent(where, "MoE layers in ascending order, each once", str(head.layers[:20]))
    if head.clock not in {"device", "host"}:
        raise inconsistent(where, "the clock device or host", head.clock[:60])
    if head.expert_map is not None and not all(-1 <= local <= _MAX_NUMBER for local in head.expert_map):
        raise inconsistent(where, "an expert map of local experts, -1 where another rank owns one", "other numbers")


def check_model(log: FrameLog, shape: ModelShape) -> None:
    """Refuse experts and slots that are not those of the model's configuration.

    Raises:
        Inconsistent
    """
    found = (log.head.num_experts, log.head.top_k)
    if found != (shape.num_experts, shape.top_k):
        expected = f"{shape.num_experts} experts and top_k {shape.top_k}, as the configuration has"
        raise inconsistent(str(log.path), expected, f"{found[0]} and {found[1]}")


def check_iterations(logs: Mapping[int, FrameLog], iterations: Mapping[int, Sequence[IterationFrame]]) -> None:
    """Refuse an iteration that contradicts itself, or the same one of the first rank.

    Raises:
        Inconsistent
    """
    first = iterations[min(logs)]
    for rank, frames in iterations.items():
        head, path = logs[rank].head, str(logs[rank].path)
        for one, frame in zip(first, frames, strict=True):
            where = f"{path}, iteration {frame.number}"
            _check_numbers(frame, where)
            _check_requests(frame, where)
            _check_times(head, frame, where)
            if one.logical_tokens != frame.logical_tokens:
                expected = f"{one.logical_tokens} logical tokens, as the first rank has"
                raise inconsistent(where, expected, str(frame.logical_tokens))


def _check_numbers(frame: IterationFrame, where: str) -> None:
    numbers = [frame.number, frame.logical_tokens, frame.executed_rows or 0, frame.num_draft_tokens]
    if not _counts(numbers):
        raise inconsistent(where, f"counts in 0..{_MAX_NUMBER}", str(numbers))
    if frame.launch_mode not in _LAUNCH_MODES:
        raise inconsistent(where, "the launch mode eager, graph or mixed", str(frame.launch_mode)[:60])


def _check_requests(frame: IterationFrame, where: str) -> None:
    for part in frame.requests:
        numbers = [part.num_tokens, part.num_computed, part.num_prompt or 0]
        if not _counts(numbers) or not part.num_tokens:
            raise inconsistent(where, f"requests with a row at least, counts in 0..{_MAX_NUMBER}", str(numbers))
    rows = sum(part.num_tokens for part in frame.requests)
    if frame.requests and rows != frame.logical_tokens:
        raise inconsistent(where, f"{frame.logical_tokens} rows of requests, the logical tokens", str(rows))


def _check_times(head: Head, frame: IterationFrame, where: str) -> None:
    if not 0 <= frame.start_ns <= frame.end_ns <= _MAX_NS:
        raise inconsistent(where, f"a step from 0 to {_MAX_NS} ns", f"{frame.start_ns} to {frame.end_ns}")
    if (frame.intervals_ns is None) != (head.clock == "device"):
        raise inconsistent(where, "times of the layers on the host clock, and only there", f"the clock {head.clock}")
    times, layers = frame.intervals_ns or (), frame.timed_layers
    ascends = all(one < other for one, other in pairwise(layers))
    if len(times) != len(layers) or not ascends or not all(0 <= index < len(head.layers) for index in layers):
        found = f"{len(times)} times for layers {list(layers[:20])}"
        raise inconsistent(where, "one time for each timed layer, in the order of the layers", found)
    odd = [pair for pair in times if not 0 <= pair[0] < pair[1] <= _MAX_NS]
    if odd:
        raise inconsistent(where, f"calls that end after they begin, from 0 to {_MAX_NS} ns", str(odd[0]))


def _counts(numbers: Iterable[int]) -> bool:
    return all(0 <= number <= _MAX_NUMBER for number in numbers)
