"""Trials of Triton configurations, and their compilation ahead in several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TypeVar, cast

import triton

from moegauge.adapters.runners.kernel_config import Config
from moegauge.adapters.runners.profiled_pass import profiled
from moegauge.adapters.runners.registry import make_runner
from moegauge.adapters.runners.torch_moe import check_output
from moegauge.adapters.runners.vllm_triton_moe import TAG, VllmTritonMoeRunner
from moegauge.adapters.runners.work import Checked, ModelSpec, ProfiledTimes, RunCondition, Work, alone
from moegauge.kernels.scopes import ScopeTags
from moegauge.records.measurement import LaunchMode

EAGER = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="in_order")
T = TypeVar("T")


class TritonTrials:
    """Trials with a runner of vLLM's Triton experts."""

    def __init__(self, name: str, model: ModelSpec) -> None:
        self.runner = cast("VllmTritonMoeRunner", make_runner(name, model))
        self.kernel_kind, self.backend = self.runner.kernel_kind, self.runner.backend
        choice = self.runner.choice
        self.found, self.heuristic, self.file_name = choice.found, choice.heuristic, choice.file_name
        self.surroundings = self.runner.surroundings

    def facts(self, works: Sequence[Work]) -> dict[str, str]:
        """See Trials."""
        return self.runner.facts(EAGER, works) | {"triton": str(triton.__version__)}

    def check(self, work: Work, config: Config, *, draw: int) -> Checked:
        """See Trials."""
        given = self.runner.weights.inputs(work, draw)
        call = self.runner.call_of(work, given, config=config, poison=True)
        return check_output(_launched(call), given, self.runner.weights, work, draw)

    def compile_ahead(self, trials: Sequence[tuple[Work, Config]], num_processes: int) -> None:
        """See Trials: Triton's cache on disk is filled, by processes with the weights of one layer each."""
        one_set = replace(self.runner.weights.model, num_weight_sets=1)
        with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_compile, self.runner.name, one_set), _shares(trials, num_processes)))

    def launch(self, work: Work, config: Config) -> None:
        """Launch once, which compiles the configuration for the work's rows. Raises as :meth:`check`."""
        _launched(self.runner.call_of(work, self.runner.weights.inputs(work), config=config))

    def run(self, trials: Sequence[tuple[Work, Config]]) -> ProfiledTimes:
        """See Trials; each call runs under the profiler, launched eagerly."""
        runner = self.runner
        calls = [runner.call_of(work, runner.weights.inputs(work), config=config) for work, config in trials]
        calls[0]()
        runner.warm_profiler()
        body = lambda: runner.eager([work for work, _ in trials], calls, EAGER, alone)  # noqa: E731
        return profiled(body, ScopeTags(frozenset(), frozenset({TAG})))


def _launched(call: Callable[[], T]) -> T:
    """A call's result; an error of Triton's, which no common class holds, as a RuntimeError."""
    try:
        return call()
    except triton.TritonError as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _shares(trials: Sequence[tuple[Work, Config]], num: int) -> list[list[tuple[Work, Config]]]:
    """Trials dealt out; those of one configuration stay together, since numbers of rows may share what is compiled."""
    groups: dict[tuple[tuple[str, int], ...], list[tuple[Work, Config]]] = {}
    for work, config in trials:
        groups.setdefault(tuple(sorted(config.items())), []).append((work, config))
    dealt = list(groups.values())
    shares = [[trial for group in dealt[index::num] for trial in group] for index in range(num)]
    return [share for share in shares if share]


def _compile(name: str, model: ModelSpec, trials: Sequence[tuple[Work, Config]]) -> None:
    """Compile a share. What does not compile is left for the check to say."""
    made = TritonTrials(name, model)
    for work, config in trials:
        with suppress(RuntimeError):
            made.launch(work, config)
