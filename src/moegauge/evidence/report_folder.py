"""A ladder report on disk: report.json and its row tables."""

from __future__ import annotations

import polars as pl

from moegauge.evidence.tables import TableSchema

RECORD_NAME = "report.json"

INVOCATION_ROWS = TableSchema(
    name="invocation_rows",
    columns={
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "covered": pl.Boolean,
        "reason_code": pl.String,
        "left_ns": pl.Int64,
        "right_ns": pl.Int64,
        "diff_ns": pl.Int64,
        "left_critical_rank": pl.Int32,
        "right_critical_rank": pl.Int32,
        "beyond_invocation_tolerance": pl.Boolean,
        "kernels_differ": pl.Boolean,
        "launch_mode_differs": pl.Boolean,
    },
    nullable=frozenset(
        {
            "reason_code",
            "left_ns",
            "right_ns",
            "diff_ns",
            "left_critical_rank",
            "right_critical_rank",
            "beyond_invocation_tolerance",
        }
    ),
    key=("iteration", "layer"),
)

RANK_ROWS = TableSchema(
    name="rank_rows",
    columns={
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "rank": pl.Int32,
        "left_ns": pl.Int64,
        "right_ns": pl.Int64,
        "row_id": pl.Int64,
    },
    nullable=frozenset({"right_ns", "row_id"}),
    key=("iteration", "layer", "rank"),
)

ITERATION_ROWS = TableSchema(
    name="iteration_rows",
    columns={
        "iteration": pl.Int32,
        "covered": pl.Boolean,
        "num_layers": pl.Int32,
        "left_ns": pl.Int64,
        "right_ns": pl.Int64,
        "diff_ns": pl.Int64,
        "relative_ratio": pl.Float64,
    },
    nullable=frozenset({"left_ns", "right_ns", "diff_ns", "relative_ratio"}),
    key=("iteration",),
)

TABLES = (INVOCATION_ROWS, RANK_ROWS, ITERATION_ROWS)
