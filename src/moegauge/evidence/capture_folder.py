"""A capture folder on disk: capture.json, its tables, raw/. Opening checks the digest of every table it reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from moegauge import errors
from moegauge.evidence.capture_tables import INTERVALS, INVOCATIONS, ITERATIONS, routed_inputs
from moegauge.evidence.digest import file_digest, record_digest
from moegauge.evidence.serving_tables import FURTHER, REQUESTS, STEPS
from moegauge.evidence.store import read_record
from moegauge.evidence.tables import TableSchema, read_table
from moegauge.records.capture import CaptureRecord

RECORD_NAME = "capture.json"
RAW_NAME = "raw"
RECORDING = "recording"
"""Source of a capture that a recorder inside a live engine wrote."""


@dataclass(frozen=True)
class CaptureFolder:
    """An opened capture; tables are read when they are first asked for."""

    path: Path
    record: CaptureRecord
    digest: str

    @cached_property
    def iterations(self) -> pl.DataFrame:
        """One row an (iteration, rank)."""
        return self._table(ITERATIONS)

    @cached_property
    def invocations(self) -> pl.DataFrame:
        """One row an (iteration, layer, rank)."""
        return self._table(INVOCATIONS)

    @cached_property
    def intervals(self) -> pl.DataFrame:
        """One row a device operation."""
        return self._table(INTERVALS)

    @cached_property
    def routed_inputs(self) -> pl.DataFrame:
        """One row a routed row."""
        return self._table(routed_inputs(self.record.model.top_k))

    @cached_property
    def requests(self) -> pl.DataFrame | None:
        """One row a request's share of an iteration; None where the source does not record requests."""
        return self._table(REQUESTS) if REQUESTS in self.schemas() else None

    @cached_property
    def steps(self) -> pl.DataFrame | None:
        """One row an (iteration, rank) with what only a recorder inside the engine sees; None for other sources."""
        return self._table(STEPS) if STEPS in self.schemas() else None

    @property
    def raw_digest(self) -> str:
        """Digest over the names and digests of the raw files: what was recorded, whoever imported it and when."""
        raw = {name: file.digest for name, file in self.record.files.items() if name.startswith(f"{RAW_NAME}/")}
        return record_digest(raw)

    def schemas(self) -> list[TableSchema]:
        """The tables a capture folder has."""
        return capture_schemas(self.record.model.top_k, source=self.record.source)

    def _table(self, schema: TableSchema) -> pl.DataFrame:
        name = f"{schema.name}.parquet"
        path = self.path / name
        recorded = self.record.files.get(name)
        if recorded is None:
            raise errors.MissingFile(
                where=str(path), expected=f"a digest of {name} in {RECORD_NAME}", found="none", remedy="Import again."
            )
        if path.is_file() and file_digest(path) != recorded.digest:
            raise errors.DigestMismatch(
                where=str(path),
                expected=recorded.digest,
                found=file_digest(path),
                remedy="The table was changed after it was written; run moegauge verify, or import again.",
            )
        return read_table(path, schema)


def capture_schemas(top_k: int, *, source: str) -> list[TableSchema]:
    """The tables of a capture, by what it was made from."""
    common = [ITERATIONS, INVOCATIONS, INTERVALS, routed_inputs(top_k)]
    return [*common, *FURTHER] if source == RECORDING else common


def open_capture(path: Path) -> CaptureFolder:
    """Open a capture folder.

    Raises:
        MissingFile, MalformedFile, SchemaMissing, SchemaOlder, SchemaNewer, DigestMismatch
    """
    if not path.is_dir():
        raise errors.MissingFile(
            where=str(path),
            expected="a capture folder",
            found="no folder",
            remedy="Make one with moegauge capture import.",
        )
    record = read_record(path / RECORD_NAME, CaptureRecord)
    return CaptureFolder(path, record, file_digest(path / RECORD_NAME))
