"""moegauge verify: derive every number again from raw files, and name whatever differs.

A capture is derived again from its raw/ folder, a profile database from the raw traces inside it, a report from the
capture and the database it links to. Digests that were all refreshed after an edit do not help: the raw files
disagree with the edited row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_db import PassRecord, ProfileDb, open_profile_db
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.evidence.capture_folder import RAW_NAME, CaptureFolder, open_capture
from moegauge.evidence.capture_folder import RECORD_NAME as CAPTURE_RECORD
from moegauge.evidence.digest import file_digest, record_digest
from moegauge.evidence.report_folder import RECORD_NAME as REPORT_RECORD
from moegauge.evidence.report_folder import TABLES
from moegauge.evidence.store import file_differences, read_record
from moegauge.evidence.tables import TableSchema, first_difference, read_table
from moegauge.jobs.align import with_table_digests
from moegauge.jobs.capture_derivation import derive
from moegauge.jobs.capture_import import capture_record
from moegauge.jobs.ladder_derivation import derive_ladder
from moegauge.jobs.profile_derivation import ReplayLabels, derive_samples
from moegauge.jobs.progress import Progress, silent
from moegauge.records.comparison import LadderReport
from moegauge.records.schema import Record

_SAMPLE = ("busy_ns", "span_ns", "gap_ns", "foreign_ns", "num_kernels", "device", "kernels_digest", "key")


@dataclass(frozen=True)
class Verification:
    """What was derived again, and what differs.

    Attributes:
        path: what was verified. kind: capture or report.
        checked: one line a kind of number, with how many.
        differences: one sentence each, naming file and row; empty where everything was derived again.
    """

    path: str
    kind: str
    checked: tuple[str, ...]
    differences: tuple[str, ...]


def verify(path: Path, *, progress: Progress = silent) -> Verification:
    """Verify a capture folder or a report folder.

    Raises:
        EvidenceError: the folder cannot be read at all.
        MisuseError: neither a capture nor a report.
    """
    if (path / CAPTURE_RECORD).is_file():
        checked, differences = _capture(path, progress)
        return Verification(str(path), "capture", tuple(checked), tuple(differences))
    if (path / REPORT_RECORD).is_file():
        checked, differences = _report(path, progress)
        return Verification(str(path), "report", tuple(checked), tuple(differences))
    raise errors.MisuseError(
        where=str(path),
        expected=f"a folder with {CAPTURE_RECORD} or {REPORT_RECORD}",
        found="neither" if path.is_dir() else "no folder",
        remedy="Give a capture or a report folder.",
    )


def _capture(path: Path, progress: Progress) -> tuple[list[str], list[str]]:
    """Digests first; then, unless raw files themselves changed, everything from raw/."""
    folder = open_capture(path)
    record = folder.record
    head = frozenset({CAPTURE_RECORD})
    differences = file_differences(path, record.files, leave_out=head)
    checked = [f"{len(record.files)} file digests"]
    try:
        derived = derive(path / RAW_NAME, kind_name=record.kernel.kind, partial=record.partial, progress=progress)
    except errors.EvidenceError as error:
        return checked, [*differences, f"{RAW_NAME}: cannot be derived again: {error}"]
    again = capture_record(derived, created_at=record.created_at, tool_version=record.tool_version, files=record.files)
    differences += [f"{CAPTURE_RECORD} {line}" for line in _record_differences(record, again)]
    for schema in folder.schemas():
        rows = derived.tables[schema.name]
        checked.append(f"{rows.height} rows of {schema.name}")
        differences += _table_differences(path, schema, rows)
    return checked, differences


def _table_differences(path: Path, schema: TableSchema, rows: pl.DataFrame) -> list[str]:
    try:
        return first_difference(schema, read_table(path / f"{schema.name}.parquet", schema), rows)
    except errors.EvidenceError as error:
        return [str(error)]


def _record_differences(recorded: Record, derived: Record) -> list[str]:
    """Paths of fields that differ between two records, with both values."""
    return _differences(msgspec.to_builtins(recorded), msgspec.to_builtins(derived), "")


def _differences(one: object, other: object, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [
            line
            for key in keys
            for line in _differences(one.get(key), other.get(key), f"{path}.{key}" if path else key)
        ]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        return [line for index, (a, b) in enumerate(pairs) for line in _differences(a, b, f"{path}[{index}]")]
    return [] if one == other else [f"{path}: recorded {one!r}, derived {other!r}"]


def _report(path: Path, progress: Progress) -> tuple[list[str], list[str]]:
    report = read_record(path / REPORT_RECORD, LadderReport)
    capture_path = (path / report.evidence.capture.path).parent
    database_path = path / report.evidence.measurements.path
    checked, differences = _capture(capture_path, progress)
    differences = [f"{report.evidence.capture.path}: {line}" for line in differences]
    folder = open_capture(capture_path)
    with open_profile_db(database_path) as database:
        num, lines = _measurements(folder, database, progress)
        checked.append(f"{num} isolated samples")
        differences += [f"{report.evidence.measurements.path}: {line}" for line in lines]
        if differences:
            return checked, [*differences, "the report was not derived again: its evidence differs"]
        derived = derive_ladder(folder, database, report.settings, report_folder=path)
    again = msgspec.structs.replace(
        with_table_digests(derived.report, report.evidence.tables), tool_version=report.tool_version
    )
    differences = [f"{REPORT_RECORD} {line}" for line in _record_differences(report, again)]
    checked.append(f"{len(report.rungs)} rungs")
    for schema in TABLES:
        checked.append(f"{derived.tables[schema.name].height} rows of {schema.name}")
        differences += _table_differences(path, schema, derived.tables[schema.name])
    differences += _report_files(path, report)
    return checked, differences


def _report_files(path: Path, report: LadderReport) -> list[str]:
    return [
        f"{name}: changed (recorded {digest}, found {file_digest(path / name)})"
        for name, digest in sorted(report.evidence.tables.items())
        if (path / name).is_file() and file_digest(path / name) != digest
    ]


def _measurements(capture: CaptureFolder, database: ProfileDb, progress: Progress) -> tuple[int, list[str]]:
    """Derive every sample of passes over this capture again from the raw traces in the database."""
    keys = {row.row_id: record_digest(row.key) for row in database.rows(capture.record.kernel.kind)}
    stored = database.samples().with_columns(
        key=pl.col("row_id").replace_strict(keys, default=None, return_dtype=pl.String)
    )
    passes = {number: one for number, one in database.passes().items() if one.capture_digest == capture.digest}
    lines: list[str] = []
    total = 0
    for done, (number, record) in enumerate(passes.items()):
        progress(f"deriving pass {number} again", done, len(passes))
        mine = stored.filter(pl.col("pass_id") == number)
        total += mine.height
        try:
            lines += _sample_differences(number, mine, _derived_samples(capture, database, record))
        except errors.EvidenceError as error:
            lines.append(f"pass {number}: cannot be derived again: {error}")
    others = stored.filter(~pl.col("pass_id").is_in(list(passes)))
    if others.height:
        lines.append(
            f"{others.height} samples of passes over another capture ({sorted(set(others['pass_id'].to_list()))})"
        )
    return total, lines


def _derived_samples(capture: CaptureFolder, database: ProfileDb, record: PassRecord) -> pl.DataFrame:
    labels = ReplayLabels(record.tag, record.launch_mode, record.declared)
    rows = []
    for rank, digest in record.traces.items():
        name, data = database.artifact(digest)
        derived = derive_samples(capture, int(rank), parse_kineto(data, source=name), labels)
        rows += [sample.columns | {"key": record_digest(sample.key)} for sample in derived.samples]
    return pl.DataFrame(rows)


def _sample_differences(number: int, stored: pl.DataFrame, derived: pl.DataFrame) -> list[str]:
    place = ["iteration", "layer", "rank"]
    both = stored.join(derived, on=place, how="full", suffix="__derived", coalesce=True).sort(place)
    lines = []
    for column in _SAMPLE:
        changed = both.filter(pl.col(column).ne_missing(pl.col(f"{column}__derived"))).head(5)
        lines += [
            f"pass {number}, iteration {row['iteration']}, layer {row['layer']}, rank {row['rank']}: {column} recorded "
            f"{row[column]}, derived {row[f'{column}__derived']}"
            for row in changed.to_dicts()
        ]
    return lines
