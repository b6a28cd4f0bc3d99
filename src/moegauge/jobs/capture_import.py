"""moegauge capture import bundle | recording: raw recording in, verified capture folder out."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from moegauge import __version__
from moegauge.evidence.capture_folder import (
    RAW_NAME,
    RECORD_NAME,
    CaptureFolder,
    capture_schemas,
    open_capture,
)
from moegauge.evidence.store import describe_files, new_folder, refuse_existing, write_head
from moegauge.evidence.tables import write_table
from moegauge.jobs.capture_derivation import Derived, derive
from moegauge.jobs.progress import Progress, silent
from moegauge.records.capture import CaptureRecord, FileDigest


def import_serving(
    source: Path, out: Path, *, kind: str | None = None, partial: bool = False, progress: Progress = silent
) -> CaptureFolder:
    """Import a bundle (docs/formats/bundle.md) or a recording (docs/formats/recording.md) as a new capture folder.

    Args:
        source: folder with meta.json, routing tables and traces; or with the frames of each rank.
        out: folder to make; nothing may stand there.
        kind: registered kernel kind; None takes the one whose kernels the trace holds.
        partial: import what is there although a declared rank is missing.
        progress: told how far the import is.

    Raises:
        EvidenceError: the source is not what it has to be. Nothing is written then.
        MisuseError: something already stands at ``out``.
    """
    refuse_existing(out)
    derived = derive(source, kind_name=kind, partial=partial, progress=progress)
    progress("writing", 0, 1)
    with new_folder(out) as building:
        for path in derived.raw_files:
            (building / RAW_NAME).mkdir(exist_ok=True)
            shutil.copyfile(path, building / RAW_NAME / path.name)
        for schema in capture_schemas(derived.model.top_k, source=derived.source):
            write_table(building / f"{schema.name}.parquet", schema, derived.tables[schema.name])
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        files = describe_files(building, leave_out=frozenset())
        record = capture_record(derived, created_at=created_at, tool_version=__version__, files=files)
        write_head(building, RECORD_NAME, record)
    progress("writing", 1, 1)
    return open_capture(out)


def capture_record(
    derived: Derived, *, created_at: str, tool_version: str, files: dict[str, FileDigest]
) -> CaptureRecord:
    """The head of a capture folder from what was derived."""
    return CaptureRecord(
        schema=CaptureRecord.tag(),
        created_at=created_at,
        tool_version=tool_version,
        source=derived.source,
        partial=derived.partial,
        model=derived.model,
        moe_layers=derived.moe_layers,
        model_config_digest=derived.model_config_digest,
        kernel=derived.kernel,
        topology=derived.topology,
        conditions=derived.conditions,
        coverage=derived.coverage,
        findings=derived.findings,
        routes_cross_check=derived.routes_cross_check,
        files=files,
    )
