"""From the times of a pass to samples: clocked ones as they are, profiled ones through attribution and reduction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moegauge import errors
from moegauge.adapters.profile_db import Sample
from moegauge.adapters.runners.work import ClockTimes, ProfiledTimes, Runner
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace
from moegauge.jobs.targets import Target
from moegauge.kernels.attribution import Plan
from moegauge.kernels.registry import KINDS, KernelKind, kernel_kind

_TAKEN = ("device", "busy_ns", "span_ns", "foreign_ns", "num_kernels")


def pass_samples(chunk: Sequence[Target], times: ClockTimes | ProfiledTimes, runner: Runner) -> list[Sample]:
    """One sample a target, in their order.

    Args:
        chunk: what ran, of one rank. times: what the runner gave back. runner: who ran it.

    Raises:
        Incomplete: the pass's own trace does not close. Inconsistent: it shows another launch mode than was asked for.
    """
    if isinstance(times, ClockTimes):
        clocked = {"device": times.device, "foreign_ns": 0, "num_kernels": 1}
        return [
            _sample(target, clocked | {"busy_ns": ns, "span_ns": ns}, (_operation(runner.kernel_kind),))
            for target, ns in zip(chunk, times.ns, strict=True)
        ]
    found = _attributed(chunk, times, kernel_kind(runner.kernel_kind))
    rows = {(row["iteration"], row["layer"]): row for row in found.rows.iter_rows(named=True)}
    samples = []
    for target in chunk:
        row = rows[target.spec.iteration, target.spec.layer]
        _refuse_other_mode(target, row["launch_mode"])
        names = found.kernel_names[row["kernels_digest"]]
        samples.append(_sample(target, {name: int(row[name]) for name in _TAKEN}, names))
    return samples


def _operation(kind: str) -> str:
    """Name of what a clock was read around: a registered kind's operation on the host, else the kind itself."""
    registered = KINDS.get(kind)
    return kind if registered is None or registered.host_operation is None else registered.host_operation


def _sample(target: Target, taken: dict[str, int], names: tuple[str, ...]) -> Sample:
    spec = target.spec
    place = {"iteration": spec.iteration, "layer": spec.layer, "rank": spec.rank}
    return Sample(target.key, spec.label, place | taken, names)


def _attributed(chunk: Sequence[Target], times: ProfiledTimes, kind: KernelKind) -> AttributedTrace:
    """Attribute a pass's own trace by the rules every trace goes through."""
    ordered = sorted(chunk, key=lambda target: (target.spec.iteration, target.spec.layer))
    shape = ordered[0].spec.match.subject.shape
    plan = Plan(
        iteration=np.array([t.spec.iteration for t in ordered], dtype=np.int64),
        layer=np.array([t.spec.layer for t in ordered], dtype=np.int64),
        executed_rows=np.array([t.spec.match.executed_rows for t in ordered], dtype=np.int64),
        top_k=shape.top_k,
        num_experts=shape.num_experts,
        has_expert_map=ordered[0].spec.expert_map is not None,
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


def _refuse_other_mode(target: Target, seen: str | None) -> None:
    wanted = target.key.setting.launch_mode
    if seen is not None and seen != wanted:
        raise errors.Inconsistent(
            where=f"iteration {target.spec.iteration}, layer {target.spec.layer}",
            expected=f"launch mode {wanted}",
            found=f"launch calls that show {seen}",
            remedy="The runner launched its kernels in another way than it was asked to; nothing of it was kept.",
        )
