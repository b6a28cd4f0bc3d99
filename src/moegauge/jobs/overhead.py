"""What a recorder costs: the same workload with and without it, in engine processes that took turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from moegauge.records.serving_run import ABSENT, PAUSED, RECORDING, Overhead, TimedRun


def overhead_of(runs: Sequence[TimedRun]) -> Overhead:
    """Compare mean lengths; runs that are profiled (takes) count for the outputs alone.

    Args:
        runs: of all processes, in order.
    """
    timed = [run for run in runs if run.take is None]
    recorded = [run for run in timed if run.recorder == RECORDING]
    paused, absent = ([run for run in timed if run.recorder == kind] for kind in (PAUSED, ABSENT))
    turns = []
    for one, other in pairwise(sorted({run.process for run in timed})):
        both = [run for run in timed if run.process in {one, other}]
        ratio = _ratio([run for run in both if run in recorded], [run for run in both if run in absent])
        turns += [] if ratio is None else [ratio]
    return Overhead(
        schema=Overhead.tag(),
        runs=tuple(runs),
        recording_ratio=_ratio(recorded, paused),
        ratio=_ratio(recorded, absent),
        ratio_by_turn=tuple(turns),
        outputs_identical=len({run.outputs_digest for run in runs}) == 1,
    )


def _ratio(one: Sequence[TimedRun], other: Sequence[TimedRun]) -> float | None:
    """Mean length over mean length, minus 1; None where one has no runs."""
    if not one or not other:
        return None
    return fmean(run.wall_ns for run in one) / fmean(run.wall_ns for run in other) - 1
