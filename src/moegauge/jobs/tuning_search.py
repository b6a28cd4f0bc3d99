"""The stages of a search for configurations: check, search, finals, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.runners.kernel_config import Config
from moegauge.adapters.runners.trials import Trials
from moegauge.adapters.runners.work import Work
from moegauge.jobs.kernel_failure import KernelFailed, kernel_failures
from moegauge.jobs.pass_samples import timed_works
from moegauge.jobs.progress import Progress
from moegauge.jobs.tuning_plan import candidates, search_space
from moegauge.records import tuning
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode
from moegauge.records.tuning import Candidate, Place, Stage
from moegauge.timing.tuned import best

SERVED, UNIFORM = "served", "uniform"
FOUND, DEFAULT = "found", "default"
SEARCH_PASSES, FINALS_PASSES, NUM_FINALISTS = 3, 5, 4
_TRIALS_AT_ONCE = 4096


@dataclass
class Size:
    """A number of rows while it is tuned: works by routing and place, candidates, and what was timed so far."""

    rows: int
    num_served: int
    places: dict[Stage, tuple[Place, ...]]
    works: dict[str, dict[Place, Work]]
    candidates: list[Candidate] = field(default_factory=list)
    trials: list[tuning.Trials] = field(default_factory=list)
    arms: dict[str, int] = field(default_factory=dict)

    @property
    def timed(self) -> list[int]:
        """Indices of candidates that are timed."""
        return [index for index, one in enumerate(self.candidates) if one.refused is None]

    def index(self, config: Config) -> int:
        """Index of a configuration among the candidates."""
        return next(i for i, one in enumerate(self.candidates) if one.config.items() <= config.items())

    def last(self, stage: Stage, routing: str) -> tuning.Trials:
        """What was timed in a stage."""
        return next(one for one in self.trials if (one.stage, one.routing) == (stage, routing))


class Search:
    """One search: the kernel, and how far it is."""

    def __init__(self, runner: Trials, shape: ModelShape, seed: int, progress: Progress) -> None:
        self.runner, self.shape, self.progress = runner, shape, progress
        self._order = np.random.Generator(np.random.Philox(seed))

    def prepare(self, sizes: Sequence[Size], numeric_format: str, num_processes: int) -> dict[str, str]:
        """Give every size its candidates, checked against float64, and return the conditions.

        Args:
            sizes: without candidates. numeric_format: of the weights. num_processes: that compile ahead; 1 for none.

        Raises:
            MisuseError: works too small for their weights to leave the cache. Inconsistent: an incumbent is refused.
        """
        every = [one.works[SERVED][place] for one in sizes for places in one.places.values() for place in places]
        facts = self.runner.facts([replace(work, iteration=number) for number, work in enumerate(every)])
        facts |= {f"{name}.before": value for name, value in self.runner.surroundings().items()}
        configs = []
        for one in sizes:
            incumbents = self.runner.found(one.rows), self.runner.heuristic(one.rows)
            configs.append(candidates(*incumbents, search_space(one.rows, self.shape, numeric_format)))
        firsts = [one.works[SERVED][one.places[Stage.SEARCH][0]] for one in sizes]
        if num_processes > 1:
            self.progress("compiling", 0, 1)
            trials = [(work, config) for work, own in zip(firsts, configs, strict=True) for config in own]
            self.runner.compile_ahead(trials, num_processes)
        total, done = sum(map(len, configs)), 0
        for one, work, own in zip(sizes, firsts, configs, strict=True):
            for config in own:
                one.candidates.append(Candidate(config=config, refused=self._refused(work, config)))
                done += 1
                self.progress("checking", done, total)
            self._incumbents(one)
        return facts

    def _refused(self, work: Work, config: Config) -> str | None:
        """Why a configuration may not be timed; None where its output is right on states no timed call sees."""
        try:
            with kernel_failures():
                checked = self.runner.check(work, config, draw=1)
        except KernelFailed as failed:
            return failed.text
        wrong = f"relative error {checked.relative_error:.3g}, bound {checked.bound}"
        return None if checked.passed else ", ".join([wrong, *checked.changed_inputs])

    def _incumbents(self, size: Size) -> None:
        for arm, config in ((FOUND, self.runner.found(size.rows)), (DEFAULT, self.runner.heuristic(size.rows))):
            size.arms[arm] = size.index(config)
            refused = size.candidates[size.arms[arm]].refused
            if refused is not None:
                raise errors.Inconsistent(
                    where=f"{size.rows} rows, configuration {config}",
                    expected="an incumbent that runs and is right",
                    found=refused,
                    remedy="There is nothing to compare with; check vLLM, its tuned files and the device.",
                )

    def choose(self, sizes: Sequence[Size], routing: str) -> None:
        """Search and finals under a routing; the best of the finals becomes the routing's arm."""
        self._stage(sizes, Stage.SEARCH, routing, [one.timed for one in sizes], SEARCH_PASSES)
        chosen = [finalists(one.last(Stage.SEARCH, routing), one.arms[FOUND]) for one in sizes]
        self._stage(sizes, Stage.FINALS, routing, chosen, FINALS_PASSES)
        for one in sizes:
            one.arms[routing] = winner(one.last(Stage.FINALS, routing))

    def verdict(self, sizes: Sequence[Size], num_passes: int) -> None:
        """Time every arm on served invocations that chose none of them."""
        arms = [sorted(set(one.arms.values())) for one in sizes]
        self._stage(sizes, Stage.VERDICT, SERVED, arms, num_passes)

    def _stage(
        self, sizes: Sequence[Size], stage: Stage, routing: str, chosen: Sequence[list[int]], num_passes: int
    ) -> None:
        passes = []
        for number in range(num_passes):
            passes.append(self._pass(sizes, stage, routing, chosen))
            self.progress(f"{stage} under {routing} routing", number + 1, num_passes)
        for position, (one, mine) in enumerate(zip(sizes, chosen, strict=True)):
            times = tuple(tuple(map(tuple, done[position].tolist())) for done in passes)
            places = one.places[stage]
            one.trials.append(
                tuning.Trials(stage=stage, routing=routing, candidates=tuple(mine), places=places, busy_ns=times)
            )

    def _pass(
        self, sizes: Sequence[Size], stage: Stage, routing: str, chosen: Sequence[list[int]]
    ) -> list[NDArray[np.int64]]:
        """One pass over all sizes: times [candidates, places] of each."""
        cells: list[tuple[int, int, int]] = []
        trials: list[tuple[Work, Config]] = []
        for position, (one, mine) in enumerate(zip(sizes, chosen, strict=True)):
            for row in self._order.permutation(len(mine)).tolist():
                for column, place in enumerate(one.places[stage]):
                    work = replace(one.works[routing][place], iteration=len(trials))
                    cells.append((position, row, column))
                    trials.append((work, one.candidates[mine[row]].config))
        found = [
            np.zeros((len(m), len(one.places[stage])), dtype=np.int64) for one, m in zip(sizes, chosen, strict=True)
        ]
        for cell, ns in zip(cells, self._timed(trials), strict=True):
            found[cell[0]][cell[1], cell[2]] = ns
        return found

    def _timed(self, trials: Sequence[tuple[Work, Config]]) -> list[int]:
        """Busy union of each trial in ns."""
        times: list[int] = []
        for first in range(0, len(trials), _TRIALS_AT_ONCE):
            some = trials[first : first + _TRIALS_AT_ONCE]
            kind, mode = self.runner.kernel_kind, LaunchMode.EAGER
            timed = timed_works(
                [w for w, _ in some], self.runner.run(some), kind=kind, shape=self.shape, launch_mode=mode
            )
            times += [one.columns["busy_ns"] for one in timed]
        return times


def finalists(searched: tuning.Trials, found: int) -> list[int]:
    """The best candidates of a search, best first, and what the kernel's own code takes."""
    first = best(searched.candidates, np.array(searched.busy_ns, dtype=np.int64), NUM_FINALISTS)
    return list(dict.fromkeys([*first, found]))


def winner(final: tuning.Trials) -> int:
    """The best candidate of the finals."""
    return best(final.candidates, np.array(final.busy_ns, dtype=np.int64))[0]
