"""Whether the ranks of a run are measured together, where each of them runs, and the run that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from moegauge import errors
from moegauge.adapters.devices.places import Place, places_for
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.registry import ON_GPU, make_runner
from moegauge.adapters.runners.work import ModelSpec
from moegauge.evidence.digest import record_digest
from moegauge.jobs.fill import Filled, Group
from moegauge.jobs.kernel_failure import KernelFailed
from moegauge.jobs.profile_specs import InputSource
from moegauge.jobs.progress import Progress
from moegauge.jobs.rank_crew import rank_crew
from moegauge.jobs.rank_process import RankStart
from moegauge.jobs.ranks_together import fill_together, invocations_of


@dataclass(frozen=True)
class RankPlan:
    """How the ranks of an invocation run.

    Attributes:
        places: of each rank, where they run together; empty where they run one at a time.
        sentence: which of the two, and why; None where there is one rank.
    """

    places: Mapping[int, Place]
    sentence: str | None


def rank_plan(ranks: Sequence[int], *, num_ranks: int, runner: str, together: bool | None) -> RankPlan:
    """Together where all ranks of the invocation are wanted and each finds a place of its own, else one at a time.

    Args:
        ranks: wanted ones, ascending. num_ranks: that an invocation has. runner: its name.
        together: what was asked for; None for whichever is possible.

    Raises:
        MisuseError: together was asked for and is not possible.
    """
    if num_ranks == 1 and not together:
        return RankPlan({}, None)
    if together is False:
        return RankPlan({}, "ranks ran one at a time, as asked")
    found: tuple[Place, ...] = ()
    if num_ranks == 1:
        why = "an invocation of one rank"
    elif list(ranks) != list(range(num_ranks)):
        why = f"rank {', '.join(map(str, ranks))} alone is wanted of {num_ranks}"
    else:
        found, why = places_for(num_ranks, on_gpu=runner in ON_GPU)
    if found:
        where = ", ".join(f"rank {rank} on {place}" for rank, place in enumerate(found))
        return RankPlan(dict(enumerate(found)), f"ranks ran together: {where}")
    if together:
        raise errors.MisuseError(
            where="--ranks-together yes",
            expected="all ranks of an invocation of several, each with a GPU or cores of its own",
            found=why,
            remedy="Leave the option out: ranks then run one at a time where they cannot run together.",
        )
    return RankPlan({}, f"ranks ran one at a time: {why}")


def run_together(
    db: Path,
    source: InputSource,
    plan: RankPlan,
    models: Mapping[int, ModelSpec],
    groups: Sequence[Group],
    *,
    runner: str,
    num_passes: int,
    force: bool,
    progress: Progress,
) -> Filled:
    """Measure what the database lacks, all ranks of an invocation at once.

    Args:
        db: made where there is none. source: of the specs. plan: with a place for each rank. models: weights, by rank.
        groups: of the specs of all ranks. runner: its name.
        num_passes, force, progress: see fill.

    Raises:
        EvidenceError, MisuseError
    """
    starts = {
        rank: RankStart(place=place, shape=models[rank].shape, make=partial(make_runner, runner, models[rank]))
        for rank, place in plan.places.items()
    }
    with rank_crew(len(starts)) as crew:
        try:
            ready = crew.start(starts)
            wanted = invocations_of(crew, groups)
        except KernelFailed as failed:
            return replace(nothing_measured(groups, failed), ranks=plan.sentence)
        with open_profile_db(db, create=True) as database:
            filled = fill_together(
                database,
                source,
                crew,
                next(iter(ready.values())),
                wanted,
                num_passes=num_passes,
                force=force,
                progress=progress,
            )
    return replace(filled, ranks=plan.sentence)


def nothing_measured(groups: Sequence[Group], failed: KernelFailed) -> Filled:
    """What a run did whose runner could not be made: its rows have no keys, so nothing of them can be stored."""
    wanted = {(group.condition.launch_mode, record_digest(spec.match)) for group in groups for spec in group.specs}
    return Filled(len(wanted), 0, 0, len(wanted), ((failed.status, failed.text),))
