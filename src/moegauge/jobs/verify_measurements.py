"""moegauge profile verify: derive the samples of a profile database again, and name whatever differs.

Samples of imported replays are derived again from the raw traces inside the database. Those a runner measured are raw
themselves, and said to be; the input each of them stands for is derived again from the capture, or from the spec that
the database keeps (verify_specs).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_db import ProfileDb, ProfileRow, open_profile_db
from moegauge.adapters.traces.recognition import parse_trace
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.digest import kernel_sequence_digest, record_digest
from moegauge.jobs.expert_shards import ranks_of, served_type
from moegauge.jobs.profile_derivation import ReplayLabels, derive_samples
from moegauge.jobs.profile_specs import InputChoice, Spec, SpecSource
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.verification import SHOWN, Verification, invocation
from moegauge.jobs.verify_specs import differing_given_inputs
from moegauge.records.profile import PassRecord

_PLACE = ["iteration", "layer", "rank"]
_SAMPLE = ("busy_ns", "span_ns", "foreign_ns", "num_kernels", "device", "kernels_digest", "key")


def verify_database(db: Path, capture: Path | None, *, progress: Progress = silent) -> Verification:
    """Verify a profile database against the capture and the specs whose inputs were measured.

    Args:
        db: profile database. capture: needed where a pass was measured on one. progress: told of each step.

    Raises:
        EvidenceError: the database or the capture cannot be read.
        MisuseError: nothing in the database was measured on this capture; or none is given and something was.
    """
    folder = None if capture is None else open_capture(capture)
    with open_profile_db(db) as database:
        _refuse_unverifiable(database, folder)
        found = [differing_samples(folder, database, progress)]
        if folder is not None:
            found.append(_other_inputs(folder, database, progress))
        found.append(differing_given_inputs(database, progress))
    checked = tuple(line for one, _ in found for line in one)
    return Verification(str(db), "profile database", checked, tuple(line for _, other in found for line in other))


def _refuse_unverifiable(database: ProfileDb, capture: CaptureFolder | None) -> None:
    """Refuse a database that holds nothing, or passes whose capture is not the one that was given."""
    passes = database.passes().values()
    on_a_capture = sum(record.capture_digest is not None for record in passes)
    if capture is None and on_a_capture:
        raise errors.MisuseError(
            where="--capture",
            expected="the capture whose inputs were measured",
            found=f"none, and {on_a_capture} of {len(passes)} passes were measured on a capture",
            remedy="Give it; nothing is taken for verified without it.",
        )
    if capture is None and not passes:
        raise errors.MisuseError(
            where=str(database.path), expected="passes", found="0 passes", remedy="Measure or import some."
        )
    if capture is not None and all(record.capture_digest != capture.raw_digest for record in passes):
        raise errors.MisuseError(
            where=str(database.path),
            expected=f"passes measured on the inputs of {capture.path}",
            found=f"{len(passes)} passes, none of them on this capture",
            remedy="Give the capture whose inputs were measured, or none where all passes ran on specs.",
        )


def differing_samples(
    capture: CaptureFolder | None, database: ProfileDb, progress: Progress = silent
) -> tuple[list[str], list[str]]:
    """What was checked of the samples over a capture (or of specs alone), and what differs, as one sentence each."""
    keys = {row.row_id: record_digest(row.key) for row in database.rows(every_generation=True)}
    samples = database.samples()
    stored = samples.with_columns(key=samples["row_id"].replace_strict(keys, default=None, return_dtype=pl.String))
    every = database.passes()
    passes = {n: one for n, one in every.items() if capture is not None and one.capture_digest == capture.raw_digest}
    imported = {number: one for number, one in passes.items() if one.traces}
    lines: list[str] = []
    for done, (number, record) in enumerate(imported.items()):
        assert capture is not None  # noqa: S101 - without a capture no pass is of it
        progress(f"deriving pass {number} again", done, len(imported))
        mine = stored.filter(pl.col("pass_id") == number)
        try:
            lines += _differences(number, mine, _derived_samples(capture, database, record))
        except errors.EvidenceError as error:
            lines.append(f"pass {number}: cannot be derived again: {error}")
    derived = stored.filter(pl.col("pass_id").is_in(list(imported)))
    raw = stored.filter(pl.col("pass_id").is_in(list(passes.keys() - imported.keys())))
    given = stored.filter(pl.col("pass_id").is_in([n for n, one in every.items() if one.spec_digest is not None]))
    lines += [
        f"{invocation(row)}: busy {row['busy_ns']} ns exceeds span {row['span_ns']} ns"
        for row in stored.filter(pl.col("busy_ns") > pl.col("span_ns")).to_dicts()
    ]
    counts = {
        "isolated samples from their traces": derived.height,
        "raw isolated samples (no trace kept)": raw.height,
        "raw isolated samples of specs (no trace kept)": given.height,
        "isolated samples of other captures, not derived again": stored.height
        - derived.height
        - raw.height
        - given.height,
    }
    return [f"{num} {what}" for what, num in counts.items() if num], lines


def _derived_samples(capture: CaptureFolder, database: ProfileDb, record: PassRecord) -> pl.DataFrame:
    labels = ReplayLabels(record.tag, record.launch_mode, record.declared)
    rows = []
    for rank, digest in record.traces.items():
        name, data = database.artifact(digest)
        derived = derive_samples(capture, int(rank), parse_trace(data, source=name), labels)
        rows += [
            sample.columns
            | {"key": record_digest(sample.key), "kernels_digest": kernel_sequence_digest(sample.kernel_names)}
            for sample in derived.samples
        ]
    return pl.DataFrame(rows)


def _differences(number: int, stored: pl.DataFrame, derived: pl.DataFrame) -> list[str]:
    both = stored.join(derived, on=_PLACE, how="full", suffix="__derived", coalesce=True).sort(_PLACE)
    both = both.with_columns(pass_id=pl.lit(number))
    lines = []
    for column in _SAMPLE:
        changed = both.filter(pl.col(column).ne_missing(pl.col(f"{column}__derived"))).head(SHOWN)
        lines += [
            f"{invocation(row)}: {column} recorded {row[column]}, derived {row[f'{column}__derived']}"
            for row in changed.to_dicts()
        ]
    return lines


@dataclass(frozen=True)
class _Origin:
    """What one kind of input is drawn again from: the kernel (kind, backend) it was for, and the choice behind it."""

    kernel: tuple[str, str]
    choice: InputChoice
    version: int | None
    expert_parallel: int | None


def _origin(row: ProfileRow) -> _Origin:
    label, subject = row.label, row.key.match.subject
    drawn = {} if label.sampler is None else {"sampler": label.sampler, "padding": str(label.padding)}
    input_type, expert_parallel = served_type(row.key.match.input_type)
    choice = InputChoice(type=input_type, seed=label.seed or 0, **drawn)
    return _Origin((subject.kernel_kind, subject.backend), choice, label.version, expert_parallel)


def _other_inputs(capture: CaptureFolder, database: ProfileDb, progress: Progress) -> tuple[list[str], list[str]]:
    """What was checked of the inputs that a runner measured, and rows that are not of the input their place has."""
    rows = {row.row_id: row for row in database.rows(every_generation=True)}
    run = [n for n, one in database.passes().items() if not one.traces and one.capture_digest == capture.raw_digest]
    raw = database.samples().filter(pl.col("pass_id").is_in(run))
    lines: list[str] = []
    places = raw.group_by("row_id", *_PLACE, maintain_order=True).agg(pl.col("pass_id").first())
    lines += [f"{invocation(place)}: its row is missing" for place in places.to_dicts() if place["row_id"] not in rows]
    origins = {row_id: _origin(rows[row_id]) for row_id in places["row_id"].unique().sort().to_list() if row_id in rows}
    sources = {kernel: SpecSource(capture, subject_kind=kernel) for kernel in {one.kernel for one in origins.values()}}
    distinct = list(dict.fromkeys(origins.values()))
    for done, origin in enumerate(distinct):
        progress(f"drawing {origin.choice.type} inputs again", done, len(distinct))
        mine = [row_id for row_id, one in origins.items() if one == origin]
        try:
            specs = ranks_of(sources[origin.kernel], origin.expert_parallel).specs(origin.choice)
        except errors.MoegaugeError as error:
            lines.append(f"{origin.choice.type} inputs: cannot be derived again: {error}")
            continue
        wanted = {(spec.iteration, spec.layer, spec.rank): _input(spec) for spec in specs}
        found = []
        for place in places.filter(pl.col("row_id").is_in(mine)).to_dicts():
            recorded = _input(rows[place["row_id"]])
            derived = wanted.get((place["iteration"], place["layer"], place["rank"]), {})
            found += [
                f"{invocation(place)}: {origin.choice.type} input: {name} recorded {value}, derived {derived.get(name)}"
                for name, value in recorded.items()
                if derived.get(name) != value
            ]
        lines += found[:SHOWN]
    return [f"inputs of {places.height} invocations from the capture"] * bool(places.height), lines


def _input(one: Spec | ProfileRow) -> dict[str, object]:
    """What names an input, of a wanted or a stored row."""
    match = one.match if isinstance(one, Spec) else one.key.match
    return msgspec.to_builtins(match) | {"version": one.label.version}  # type: ignore[no-any-return]
