"""The Parquet tables of a capture folder. docs/formats/capture.md describes every column."""

from __future__ import annotations

import polars as pl

from moegauge.evidence.tables import TableSchema

ITERATIONS = TableSchema(
    name="iterations",
    columns={
        "iteration": pl.Int32,
        "rank": pl.Int32,
        "logical_tokens": pl.Int32,
        "executed_rows": pl.Int32,
        "num_requests": pl.Int32,
        "launch_mode": pl.String,
        "launch_mode_source": pl.String,
        "status": pl.String,
        "reason_code": pl.String,
        "reason": pl.String,
        "unattributed_ns": pl.Int64,
        "num_unattributed_kernels": pl.Int32,
    },
    nullable=frozenset(
        {
            "logical_tokens",
            "executed_rows",
            "num_requests",
            "launch_mode",
            "launch_mode_source",
            "reason_code",
            "reason",
        }
    ),
    key=("iteration", "rank"),
)

INVOCATIONS = TableSchema(
    name="invocations",
    columns={
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "rank": pl.Int32,
        "executed_rows": pl.Int32,
        "routed_status": pl.String,
        "routed_reason": pl.String,
        "weights_recorded": pl.Boolean,
        "routed_digest": pl.String,
        "timing_status": pl.String,
        "timing_reason_code": pl.String,
        "variant": pl.String,
        "attribution": pl.String,
        "launch_mode": pl.String,
        "device": pl.Int32,
        "stream": pl.Int64,
        "start_ns": pl.Int64,
        "busy_ns": pl.Int64,
        "span_ns": pl.Int64,
        "gap_ns": pl.Int64,
        "foreign_ns": pl.Int64,
        "num_kernels": pl.Int32,
        "kernels_digest": pl.String,
    },
    nullable=frozenset(
        {
            "executed_rows",
            "routed_reason",
            "routed_digest",
            "timing_reason_code",
            "variant",
            "attribution",
            "launch_mode",
            "device",
            "stream",
            "start_ns",
            "busy_ns",
            "span_ns",
            "gap_ns",
            "foreign_ns",
            "num_kernels",
            "kernels_digest",
        }
    ),
    key=("iteration", "layer", "rank"),
)

INTERVALS = TableSchema(
    name="intervals",
    columns={
        "rank": pl.Int32,
        "op": pl.Int32,
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "device": pl.Int32,
        "stream": pl.Int64,
        "kind": pl.String,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,
        "stage": pl.String,
        "op_class": pl.String,
        "how": pl.String,
        "launch": pl.String,
    },
    nullable=frozenset({"iteration", "layer", "stage", "how", "launch"}),
    key=("rank", "op"),
)


def routed_inputs(top_k: int) -> TableSchema:
    """The table of routed rows for a model's top_k."""
    return TableSchema(
        name="routed_inputs",
        columns={
            "iteration": pl.Int32,
            "layer": pl.Int32,
            "rank": pl.Int32,
            "row": pl.Int32,
            "topk_ids": pl.Array(pl.Int32, top_k),
            "topk_weights": pl.Array(pl.Float32, top_k),
        },
        nullable=frozenset({"topk_weights"}),
        key=("iteration", "layer", "rank", "row"),
    )


ROUTED = "WRITTEN"
"""routed_status: every executed row was recorded and may be called exact."""
ROUTED_PARTIAL = "PARTIAL"
"""routed_status: fewer rows recorded than executed."""
ROUTED_UNVERIFIED = "UNVERIFIED"
"""routed_status: rows recorded, but nothing says which of them are padding."""
ROUTED_NOT_WRITTEN = "NOT_WRITTEN"
"""routed_status: no rows recorded."""

CLOSED = "CLOSED"
"""timing_status: kernels attributed and closed."""
ZERO_TOKENS = "ZERO_TOKENS"
"""timing_status: the rank was declared to have no tokens; 0 ns, or a dummy forward."""
UNAVAILABLE = "UNAVAILABLE"
"""timing_status: no time, with a reason code."""
