"""How far isolated time is from served time in each iteration: total, median, 95th percentile, largest.

    python benchmarks/per_iteration.py CAPTURE DB
    python benchmarks/per_iteration.py CAPTURE DB --padding drawn --launch-mode eager --sampler counts_exact

One block for each sampler, one line for each input, over all iterations and then over those served as graphs and
eagerly. The rows are chosen, drawn again, matched and reduced as `moegauge align` does it; relative =
(isolated - served) / served of an iteration's total over its layers, isolated being the mean over passes. Percentiles
of |relative| are interpolated linearly between iterations. `above` counts iterations whose isolated time is the
larger; `experts` is the mean number of a rank's experts that an invocation's input wakes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.adapters.profile_db import ProfileDb, open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.digest import record_digest
from moegauge.jobs.ladder_served import served_work
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, InputChoice, Spec, SpecSource
from moegauge.ladder.alignment import Alignment, Choice, MeasuredWork, align_work
from moegauge.ladder.sides import TwoSides
from moegauge.records.profile import RowStatus
from moegauge.routing.samplers import SAMPLERS
from moegauge.timing.reduction import total_by

Int64Array = NDArray[np.int64]
SCOPES = ("all", "graph", "eager")
INPUTS = (EXACT, ITERATION, FULL_RUN)


@dataclass(frozen=True)
class Iterations:
    """Iterations that are covered in full.

    Attributes:
        number: int64 [n]. left_ns, right_ns: served and isolated time of each. launch_mode: how each was served.
        experts: experts that the inputs of each wake, mean over its rank invocations.
    """

    number: Int64Array
    left_ns: Int64Array
    right_ns: Int64Array
    launch_mode: list[str | None]
    experts: NDArray[np.float64]

    def relative(self, scope: str) -> NDArray[np.float64]:
        """Relative difference of the iterations served in a launch mode, or of all. [n]"""
        mine = self._of(scope)
        return (self.right_ns[mine] - self.left_ns[mine]) / self.left_ns[mine]

    def total(self, scope: str) -> float:
        """Relative difference of the sum over those iterations."""
        mine = self._of(scope)
        return float(self.right_ns[mine].sum() / self.left_ns[mine].sum() - 1)

    def active_experts(self, scope: str) -> float:
        """Mean over those iterations."""
        return float(self.experts[self._of(scope)].mean())

    def _of(self, scope: str) -> NDArray[np.bool_]:
        return np.array([scope in {"all", mode} for mode in self.launch_mode], dtype=bool)


def measured_work(database: ProfileDb, kernel_kind: str, input_type: str) -> MeasuredWork:
    """Rows of one kind of input as the right side of an alignment."""
    rows = [row for row in database.rows(kernel_kind) if row.key.match.input_type == input_type]
    rows = [row for row in rows if row.status == RowStatus.MEASURED]
    table = {
        "row_id": pl.Series([row.row_id for row in rows], dtype=pl.Int64),
        "match": pl.Series([record_digest(row.key.match) for row in rows], dtype=pl.String),
        "launch_mode": pl.Series([row.key.setting.launch_mode for row in rows], dtype=pl.String),
    }
    for name in ("cache_state", "co_running", "ranks"):
        facts = [row.key.setting.conditions.get(name) for row in rows]
        table[name] = pl.Series([None if fact is None else fact.value for fact in facts], dtype=pl.String)
    samples = database.samples().filter(pl.col("row_id").is_in(table["row_id"].to_list()))
    return MeasuredWork(pl.DataFrame(table), samples)


def active_experts(specs: Iterable[Spec]) -> dict[int, float]:
    """Mean over the rank invocations of each iteration: experts of the rank that at least one row goes to."""
    found: dict[int, list[int]] = {}
    for spec in specs:
        active = np.unique(spec.topk_ids[spec.topk_ids >= 0])
        if spec.expert_map is not None:
            active = active[spec.expert_map[active] >= 0]
        found.setdefault(spec.iteration, []).append(len(active))
    return {iteration: float(np.mean(counts)) for iteration, counts in found.items()}


def iterations_of(capture: CaptureFolder, work: Alignment, choice: InputChoice) -> Iterations:
    """Add up the layers of each iteration that is covered in full."""
    whole = TwoSides(work).whole
    number, index = np.unique(work.iteration[whole], return_inverse=True)
    left, right = (
        total_by(index.astype(np.int64), ns[whole], num_groups=len(number))
        for ns in (work.left_ns, work.right_each_ns())
    )
    modes = dict(capture.iterations.filter(pl.col("rank") == 0).select("iteration", "launch_mode").iter_rows())
    active = active_experts(SpecSource(capture).specs(choice))
    experts = np.array([active[int(one)] for one in number])
    return Iterations(number, left, right, [modes[int(one)] for one in number], experts)


def line(name: str, found: Iterations) -> Iterable[str]:
    """One line for each scope that holds iterations."""
    for scope in SCOPES:
        relative = found.relative(scope)
        if len(relative) and not (scope != "all" and len(relative) == len(found.number)):
            size = np.abs(relative)
            middle, high = np.percentile(size, [50, 95])
            yield (
                f"  {name:<22}{scope:<6}{len(relative):>4}{found.total(scope):>+10.2%}{middle:>9.2%}{high:>9.2%}"
                f"{size.max():>9.2%}{int((relative > 0).sum()):>7}{found.active_experts(scope):>9.2f}"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("db", type=Path)
    parser.add_argument("--sampler", action="append", choices=sorted(SAMPLERS), help="may be given several times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--padding", choices=["captured", "drawn"], default="captured")
    parser.add_argument("--launch-mode", choices=["as-served", "eager", "graph"], default="as-served")
    options = parser.parse_args()
    samplers = options.sampler or ["counts_exact", "systematic", "conditional_poisson", "gumbel_topk"]
    capture = open_capture(options.capture)
    choice = Choice(options.launch_mode, None)
    print(f"padding {options.padding}, launch mode {options.launch_mode}, seed {options.seed}")
    print(
        f"  {'input':<22}{'served':<6}{'num':>4}{'total':>10}{'median':>9}{'95 %':>9}{'largest':>9}{'above':>7}"
        f"{'experts':>9}"
    )
    with open_profile_db(options.db) as database:
        measured = {kind: measured_work(database, capture.record.kernel.kind, kind) for kind in INPUTS}
    for sampler in samplers:
        print(sampler)
        for kind in INPUTS:
            if kind == EXACT and sampler != samplers[0]:
                continue
            wanted = InputChoice(type=kind, sampler=sampler, seed=options.seed, padding=options.padding)
            work = align_work(served_work(capture, wanted), measured[kind], choice)
            found = line(kind, iterations_of(capture, work, wanted)) if work.covered.any() else [f"  {kind}: no rows"]
            print("\n".join(found))


if __name__ == "__main__":
    main()
