"""Trials without a device: the time of a configuration on routed ids is the test's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fake_runner import GOOD
from moegauge.adapters.runners.kernel_config import Config
from moegauge.adapters.runners.work import Checked, ClockTimes, Work

Time = Callable[[Work, Config, int], int]
"""(work, configuration, number of the pass) -> ns."""


def config(n: int, *, m: int = 16, stages: int = 2) -> Config:
    """A configuration of the search space, by the sizes that tests tell apart."""
    sizes = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    return sizes | {"num_warps": 4, "num_stages": stages}


FOUND, HEURISTIC = config(32, stages=5), config(128, stages=5)


@dataclass
class FakeTrials:
    """Times of the test's.

    Attributes:
        time: of a call. checks: what the check of a configuration says or raises, by BLOCK_SIZE_N; else it passes.
        passes: trials of each call of run. checked: what was checked. compiled: what was compiled ahead.
    """

    time: Time
    checks: dict[int, Checked | Exception] = field(default_factory=dict)
    found_config: Config = field(default_factory=lambda: FOUND | {"SPLIT_K": 1})
    passes: list[list[tuple[Work, Config]]] = field(default_factory=list)
    checked: list[tuple[Work, Config, int]] = field(default_factory=list)
    compiled: list[tuple[int, int]] = field(default_factory=list)
    kernel_kind: str = "vllm_triton_moe"
    backend: str = "vllm TritonExperts"

    def facts(self, works: Sequence[Work]) -> dict[str, str]:
        return {"device_model": "Simulated GPU", "num_works": str(len(works))}

    def surroundings(self) -> dict[str, str]:
        return {"sm_clock_mhz": str(1980 - len(self.passes))}

    def found(self, rows: int) -> Config:
        return self.found_config

    def heuristic(self, rows: int) -> Config:
        return HEURISTIC

    def file_name(self) -> str:
        return "E=8,N=32,device_name=Simulated_GPU.json"

    def compile_ahead(self, trials: Sequence[tuple[Work, Config]], num_processes: int) -> None:
        self.compiled.append((len(trials), num_processes))

    def check(self, work: Work, config: Config, *, draw: int) -> Checked:
        self.checked.append((work, config, draw))
        found = self.checks.get(config["BLOCK_SIZE_N"], GOOD)
        if isinstance(found, Exception):
            raise found
        return found

    def run(self, trials: Sequence[tuple[Work, Config]]) -> ClockTimes:
        self.passes.append(list(trials))
        return ClockTimes(tuple(self.time(work, config, len(self.passes)) for work, config in trials), device=0)
