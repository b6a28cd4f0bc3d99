"""moegauge profile run: which rows are wanted, and measuring what is missing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.kernel_config import read_kernel_config
from moegauge.adapters.runners.registry import RUNNERS, make_runner
from moegauge.adapters.runners.work import ModelSpec, RunCondition
from moegauge.jobs.fill import Filled, Group, fill
from moegauge.jobs.given_inputs import Given, open_inputs
from moegauge.jobs.kernel_failure import KernelFailed, kernel_failures
from moegauge.jobs.profile_specs import InputChoice, InputSource, Spec
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.ranks_run import nothing_measured, rank_plan, run_together
from moegauge.jobs.targets import launch_modes, work_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows of a capture or of a spec are wanted.

    Attributes:
        inputs: representations and how they are drawn; each is a group of its own in every pass.
        iterations, layers, ranks: only these; None for all.
        launch_mode: as-served, eager or graph. cache_state, co_running: see adapters.runners.work.RunCondition.
        num_passes: passes every row shall have.
        expert_parallel: ranks whose inputs are derived from a capture of one rank; None for the inputs as they are.
    """

    inputs: tuple[InputChoice, ...]
    iterations: frozenset[int] | None = None
    layers: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    launch_mode: str = "as-served"
    cache_state: str = "in_order"
    co_running: int | None = None
    num_passes: int = 7
    expert_parallel: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunnerChoice:
    """Which runner, with how many weight sets (None: the runner's default) and which seed.

    Attributes:
        kernel_config: file of tuned configurations for its kernel; None for those that the kernel's own code finds.
    """

    name: str
    num_weight_sets: int | None = None
    seed: int = 0
    kernel_config: Path | None = None


