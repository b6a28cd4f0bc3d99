"""moegauge profile list, count-missing, query: what is measured, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moegauge.adapters.profile_db import ProfileRow, open_profile_db
from moegauge.evidence.digest import record_digest
from moegauge.jobs.given_inputs import Given, open_inputs
from moegauge.jobs.profile_run import RunnerChoice, Wanted, wanted_specs
from moegauge.jobs.profile_specs import Spec
from moegauge.jobs.rank_condition import imported_rows
from moegauge.records.measurement import ALONE, CONDITIONS, LIMITS
from moegauge.records.profile import Setting

CONDITION_NAMES = (*CONDITIONS, *LIMITS, "co_running", "kernel_config")
"""What a lookup may ask of the conditions a row was measured under."""

_ABSENT = {"co_running": "nothing", "kernel_config": "as found", "ranks": ALONE}
"""What the absence of a condition means of rows that a runner measured, where it is not that nobody recorded it."""


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
    source = open_inputs(inputs, choice.name, expert_parallel=wanted.expert_parallel)
    specs = [spec for one in wanted.inputs for spec in wanted_specs(source, wanted, one)]
    with open_profile_db(db) as database:
        rows, have, imported = database.rows(), database.num_samples(), imported_rows(database)
    stored = [
        _flat(msgspec.to_builtins(row.key.match)) | _flat_setting(row.key.setting, row.row_id in imported)
        for row in rows
    ]
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


def _flat_setting(setting: Setting, imported: bool) -> dict[str, object]:
    """Launch mode and every condition of CONDITION_NAMES, with what its absence means."""
    absent = _ABSENT | ({"ranks": "not recorded"} if imported else {})
    found = {name: setting.conditions.get(name) for name in CONDITION_NAMES}
    values = {name: absent.get(name, "not recorded") if fact is None else fact.value for name, fact in found.items()}
    return {"launch_mode": setting.launch_mode} | {f"conditions.{name}": value for name, value in values.items()}


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix: value}
    out: dict[str, object] = {}
    for name, inner in value.items():
        out |= _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    return out
