"""Parquet tables that only captures of a live engine have. docs/formats/capture.md describes every column."""

from __future__ import annotations

import polars as pl

from moegauge.evidence.tables import TableSchema

REQUESTS = TableSchema(
    name="requests",
    columns={
        "iteration": pl.Int32,
        "rank": pl.Int32,
        "position": pl.Int32,
        "request": pl.String,
        "phase": pl.String,
        "first_row": pl.Int32,
        "num_rows": pl.Int32,
        "num_computed": pl.Int32,
        "num_prompt": pl.Int32,
        "resumed": pl.Boolean,
    },
    nullable=frozenset({"phase", "num_prompt"}),
    key=("iteration", "rank", "position"),
)

STEPS = TableSchema(
    name="steps",
    columns={
        "iteration": pl.Int32,
        "rank": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "num_draft_tokens": pl.Int32,
        "kernel_config": pl.String,
    },
    nullable=frozenset({"kernel_config"}),
    key=("iteration", "rank"),
)

FURTHER = (REQUESTS, STEPS)
"""Tables of a capture that came from a recording of a live engine."""
