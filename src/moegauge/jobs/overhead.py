"""What a recorder costs: the same workload with and without it, in engine processes that took turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from moegauge.records.serving_run import Overhead, TimedRun


def overhead_of(runs: Sequence[TimedRun]) -> Overhead:
    """Compare mean lengths; runs that are profiled (takes) count for the outputs alone.

    Args:
        runs: of all processes, in order.
    """
    timed = [run for run in runs if run.take is None]
    processes = sorted({run.process for run in timed})
    mean = {one: fmean(run.wall_ns for run in timed if run.process == one) for one in processes}
    with_it = {run.process for run in timed if run.recorder}
    pairs = [(a, b) for a, b in pairwise(processes) if (a in with_it) != (b in with_it)]
    turns = tuple(mean[b] / mean[a] - 1 if b in with_it else mean[a] / mean[b] - 1 for a, b in pairs)
    on = [run.wall_ns for run in timed if run.recorder]
    off = [run.wall_ns for run in timed if not run.recorder]
    return Overhead(
        schema=Overhead.tag(),
        runs=tuple(runs),
        ratio=fmean(on) / fmean(off) - 1 if on and off else None,
        ratio_by_turn=turns,
        outputs_identical=len({run.outputs_digest for run in runs}) == 1,
    )
