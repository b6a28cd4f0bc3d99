"""moegauge profile run, list, count-missing, query: what is measured, what is missing, and filling it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.adapters.profile_db import ProfileRow, open_profile_db
from moegauge.adapters.runners.kernel_config import read_kernel_config
from moegauge.adapters.runners.registry import RUNNERS, make_runner
from moegauge.adapters.runners.work import ModelSpec, RunCondition
from moegauge.evidence.digest import record_digest
from moegauge.jobs.fill import Filled, Group, fill
from moegauge.jobs.given_inputs import Given, open_inputs
from moegauge.jobs.profile_specs import InputChoice, InputSource, Spec
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.targets import launch_modes, work_of
from moegauge.records.measurement import CONDITIONS, LIMITS
from moegauge.records.profile import Setting

CONDITION_NAMES = (*CONDITIONS, *LIMITS, "co_running", "kernel_config")
"""What a lookup may ask of the conditions a row was measured under."""

_ABSENT = {"co_running": "nothing", "kernel_config": "as found"}
"""What the absence of a condition means, where it is not that nobody recorded it."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows of a capture or of a spec are wanted.

    Attributes:
        inputs: representations and how they are drawn; each is a group of its own in every pass.
        iterations, layers, ranks: only these; None for all.
        launch_mode: as-served, eager or graph. cache_state, co_running: see adapters.runners.work.RunCondition.
        num_passes: passes every row shall have.
    """

    inputs: tuple[InputChoice, ...]
    iterations: frozenset[int] | None = None
    layers: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    launch_mode: str = "as-served"
    cache_state: str = "in_order"
    co_running: int | None = None
    num_passes: int = 7


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


@dataclass(frozen=True)
class RowView:
    """One wanted or stored row for a table: its place, key and passes; ``differs`` names what keeps near rows apart."""

    input_type: str
    iteration: int
    layer: int
    rank: int
    executed_rows: int
    input_digest: str
    num_passes: int
    status: str
    differs: tuple[str, ...]


def run(
    inputs: Path | Given,
    db: Path,
    wanted: Wanted,
    choice: RunnerChoice,
    *,
    force: bool = False,
    progress: Progress = silent,
) -> Filled:
    """Measure what the database lacks of the wanted rows.

    Args:
        inputs: capture folder, or a spec. db: profile database; made where there is none.
        wanted: rows. choice: runner. force: measure again, as a new generation. progress: told after every chunk.

    Raises:
        EvidenceError, MisuseError
    """
    source = open_inputs(inputs, choice.name)
    recorded = list(source.ranks)
    ranks = [rank for rank in recorded if wanted.ranks is None or rank in wanted.ranks]
    if not ranks:
        raise errors.MisuseError(
            where="--ranks",
            expected=f"recorded ranks, out of {recorded}",
            found=str(sorted(wanted.ranks or [])),
            remedy="moegauge capture show lists what was captured.",
        )
    kernel_config = None if choice.kernel_config is None else read_kernel_config(choice.kernel_config)
    done: list[Filled] = []
    for rank in ranks:
        groups = _groups(source, replace(wanted, ranks=frozenset({rank})))
        runner = make_runner(choice.name, _model(source, rank, choice, cache_state=wanted.cache_state), kernel_config)
        for group in groups:
            runner.facts(group.condition, [work_of(spec) for spec in group.specs])
        with open_profile_db(db, create=True) as database:
            filled = fill(
                database, source, runner, groups, num_passes=wanted.num_passes, force=force, progress=progress
            )
        done.append(filled)
    return _together(done)


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


def query(
    inputs: Path | Given, db: Path, wanted: Wanted, choice: RunnerChoice, *, conditions: Mapping[str, str] | None = None
) -> list[RowView]:
    """Stored passes of every wanted row; missing ones with what differs.

    A row is found by kernel, shape, input, launch mode and the given conditions; whatever else it was measured under
    is not asked, and of several the one with most passes is shown. ``differs`` is empty for a hit. For a miss it names
    the fields in which the nearest stored row differs.

    Args:
        inputs: capture folder, or a spec. db: profile database. wanted: rows. choice: runner.
        conditions: values by name (CONDITION_NAMES) that a row must have been measured under.
    """
    asked = {f"conditions.{name}": value for name, value in (conditions or {}).items()}
    source = open_inputs(inputs, choice.name)
    specs = [spec for one in wanted.inputs for spec in wanted_specs(source, wanted, one)]
    with open_profile_db(db) as database:
        rows, have = database.rows(), database.num_samples()
    stored = [_flat(msgspec.to_builtins(row.key.match)) | _flat_setting(row.key.setting) for row in rows]
    by_match: dict[str, list[tuple[ProfileRow, dict[str, object]]]] = {}
    for row, fields in zip(rows, stored, strict=True):
        by_match.setdefault(record_digest(row.key.match), []).append((row, fields))
    views = []
    for spec in specs:
        found = by_match.get(record_digest(spec.match), [])
        mode = spec.served_launch_mode if wanted.launch_mode == "as-served" else wanted.launch_mode
        fitting = [
            row
            for row, fields in found
            if (row.key.setting.launch_mode in {None, mode} or mode is None) and asked.items() <= fields.items()
        ]
        counted = [(have.get(record_digest(row.key), 0), str(row.status)) for row in fitting]
        passes, status = max(counted, default=(0, "missing"))
        differs = () if fitting else _nearest_difference(spec, stored, asked, mode)
        views.append(
            RowView(
                spec.match.input_type,
                spec.iteration,
                spec.layer,
                spec.rank,
                spec.match.executed_rows,
                spec.match.input_digest,
                passes,
                status,
                differs,
            )
        )
    return views


def list_rows(db: Path) -> list[ProfileRow]:
    """Newest generation of every stored row."""
    with open_profile_db(db) as database:
        return database.rows()


def _nearest_difference(
    spec: Spec, stored: list[dict[str, object]], asked: dict[str, str], mode: str | None
) -> tuple[str, ...]:
    """Fields in which the stored row that differs least from a wanted one differs."""
    wanted = {**_flat(msgspec.to_builtins(spec.match)), **({} if mode is None else {"launch_mode": mode}), **asked}
    differences = (tuple(name for name, value in wanted.items() if row.get(name) != value) for row in stored)
    return min(differences, key=len, default=("no rows at all",))


def _flat_setting(setting: Setting) -> dict[str, object]:
    """Launch mode and every condition of CONDITION_NAMES, with what its absence means."""
    found = {name: setting.conditions.get(name) for name in CONDITION_NAMES}
    values = {name: _ABSENT.get(name, "not recorded") if fact is None else fact.value for name, fact in found.items()}
    return {"launch_mode": setting.launch_mode} | {f"conditions.{name}": value for name, value in values.items()}


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix: value}
    out: dict[str, object] = {}
    for name, inner in value.items():
        out |= _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    return out


def _model(source: InputSource, rank: int, choice: RunnerChoice, *, cache_state: str) -> ModelSpec:
    own = RUNNERS[choice.name][4]
    default = len(source.layers) if own or cache_state == "served_order" else 1
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


def _together(done: list[Filled]) -> Filled:
    return Filled(
        sum(one.num_rows for one in done),
        sum(one.num_measured for one in done),
        sum(one.num_passes for one in done),
        sum(one.num_missing for one in done),
        tuple(failure for one in done for failure in one.failures),
    )
