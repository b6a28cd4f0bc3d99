"""moegauge capture show: what a capture holds, and what its gaps make unavailable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moegauge.evidence.capture_folder import open_capture
from moegauge.records.capture import CaptureRecord
from moegauge.records.measurement import CONDITIONS


@dataclass(frozen=True)
class CaptureView:
    """A capture's record and what follows from what is missing."""

    record: CaptureRecord
    consequences: tuple[str, ...]


def show_capture(path: Path) -> CaptureView:
    """Read a capture's head and say what cannot be had from it.

    Raises:
        EvidenceError: the folder is not a capture.
    """
    record = open_capture(path).record
    return CaptureView(record, tuple(_consequences(record)))


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
    unrecorded = [name for name in CONDITIONS if name not in record.conditions]
    if unrecorded:
        found.append(f"verification of conditions that were not recorded: {', '.join(unrecorded)}")
    return found
