"""moegauge report: read a ladder report."""

from __future__ import annotations

from pathlib import Path

from moegauge.evidence.report_folder import RECORD_NAME
from moegauge.evidence.store import read_record
from moegauge.records.comparison import LadderReport


def read_report(path: Path) -> LadderReport:
    """Read the record of a report folder.

    Raises:
        EvidenceError: not a report, or changed.
    """
    return read_record(path / RECORD_NAME, LadderReport)
