"""From the times of a pass to samples: clocked ones as they are, profiled ones through attribution and reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moegauge import errors
from moegauge.adapters.profile_db import Sample
from moegauge.adapters.runners.work import ClockTimes, ProfiledTimes, Runner, Work
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace
from moegauge.jobs.targets import Target, work_of
from moegauge.kernels.attribution import Plan
from moegauge.kernels.kind import KernelKind
from moegauge.kernels.registry import host_operation, kernel_kind
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode

_TAKEN = ("device", "busy_ns", "span_ns", "foreign_ns", "num_kernels")


@dataclass(frozen=True)
class Timed:
    """The times of one work: the columns of a sample without its place, and the kernels seen, in order."""

    columns: dict[str, int]
    kernel_names: tuple[str, ...]


def pass_samples(chunk: Sequence[Target], times: ClockTimes | ProfiledTimes, runner: Runner) -> list[Sample]:
    """One sample a target, in their order.

    Args:
        chunk: what ran, of one rank under one condition. times: what the runner gave back. runner: who ran it.

    Raises:
        Incomplete, Inconsistent: see :func:`timed_works`.
    """
    works = [work_of(target.spec) for target in chunk]
    key = chunk[0].key
    shape, mode = key.match.subject.shape, key.setting.launch_mode
    timed = timed_works(works, times, kind=runner.kernel_kind, shape=shape, launch_mode=mode)
    return [sample_of(target, one) for target, one in zip(chunk, timed, strict=True)]


def sample_of(target: Target, timed: Timed) -> Sample:
    """The sample that a target's row gets."""
    spec = target.spec
    place = {"iteration": spec.iteration, "layer": spec.layer, "rank": spec.rank}
    return Sample(target.key, spec.label, place | timed.columns, timed.kernel_names)


def timed_works(
    works: Sequence[Work],
    times: ClockTimes | ProfiledTimes,
    *,
    kind: str,
    shape: ModelShape,
    launch_mode: LaunchMode | None,
) -> list[Timed]:
    """The times of each work, in their order.

    Args:
        works: what ran, of one rank. times: what the runner gave back. kind: kernel kind. shape: of the model.
        launch_mode: what the runner was asked for.

    Raises:
        Incomplete: the pass's own trace does not close. Inconsistent: it shows another launch mode than was asked for.
    """
    if isinstance(times, ClockTimes):
        clocked = {"device": times.device, "foreign_ns": 0, "num_kernels": 1}
        ran = (host_operation(kind) or kind,)
        return [Timed(clocked | {"busy_ns": ns, "span_ns": ns}, ran) for _, ns in zip(works, times.ns, strict=True)]
    found = _attributed(works, times, kernel_kind(kind), shape)
    rows = {(row["iteration"], row["layer"]): row for row in found.rows.iter_rows(named=True)}
    timed = []
    for work in works:
        row = rows[work.iteration, work.layer]
        _refuse_other_mode(work, row["launch_mode"], launch_mode)
        names = found.kernel_names[row["kernels_digest"]]
        timed.append(Timed({name: int(row[name]) for name in _TAKEN}, names))
    return timed


def _attributed(works: Sequence[Work], times: ProfiledTimes, kind: KernelKind, shape: ModelShape) -> AttributedTrace:
    """Attribute a pass's own trace by the rules every trace goes through."""
    ordered = sorted(works, key=lambda work: (work.iteration, work.layer))
    plan = Plan(
        iteration=np.array([work.iteration for work in ordered], dtype=np.int64),
        layer=np.array([work.layer for work in ordered], dtype=np.int64),
        executed_rows=np.array([len(work.topk_ids) for work in ordered], dtype=np.int64),
        top_k=shape.top_k,
        num_experts=shape.num_experts,
        has_expert_map=ordered[0].expert_map is not None,
    )
    found = attributed_trace(times.trace, kind, plan, times.tags)
    if found.attribution.unavailable:
        first = next(iter(found.attribution.unavailable.values()))
        raise errors.Incomplete(
            where=f"pass of {len(ordered)} invocations",
            expected="every measured invocation to close",
            found=f"{first.code}: {first.sentence}",
            remedy="The runner launched other kernels than the registered kind; none of these times was kept.",
        )
    return found


def _refuse_other_mode(work: Work, seen: str | None, wanted: LaunchMode | None) -> None:
    if seen is not None and seen != wanted:
        raise errors.Inconsistent(
            where=f"iteration {work.iteration}, layer {work.layer}",
            expected=f"launch mode {wanted}",
            found=f"launch calls that show {seen}",
            remedy="The runner launched its kernels in another way than it was asked to; nothing of it was kept.",
        )
