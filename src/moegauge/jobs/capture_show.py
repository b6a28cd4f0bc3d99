"""moegauge capture show: what a capture holds, and what its gaps make unavailable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from moegauge.adapters.routes.recording import OVERHEAD_NAME
from moegauge.evidence.capture_folder import RAW_NAME, CaptureFolder, open_capture
from moegauge.evidence.store import read_record
from moegauge.jobs.ladder_conditions import condition_names
from moegauge.jobs.rank_condition import served_facts
from moegauge.records.capture import CaptureRecord
from moegauge.records.serving_run import Overhead


@dataclass(frozen=True)
class CaptureView:
    """A capture's record, and what follows from what is missing.

    Attributes:
        rows_by_phase: executed rows of requests by phase, over iterations and ranks; None where not recorded.
        overhead: what the recorder cost; None where that was not measured.
    """

    record: CaptureRecord
    consequences: tuple[str, ...]
    rows_by_phase: dict[str, int] | None
    overhead: Overhead | None


def show_capture(path: Path) -> CaptureView:
    """Read a capture's head and say what cannot be had from it.

    Raises:
        EvidenceError: the folder is not a capture.
    """
    folder = open_capture(path)
    overhead = path / RAW_NAME / OVERHEAD_NAME
    return CaptureView(
        folder.record,
        tuple(_consequences(folder.record)),
        _rows_by_phase(folder),
        read_record(overhead, Overhead) if overhead.is_file() else None,
    )


def _rows_by_phase(folder: CaptureFolder) -> dict[str, int] | None:
    requests = folder.requests
    if requests is None:
        return None
    counted = requests.group_by("phase").agg(pl.col("num_rows").sum()).sort("phase")
    return {str(phase or "not seen"): int(rows) for phase, rows in counted.iter_rows()}


def _consequences(record: CaptureRecord) -> list[str]:
    coverage = record.coverage
    found = []
    missing = [str(rank.rank) for rank in record.topology.ranks if not rank.recorded]
    if missing:
        found.append(f"critical-rank times: rank {', '.join(missing)} is missing, so every time is a lower bound")
    if coverage.num_iterations_closed < coverage.num_iterations:
        num = coverage.num_iterations - coverage.num_iterations_closed
        found.append(f"{num} iterations on every rung: they do not close (iterations.parquet says why)")
    if coverage.num_rank_invocations_routed < coverage.num_rank_invocations - coverage.num_rank_invocations_zero_tokens:
        empty = coverage.num_rank_invocations_zero_tokens
        num = coverage.num_rank_invocations - empty - coverage.num_rank_invocations_routed
        found.append(f"rungs 1 and 2 for {num} rank invocations: no exact input (invocations.parquet says why)")
    unrecorded = [name for name in condition_names(record) if name not in served_facts(record)]
    if unrecorded:
        found.append(f"verification of conditions that were not recorded: {', '.join(unrecorded)}")
    return found
