"""moegauge verify: derive every number again from raw files, and name whatever differs.

A capture is derived again from its raw/ folder, a report from the capture and the profile database it links to, whose
samples are derived again as verify_measurements does it. Digests that were all refreshed after an edit do not help:
the raw files disagree with the edited row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.profile_schema import is_sqlite
from moegauge.comparison.verdict import judged
from moegauge.evidence.capture_folder import RAW_NAME, open_capture
from moegauge.evidence.capture_folder import RECORD_NAME as CAPTURE_RECORD
from moegauge.evidence.report_folder import RECORD_NAME as REPORT_RECORD
from moegauge.evidence.report_folder import TABLES
from moegauge.evidence.store import describe_files, file_differences, head_differences, head_files, read_record
from moegauge.evidence.tables import TableSchema, first_difference, read_table
from moegauge.jobs.align import with_table_digests
from moegauge.jobs.capture_derivation import derive
from moegauge.jobs.capture_import import capture_record
from moegauge.jobs.compare import RECORD_NAME as COMPARE_RECORD
from moegauge.jobs.ladder_derivation import derive_ladder
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.tune import RECORD_NAME as TUNING_RECORD
from moegauge.jobs.verification import Verification
from moegauge.jobs.verify_lane import is_lane, verify_lane
from moegauge.jobs.verify_measurements import differing_samples
from moegauge.jobs.verify_tuning import derive_tuning_again
from moegauge.records.comparison import LadderReport
from moegauge.records.kernel_compare import CompareReport

_Outcome = tuple[list[str], list[str]]
"""What was checked, and what differs."""

_DeriveAgain = Callable[[Path, Progress], _Outcome]


def verify(path: Path, *, progress: Progress = silent) -> Verification:
    """Verify a capture folder, a report folder, a tuning folder or a lane folder.

    Raises:
        EvidenceError: the folder cannot be read at all.
        MisuseError: none of them (a profile database has a verb of its own).
    """
    for name, kind, derive_again in (
        (CAPTURE_RECORD, "capture", _capture),
        (REPORT_RECORD, "report", _report),
        (COMPARE_RECORD, "comparison", _comparison),
        (TUNING_RECORD, "tuning", derive_tuning_again),
    ):
        if (path / name).is_file():
            checked, differences = _with_head(path, name, derive_again, progress)
            return Verification(str(path), kind, tuple(checked), tuple(differences))
    if is_lane(path):
        return verify_lane(path)
    if is_sqlite(path):
        raise errors.MisuseError(
            where=str(path),
            expected="a capture, report, tuning or lane folder",
            found="a profile database, which is verified against the capture whose inputs were measured",
            remedy=f"moegauge profile verify {path} --capture CAPTURE",
        )
    raise errors.MisuseError(
        where=str(path),
        expected=f"a folder with {CAPTURE_RECORD}, {REPORT_RECORD}, {TUNING_RECORD} or the steps of a lane",
        found="neither a capture, nor a report, nor a lane" if path.is_dir() else "no folder",
        remedy="Give a capture, a report or a lane folder.",
    )


def _with_head(path: Path, name: str, derive_again: _DeriveAgain, progress: Progress) -> _Outcome:
    """Hold the head against its digest; one that was changed but can be read may still lead nowhere."""
    changed = head_differences(path, name)
    try:
        checked, differences = derive_again(path, progress)
    except errors.MoegaugeError as error:
        if not changed or error.where == str(path / name):
            raise
        return [], [*changed, f"{name}: nothing could be derived from it: {error}"]
    return checked, [*changed, *differences]


def _capture(path: Path, progress: Progress) -> _Outcome:
    """Digests first; then, unless raw files themselves changed, everything from raw/."""
    folder = open_capture(path)
    record = folder.record
    differences = file_differences(path, record.files, leave_out=head_files(CAPTURE_RECORD))
    changed = {line.partition(": ")[0] for line in differences}
    checked = [f"{len(record.files)} file digests"]
    if any(name.startswith(f"{RAW_NAME}/") for name in changed):
        return checked, [*differences, f"nothing was derived again: {RAW_NAME}/ is not what was recorded"]
    try:
        derived = derive(path / RAW_NAME, kind_name=record.kernel.kind, partial=record.partial, progress=progress)
    except errors.EvidenceError as error:
        return checked, [*differences, f"{RAW_NAME}: cannot be derived again: {error}"]
    again = capture_record(derived, created_at=record.created_at, tool_version=record.tool_version, files=record.files)
    differences += [f"{CAPTURE_RECORD} {line}" for line in _record_differences(record, again)]
    for schema in folder.schemas():
        rows = derived.tables[schema.name]
        checked.append(f"{rows.height} rows of {schema.name}")
        if f"{schema.name}.parquet" not in changed:
            differences += _table_differences(path, schema, rows)
    return checked, differences


def _table_differences(path: Path, schema: TableSchema, rows: pl.DataFrame) -> list[str]:
    """Rows that differ, of a table whose bytes are those that were recorded (others are not worth parsing)."""
    try:
        return first_difference(schema, read_table(path / f"{schema.name}.parquet", schema), rows)
    except errors.EvidenceError as error:
        return [str(error)]


def _record_differences(recorded: msgspec.Struct, derived: msgspec.Struct) -> list[str]:
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


def _report(path: Path, progress: Progress) -> _Outcome:
    report = read_record(path / REPORT_RECORD, LadderReport)
    capture_path = (path / report.evidence.capture.path).parent
    database_path = path / report.evidence.measurements.path
    files = _report_files(path, report)
    checked, differences = _with_head(capture_path, CAPTURE_RECORD, _capture, progress)
    differences = [f"{report.evidence.capture.path}: {line}" for line in differences]
    folder = open_capture(capture_path)
    with open_profile_db(database_path) as database:
        samples, lines = differing_samples(folder, database, progress)
        checked += samples
        differences += [f"{report.evidence.measurements.path}: {line}" for line in lines]
        if differences:
            return checked, [*files, *differences, "the report was not derived again: its evidence differs"]
        derived = derive_ladder(folder, database, report.settings, report_folder=path)
    again = msgspec.structs.replace(
        with_table_digests(derived.report, report.evidence.tables),
        tool_version=report.tool_version,
        capture_name=report.capture_name,
    )
    differences = [*files, *(f"{REPORT_RECORD} {line}" for line in _record_differences(report, again))]
    changed = {line.partition(": ")[0] for line in files}
    checked.append(f"{len(report.rungs)} rungs")
    for schema in TABLES:
        checked.append(f"{derived.tables[schema.name].height} rows of {schema.name}")
        if f"{schema.name}.parquet" not in changed:
            differences += _table_differences(path, schema, derived.tables[schema.name])
    return checked, differences


def _comparison(path: Path, _: Progress) -> _Outcome:
    """The verdict from the raw observations; those themselves are raw data."""
    report = read_record(path / COMPARE_RECORD, CompareReport)
    lines = _record_differences(report.result, judged(report.raw, report.options))
    extra = sorted(file_differences(path, {}, leave_out=head_files(COMPARE_RECORD)))
    checked = [
        f"{len(report.raw.bits)} raw exactness observations",
        f"{len(report.raw.blocks)} raw blocks",
        "the verdict",
    ]
    return checked, [*extra, *(f"{COMPARE_RECORD} result.{line}" for line in lines)]


def _report_files(path: Path, report: LadderReport) -> list[str]:
    """One sentence for each file of a report folder that is missing, not recorded or changed."""
    present = {name: found.digest for name, found in describe_files(path, leave_out=head_files(REPORT_RECORD)).items()}
    recorded = report.evidence.tables
    expected = {f"{schema.name}.parquet" for schema in TABLES}
    lines = [f"{name}: recorded but missing" for name in sorted((recorded.keys() | expected) - present.keys())]
    lines += [f"{name}: not recorded" for name in sorted((present.keys() | expected) - recorded.keys())]
    return lines + [
        f"{name}: changed (recorded {recorded[name]}, found {present[name]})"
        for name in sorted(recorded.keys() & present.keys())
        if recorded[name] != present[name]
    ]