def run(
    inputs: Path | Given,
    db: Path,
    wanted: Wanted,
    choice: RunnerChoice,
    *,
    also: Sequence[Wanted] = (),
    together: bool | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Filled:
    """Measure what the database lacks of the wanted rows.

    Args:
        inputs: capture folder, or a spec. db: profile database; made where there is none. wanted: rows. choice: runner.
        also: further rows, of the same ranks and with the same passes, each pass of which follows that of ``wanted``,
            so that drift falls on all alike.
        together: whether the ranks of an invocation run together; None for wherever they can.
        force: measure again, as a new generation. progress: told after every chunk.

    Raises:
        EvidenceError, MisuseError
    """
    source = open_inputs(inputs, choice.name, expert_parallel=wanted.expert_parallel)
    recorded = list(source.ranks)
    ranks = [rank for rank in recorded if wanted.ranks is None or rank in wanted.ranks]
    if not ranks:
        raise errors.MisuseError(
            where="--ranks",
            expected=f"recorded ranks, out of {recorded}",
            found=str(sorted(wanted.ranks or [])),
            remedy="moegauge capture show lists what was captured.",
        )
    plan = rank_plan(ranks, num_ranks=source.num_ranks, runner=choice.name, together=together)
    if plan.places and choice.kernel_config is not None:
        raise errors.MisuseError(
            where="--kernel-config",
            expected="ranks one at a time",
            found="ranks of an invocation run together",
            remedy="Say --ranks-together no, or leave --kernel-config out.",
        )
    states = [one.cache_state for one in (wanted, *also)]
    if plan.places:
        models = {rank: model_of(source, rank, choice, cache_states=states) for rank in ranks}
        return run_together(
            db,
            source,
            plan,
            models,
            [group for one in (wanted, *also) for group in _groups(source, one)],
            runner=choice.name,
            num_passes=wanted.num_passes,
            force=force,
            progress=progress,
        )
    done = []
    for rank in ranks:
        mine = [replace(one, ranks=frozenset({rank})) for one in (wanted, *also)]
        done.append(_filled(source, db, rank, mine, choice, force=force, progress=progress))
    return replace(_added(done), ranks=plan.sentence)


def _filled(
    source: InputSource,
    db: Path,
    rank: int,
    wanted: Sequence[Wanted],
    choice: RunnerChoice,
    *,
    force: bool,
    progress: Progress,
) -> Filled:
    """Measure one rank, in this process."""
    groups = [group for one in wanted for group in _groups(source, one)]
    states = [one.cache_state for one in wanted]
    kernel_config = None if choice.kernel_config is None else read_kernel_config(choice.kernel_config)
    try:
        with kernel_failures():
            model = model_of(source, rank, choice, cache_states=states)
            runner = make_runner(choice.name, model, kernel_config)
            for group in groups:
                runner.facts(group.condition, [work_of(spec) for spec in group.specs])
    except KernelFailed as failed:
        return nothing_measured(groups, failed)
    with open_profile_db(db, create=True) as database:
        return fill(database, source, runner, groups, num_passes=wanted[0].num_passes, force=force, progress=progress)


def _groups(source: InputSource, wanted: Wanted) -> list[Group]:
    """One group for each input and launch mode."""
    groups = []
    for one in wanted.inputs:
        for mode, specs in launch_modes(wanted_specs(source, wanted, one), wanted.launch_mode).items():
            groups.append(
                Group(
                    specs=specs,
                    condition=RunCondition(
                        launch_mode=mode, cache_state=wanted.cache_state, co_running=wanted.co_running
                    ),
                )
            )
    return groups


def wanted_specs(source: InputSource, wanted: Wanted, one: InputChoice) -> list[Spec]:
    """Specs that a request is about, of one representation.

    Raises:
        MisuseError: nothing is left of them.
    """
    specs = [
        spec
        for spec in source.specs(one)
        if (wanted.iterations is None or spec.iteration in wanted.iterations)
        and (wanted.layers is None or spec.layer in wanted.layers)
        and (wanted.ranks is None or spec.rank in wanted.ranks)
    ]
    if not specs:
        raise errors.MisuseError(
            where=source.where,
            expected="at least one invocation whose input is known",
            found="none of the iterations, layers and ranks named",
            remedy="Name others; moegauge capture show lists those of a capture.",
        )
    return specs


def model_of(source: InputSource, rank: int, choice: RunnerChoice, *, cache_states: Sequence[str]) -> ModelSpec:
    """Weights that a rank needs.

    Args:
        source: of the inputs. rank: which. choice: sets and seed. cache_states: asked for; some need a set a layer.

    Raises:
        MisuseError: more or fewer sets than there are layers. Inconsistent: sizes that contradict each other.
    """
    own = RUNNERS[choice.name][4]
    default = len(source.layers) if own or "served_order" in cache_states else 1
    sets = choice.num_weight_sets if choice.num_weight_sets is not None else default
    if not 1 <= sets <= len(source.layers):
        raise errors.MisuseError(
            where="--weight-sets",
            expected=f"1 to {len(source.layers)} (the MoE layers)",
            found=str(sets),
            remedy="Give as many as fit the device's memory.",
        )
    if source.model.intermediate_size % source.num_parts:
        raise errors.Inconsistent(
            where=source.where,
            expected=f"an intermediate size that {source.num_parts} tensor-parallel ranks share",
            found=str(source.model.intermediate_size),
            remedy="The recording's sizes contradict each other; record again.",
        )
    share = source.model.intermediate_size // source.num_parts
    return ModelSpec(
        shape=msgspec.structs.replace(source.model, intermediate_size=share),
        num_local_experts=source.ranks[rank],
        numeric_format=source.numeric_format,
        layers=source.layers,
        num_weight_sets=sets,
        seed=choice.seed,
    )


def _added(done: list[Filled]) -> Filled:
    return Filled(
        sum(one.num_rows for one in done),
        sum(one.num_measured for one in done),
        sum(one.num_passes for one in done),
        sum(one.num_missing for one in done),
        tuple(dict.fromkeys(failure for one in done for failure in one.failures)),
    )
