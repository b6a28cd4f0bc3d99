"""moegauge tune: a search for kernel configurations under the routing that a capture served.

Three stages, each on invocations of its own: a search over all candidates, finals of the best, and a verdict over the
arms. So the winner's time in the verdict is not the one it was chosen for. In every pass all candidates run in an order
drawn anew, so that drift falls on all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moegauge import __version__, errors
from moegauge.adapters.profile_db import now
from moegauge.adapters.runners.kernel_config import config_bytes
from moegauge.adapters.runners.registry import make_trials, runner_identity
from moegauge.adapters.runners.trials import Trials
from moegauge.adapters.runners.work import ModelSpec
from moegauge.evidence.capture_folder import open_capture
from moegauge.evidence.store import new_folder, refuse_existing, write_file, write_head
from moegauge.jobs.kernel_failure import KernelFailed, kernel_failures
from moegauge.jobs.profile_run import RunnerChoice, model_of
from moegauge.jobs.profile_specs import EXACT, ITERATION, InputChoice, Spec, SpecSource
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.targets import work_of
from moegauge.jobs.tuning_plan import RULE, places_of
from moegauge.jobs.tuning_search import SERVED, UNIFORM, Search, Size
from moegauge.records.tuning import LeftOut, Place, TunedSize, TuningRecord

RECORD_NAME = "tuning.json"
ROUTINGS = (SERVED, UNIFORM)
_INPUTS = {SERVED: InputChoice(type=EXACT), UNIFORM: InputChoice(type=ITERATION, sampler="uniform", padding="drawn")}


@dataclass(frozen=True, kw_only=True)
class TuneChoice:
    """What is searched, and how.

    Attributes:
        kind: runner. routings: of the search, each with an arm of its own. rows: only these sizes; None for all.
        num_invocations: of each size and stage. num_passes: of the verdict. seed: of weights, invocations and order.
        num_processes: that compile ahead.
    """

    kind: str
    routings: tuple[str, ...] = (SERVED,)
    rows: frozenset[int] | None = None
    num_invocations: int = 8
    num_passes: int = 7
    seed: int = 0
    num_processes: int = 1


def tune(
    capture: Path,
    out: Path,
    choice: TuneChoice,
    *,
    make: Callable[[str, ModelSpec], Trials] = make_trials,
    progress: Progress = silent,
) -> TuningRecord:
    """Search, choose, compare, and write a tuning folder.

    Args:
        capture: folder whose routing is run, that of its lowest recorded rank. out: folder to make. choice: what.
        make: makes what runs. progress: told after every step.

    Raises:
        EvidenceError, MisuseError
        Inconsistent: an incumbent's output is wrong, or it cannot be run.
    """
    refuse_existing(out)
    source = SpecSource(open_capture(capture), subject_kind=runner_identity(choice.kind))
    rank = min(source.ranks)
    served = {name: [spec for spec in source.specs(_INPUTS[name]) if spec.rank == rank] for name in choice.routings}
    served.setdefault(SERVED, [spec for spec in source.specs(_INPUTS[SERVED]) if spec.rank == rank])
    sizes, left_out = _sizes(served, choice)
    model = model_of(source, rank, RunnerChoice(name=choice.kind, seed=choice.seed), cache_states=["in_order"])
    try:
        with kernel_failures():
            runner = make(choice.kind, model)
            facts = _searched(Search(runner, source.model, choice.seed, progress), sizes, source.numeric_format, choice)
    except KernelFailed as failed:
        raise errors.Incomplete(
            where=f"kind {choice.kind}",
            expected="a search that runs to its end",
            found=f"{failed.status}: {failed.text}",
            remedy="Nothing was written; leave the --rows out that it failed on, or free the device's memory.",
        ) from failed
    tuned = tuple(_recorded(one) for one in sizes)
    files = arm_files(tuned, runner.file_name())
    with new_folder(out) as folder:
        digests = {name: write_file(folder / name, data) for name, data in files.items()}
        record = TuningRecord(
            schema=TuningRecord.tag(),
            tool_version=__version__,
            recorded_at=now(),
            capture_digest=source.capture_digest,
            subject=served[SERVED][0].match.subject,
            rank=rank,
            seed=choice.seed,
            rule=RULE,
            facts=facts,
            sizes=tuned,
            left_out=tuple(left_out),
            files=digests,
        )
        write_head(folder, RECORD_NAME, record)
    return record


def arm_files(sizes: Sequence[TunedSize], name: str) -> dict[str, bytes]:
    """The file of configurations of each arm, by its path in the folder.

    Args:
        sizes: with their arms. name: under which vLLM looks for such a file.
    """
    return {
        f"{arm}/{name}": config_bytes({one.executed_rows: one.candidates[one.arms[arm]].config for one in sizes})
        for arm in sizes[0].arms
    }


def _searched(search: Search, sizes: list[Size], numeric_format: str, choice: TuneChoice) -> dict[str, str]:
    """Run all stages; what was read before and after them."""
    facts = search.prepare(sizes, numeric_format, choice.num_processes)
    for routing in choice.routings:
        search.choose(sizes, routing)
    search.verdict(sizes, choice.num_passes)
    return facts | {f"{name}.after": value for name, value in search.runner.surroundings().items()}


def _sizes(served: dict[str, list[Spec]], choice: TuneChoice) -> tuple[list[Size], list[LeftOut]]:
    """Numbers of rows that are tuned, smallest first, and those that are not.

    Raises:
        MisuseError: none is left.
    """
    by_rows: dict[int, list[Place]] = {}
    for spec in served[SERVED]:
        by_rows.setdefault(len(spec.topk_ids), []).append(Place(iteration=spec.iteration, layer=spec.layer))
    works = {
        name: {Place(iteration=s.iteration, layer=s.layer): work_of(s) for s in specs} for name, specs in served.items()
    }
    sizes, left_out = [], []
    for rows, places in sorted(by_rows.items()):
        dealt = places_of(places, choice.num_invocations, choice.seed)
        asked = choice.rows is None or rows in choice.rows
        if dealt is None or not asked:
            why = "fewer than three invocations" if asked else "not among --rows"
            left_out.append(LeftOut(executed_rows=rows, num_served=len(places), why=why))
            continue
        sizes.append(Size(rows, len(places), dealt, works))
    if not sizes:
        raise errors.MisuseError(
            where="--rows" if choice.rows else "capture",
            expected=f"numbers of rows with at least three invocations, out of {sorted(by_rows)}",
            found="none" if choice.rows is None else str(sorted(choice.rows)),
            remedy="Name others, or record more.",
        )
    return sizes, left_out


def _recorded(size: Size) -> TunedSize:
    return TunedSize(
        executed_rows=size.rows,
        num_served=size.num_served,
        candidates=tuple(size.candidates),
        trials=tuple(size.trials),
        arms=size.arms,
    )
