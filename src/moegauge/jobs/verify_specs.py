"""Passes that ran on a spec: their inputs derived again from the spec that the database keeps beside them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_db import ProfileDb, ProfileRow
from moegauge.evidence.digest import record_digest
from moegauge.jobs.given_inputs import Given, GivenSource
from moegauge.jobs.profile_specs import GIVEN, InputChoice, Spec
from moegauge.jobs.progress import Progress
from moegauge.jobs.verification import SHOWN, invocation
from moegauge.records.profile import InputLabel
from moegauge.records.profile_spec import ProfileSpec
from moegauge.records.schema import decode_record

_PLACE = ["iteration", "layer", "rank"]


def differing_given_inputs(database: ProfileDb, progress: Progress) -> tuple[list[str], list[str]]:
    """What was checked of passes that ran on a spec, and what differs, as one sentence each.

    Rows are held against what the spec of their pass gives at their place. The label of a row is that of whoever
    measured it first, so it has to be what one of the stored specs says of the same input.
    """
    rows = {row.row_id: row for row in database.rows(every_generation=True)}
    lines, checked = _without_origin(database), 0
    labels: dict[str, list[InputLabel]] = {}
    derived_rows: dict[int, ProfileRow] = {}
    groups = _places(database).partition_by("spec", maintain_order=True)
    for done, group in enumerate(groups):
        progress("deriving given inputs again", done, len(groups))
        mine = {row_id: rows[row_id] for row_id in group["row_id"].unique().to_list() if row_id in rows}
        try:
            specs = _specs(database, group["spec"][0], mine.values())
        except errors.MoegaugeError as error:
            lines.append(f"pass {group['pass_id'][0]}: its spec cannot be read: {error}")
            continue
        for spec in (one for by_place in specs.values() for one in by_place.values()):
            labels.setdefault(record_digest(spec.match), []).append(spec.label)
        checked += group.height
        found = []
        for place in group.to_dicts():
            differences = _differences(mine.get(place["row_id"]), specs, tuple(place[name] for name in _PLACE))
            found += [f"{invocation(place)}: {line}" for line in differences]
            if not differences:
                derived_rows[place["row_id"]] = mine[place["row_id"]]
        lines += found[:SHOWN]
    lines += _other_labels(derived_rows.values(), labels)[:SHOWN]
    return [f"inputs of {checked} invocations from their specs"] * bool(checked), lines


def _places(database: ProfileDb) -> pl.DataFrame:
    """What was measured on specs: spec, row_id, place, and the first pass."""
    specs = {number: one.spec_digest for number, one in database.passes().items() if one.spec_digest is not None}
    samples = database.samples().filter(pl.col("pass_id").is_in(list(specs)))
    samples = samples.with_columns(spec=samples["pass_id"].replace_strict(specs, return_dtype=pl.String))
    return samples.group_by("spec", "row_id", *_PLACE, maintain_order=True).agg(pl.col("pass_id").first())


_Place = tuple[int, ...]
_Kernel = tuple[str, str]


def _specs(database: ProfileDb, digest: str, rows: Iterable[ProfileRow]) -> dict[_Kernel, dict[_Place, Spec]]:
    """Specs of a stored spec by place, for every kernel that rows were measured with."""
    name, data = database.artifact(digest)
    given = Given(decode_record(data, ProfileSpec, where=name), f"{database.path}: {name}")
    kernels = {(row.key.match.subject.kernel_kind, row.key.match.subject.backend) for row in rows}
    found = {kernel: GivenSource(given, kernel=kernel).specs(InputChoice(type=GIVEN)) for kernel in sorted(kernels)}
    return {k: {(one.iteration, one.layer, one.rank): one for one in specs} for k, specs in found.items()}


def _differences(row: ProfileRow | None, specs: dict[_Kernel, dict[_Place, Spec]], place: _Place) -> list[str]:
    """In what a row differs from the input that its spec gives at its place."""
    if row is None:
        return ["its row is missing"]
    subject = row.key.match.subject
    spec = specs[subject.kernel_kind, subject.backend].get(place)
    if spec is None:
        return ["its spec gives no such invocation"]
    recorded, derived = msgspec.to_builtins(row.key.match), msgspec.to_builtins(spec.match)
    return [
        f"{name} recorded {value}, derived {derived[name]}"
        for name, value in recorded.items()
        if derived[name] != value
    ]


def _other_labels(rows: Iterable[ProfileRow], labels: dict[str, list[InputLabel]]) -> list[str]:
    """Rows whose label no stored spec gives to their input."""
    return [
        f"row {row.row_id}: label recorded {msgspec.to_builtins(row.label)}, which no stored spec gives to its input"
        for row in rows
        if row.label not in labels[record_digest(row.key.match)]
    ]


def _without_origin(database: ProfileDb) -> list[str]:
    """Samples of passes that are missing, or that say neither on which capture nor on which spec they ran."""
    passes = database.passes()
    lines = []
    for number, count in database.samples().group_by("pass_id").len().sort("pass_id").iter_rows():
        if number not in passes:
            lines.append(f"pass {number}: missing, so its {count} samples are only what was recorded")
        elif passes[number].capture_digest is None and passes[number].spec_digest is None:
            lines.append(
                f"pass {number}: neither a capture nor a spec is recorded, so its {count} samples are only what was "
                "recorded"
            )
    return lines
