"""What a run is to measure: specs with the keys their rows will have, and the check of a runner's output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from moegauge import errors
from moegauge.adapters.profile_db import ProfileDb
from moegauge.adapters.runners.work import RunCondition, Runner, Work
from moegauge.evidence.digest import record_digest, routed_ids_digest
from moegauge.jobs.profile_specs import Spec
from moegauge.records.measurement import Fact, LaunchMode
from moegauge.records.profile import ProfileKey, Setting

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A spec with the key its row will have, and the digest of that key."""

    spec: Spec
    key: ProfileKey

    @cached_property
    def digest(self) -> str:
        """Digest of the key."""
        return record_digest(self.key)


def targets_of(specs: Iterable[Spec], runner: Runner, condition: RunCondition) -> list[Target]:
    """Give each spec the key of the row that this runner would write under this condition."""
    specs = list(specs)
    works = [work_of(spec) for spec in specs]
    facts = runner.facts(condition, works)
    return keyed(specs, facts, [runner.kernel_config_digest(work) for work in works], condition)


def keyed(
    specs: Sequence[Spec], facts: Mapping[str, str], config_digests: Sequence[str | None], condition: RunCondition
) -> list[Target]:
    """Give each spec the key of its row.

    Args:
        specs: what is to be measured. facts: conditions of all of them. config_digests: of the kernel configuration of
            each. condition: how they run.
    """
    common = {name: Fact(value=value, source="trace") for name, value in facts.items()}
    targets = []
    for spec, digest in zip(specs, config_digests, strict=True):
        config = {} if digest is None else {"kernel_config_digest": Fact(value=digest, source="trace")}
        setting = Setting(launch_mode=condition.launch_mode, conditions=common | config)
        targets.append(Target(spec=spec, key=ProfileKey(match=spec.match, setting=setting)))
    return targets


def missing_targets(database: ProfileDb, targets: Sequence[Target], *, num_passes: int) -> list[Target]:
    """Targets whose row has fewer than ``num_passes`` passes; each key once."""
    have = database.num_samples()
    found: dict[str, Target] = {}
    for target in targets:
        digest = target.digest
        if have.get(digest, 0) < num_passes:
            found.setdefault(digest, target)
    return list(found.values())


def smallest_and_largest(items: Sequence[T], num_rows: Callable[[T], int]) -> list[T]:
    """The items with the fewest and the most executed rows; one where they are the same."""
    by_rows = sorted(items, key=num_rows)
    return by_rows[:1] if by_rows[0] is by_rows[-1] else [by_rows[0], by_rows[-1]]


def refuse_wrong_output(runner: Runner, works: Sequence[Work], *, draw: int = 0) -> None:
    """Run the smallest and the largest of some works, and refuse the runner if it computes something else.

    Args:
        runner: what is checked. works: what it is to time, or has timed. draw: hidden states, see Runner.check.

    Raises:
        Inconsistent: an output beyond its bound, or a call that changed its inputs.
    """
    for work in smallest_and_largest(works, lambda work: len(work.topk_ids)):
        checked = runner.check(work, draw=draw)
        if not checked.passed:
            changed = f", changed {', '.join(checked.changed_inputs)}" if checked.changed_inputs else ""
            raise errors.Inconsistent(
                where=f"runner {runner.name}, {_place(work)}",
                expected=f"an output within {checked.bound} of the float64 reference, and inputs left as they were",
                found=f"relative error {checked.relative_error:.3g}{changed}",
                remedy="The kernel computes something else, so its times mean nothing; none of them is used.",
            )


def refuse_changed_ids(works: Iterable[tuple[Work, str]]) -> None:
    """Refuse works whose routed ids are no longer those that their row is keyed by.

    Args:
        works: each with the digest that its ids had.

    Raises:
        Inconsistent: ids that were changed since.
    """
    for work, before in works:
        digest = routed_ids_digest(work.topk_ids)
        if digest != before:
            raise errors.Inconsistent(
                where=_place(work),
                expected=f"routed ids {before}",
                found=digest,
                remedy="The runner changed the ids it was given, so its times are of another input; none is used.",
            )


def _place(work: Work) -> str:
    return f"iteration {work.iteration}, layer {work.layer}, rank {work.rank}"


def work_of(spec: Spec) -> Work:
    """What a runner needs of a spec."""
    return Work(
        iteration=spec.iteration,
        layer=spec.layer,
        rank=spec.rank,
        topk_ids=spec.topk_ids,
        topk_weights=spec.topk_weights,
        expert_map=spec.expert_map,
    )


def launch_modes(specs: Sequence[Spec], wanted: str) -> dict[LaunchMode, list[Spec]]:
    """Split specs by the launch mode to measure them in.

    Args:
        specs: what is wanted.
        wanted: eager, graph, or as-served (each as its iteration was served).

    Raises:
        MisuseError: as-served, and nothing says how an iteration was launched.
    """
    out: dict[LaunchMode, list[Spec]] = {}
    for spec in specs:
        mode = spec.served_launch_mode if wanted == "as-served" else wanted
        if mode not in {"eager", "graph"}:
            raise errors.MisuseError(
                where="--launch-mode",
                expected="eager or graph, since nothing says how it was launched",
                found=str(mode),
                remedy="Name the launch mode.",
            )
        out.setdefault(LaunchMode(mode), []).append(spec)
    return out
