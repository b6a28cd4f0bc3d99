"""moegauge report --format html: what a page of a ladder report is drawn from."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from moegauge import errors
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.digest import file_digest
from moegauge.evidence.report_folder import INVOCATION_ROWS, RANK_ROWS
from moegauge.evidence.store import refuse_existing, write_file
from moegauge.evidence.tables import TableSchema, read_table
from moegauge.records.comparison import LadderReport
from moegauge.render.html.columns import PageTables
from moegauge.render.html.ladder_page import ladder_page


def write_page(folder: Path, report: LadderReport, out: Path) -> None:
    """Write the page of a report folder as one file.

    Args:
        folder: report folder.
        report: its record, read already.
        out: HTML file to make; nothing may stand there.

    Raises:
        EvidenceError: a table of the report is not the recorded one.
        MisuseError: something stands at ``out``.
    """
    refuse_existing(out)
    write_file(out, ladder_page(report, page_tables(folder, report), report_path=str(folder)).encode())


def page_tables(folder: Path, report: LadderReport) -> PageTables:
    """Rows of the report, and of its capture where that stands where the report links to it."""
    capture = _linked_capture(folder, report)
    read = isinstance(capture, CaptureFolder)
    return PageTables(
        invocations=_table(folder, report, INVOCATION_ROWS),
        ranks=_table(folder, report, RANK_ROWS),
        iterations=capture.iterations if isinstance(capture, CaptureFolder) else None,
        intervals=_selected(capture, report) if isinstance(capture, CaptureFolder) else None,
        capture_note=None if read else str(capture),
    )


def _table(folder: Path, report: LadderReport, schema: TableSchema) -> pl.DataFrame:
    name = f"{schema.name}.parquet"
    path, recorded = folder / name, report.evidence.tables.get(name)
    if path.is_file() and recorded is not None and file_digest(path) != recorded:
        raise errors.DigestMismatch(
            where=str(path),
            expected=recorded,
            found=file_digest(path),
            remedy="The table was changed after it was written; run moegauge verify, or align again.",
        )
    return read_table(path, schema)


def _linked_capture(folder: Path, report: LadderReport) -> CaptureFolder | str:
    linked = folder / report.evidence.capture.path
    if not linked.is_file():
        return f"the capture is not where the report links to it ({report.evidence.capture.path})"
    if file_digest(linked) != report.evidence.capture.digest:
        return f"the capture at {report.evidence.capture.path} is not the one that was aligned"
    return open_capture(linked.parent)


def _selected(capture: CaptureFolder, report: LadderReport) -> pl.DataFrame | None:
    pair = report.rungs[0].selected
    if pair is None or pair.selection.iteration is None or pair.selection.layer is None:
        return None
    chosen = (pl.col("iteration") == pair.selection.iteration) & (pl.col("layer") == pair.selection.layer)
    return capture.intervals.filter(chosen)
