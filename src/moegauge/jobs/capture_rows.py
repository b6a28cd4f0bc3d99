"""Rows of one recorded rank: what the engine said it ran, what the routing table holds, and what the trace showed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.routes.serving import RoutedTable, Step
from moegauge.evidence.capture_tables import (
    CLOSED,
    INVOCATIONS,
    ITERATIONS,
    ROUTED,
    ROUTED_NOT_WRITTEN,
    ROUTED_PARTIAL,
    ROUTED_UNVERIFIED,
    UNAVAILABLE,
    ZERO_TOKENS,
)
from moegauge.evidence.digest import routed_ids_digest
from moegauge.jobs.attributed_trace import AttributedTrace
from moegauge.kernels.classification import OpClass
from moegauge.kernels.trace import NONE, Trace
from moegauge.records.identity import ModelShape
from moegauge.routing.expert_load import suspicious_padding
from moegauge.timing.intervals import busy_union

Int64Array = NDArray[np.int64]

_MIN_STALE_RUN = 2


@dataclass(frozen=True)
class RankSource:
    """One recorded rank: its raw tables, and the logical tokens of each iteration on it (None: not recorded)."""

    number: int
    routed: RoutedTable
    trace: Trace
    logical: dict[int, int | None]


def declared_empty(step: Step, rank: int) -> bool:
    """Whether the engine said that the rank had no tokens in the step."""
    return step.rank_tokens is not None and rank < len(step.rank_tokens) and step.rank_tokens[rank] == 0


def logical_tokens(step: Step, rank: int, *, own_tokens: bool) -> int | None:
    """Tokens the scheduler asked of the rank; None where that was not recorded.

    Args:
        step: the iteration. rank: which rank.
        own_tokens: each rank runs tokens of its own, so the iteration's total says nothing about one rank.
    """
    if step.rank_tokens is not None:
        return step.rank_tokens[rank] if rank < len(step.rank_tokens) else None
    return None if own_tokens else step.tokens


def check_routed_iterations(rank: RankSource, steps: list[Step]) -> None:
    """Refuse routed rows of iterations that meta.json does not list."""
    unknown = sorted(set(rank.routed.iteration.tolist()) - {step.iteration for step in steps})
    if unknown:
        raise errors.Inconsistent(
            where=f"routing table of rank {rank.number}",
            expected="iterations that meta.json lists",
            found=f"iterations {unknown[:10]}",
            remedy="meta.json and the routing table are not of one recording.",
        )


def invocation_grid(rank: RankSource, steps: list[Step], layers: Int64Array) -> pl.DataFrame:
    """One row for each (iteration, layer) that should have run, with what the routing table holds of it."""
    routed = rank.routed
    rows_of = {
        (int(iteration), int(layer)): (index, int(rows))
        for index, (iteration, layer, rows) in enumerate(
            zip(routed.iteration, routed.layer, np.diff(routed.offset), strict=True)
        )
    }
    out = []
    for step in steps:
        logical = rank.logical[step.iteration]
        weights = _weights_recorded(step, routed)
        stale = _stale_run(routed, rows_of, step.iteration, layers) if logical is None else 0
        declared = None if step.rank_tokens is not None else step.padded
        for layer in layers.tolist():
            index, recorded = rows_of.get((step.iteration, layer), (NONE, 0))
            rows_to_run = declared if declared is not None else recorded or (logical or 0)
            status, why = _routed_status(index, recorded, rows_to_run, logical, stale)
            out.append(
                {
                    "iteration": step.iteration,
                    "layer": layer,
                    "table_index": index,
                    "logical": logical,
                    "rows_to_run": rows_to_run,
                    "routed_status": status,
                    "routed_reason": why,
                    "weights_recorded": weights and index != NONE,
                }
            )
            if index != NONE and recorded > rows_to_run:
                raise errors.Inconsistent(
                    where=f"routing table of rank {rank.number}",
                    expected=f"at most {rows_to_run} executed rows in iteration {step.iteration}, layer {layer}",
                    found=f"{recorded} rows",
                    remedy="Rows beyond the executed ones belong to another model or step; leave them out.",
                )
    schema = {
        "iteration": pl.Int32, "layer": pl.Int32, "table_index": pl.Int64, "logical": pl.Int32, "rows_to_run": pl.Int32,
        "routed_status": pl.String, "routed_reason": pl.String, "weights_recorded": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame(out, schema=schema)


def _weights_recorded(step: Step, routed: RoutedTable) -> bool:
    """Declared; else the hooks of eager iterations record weights and those of graph iterations cannot."""
    if routed.topk_weights is None:
        return False
    return step.weights_recorded if step.weights_recorded is not None else not step.graph


def _stale_run(
    routed: RoutedTable, rows_of: dict[tuple[int, int], tuple[int, int]], iteration: int, layers: Int64Array
) -> int:
    """Longest run of rows alike in every layer, for an iteration without a logical token count."""
    tables = [
        routed.topk_ids[routed.offset[rows_of[key][0]] : routed.offset[rows_of[key][0] + 1]]
        for layer in layers.tolist()
        if (key := (iteration, layer)) in rows_of
    ]
    if not tables or len({len(table) for table in tables}) != 1:
        return 0
    return suspicious_padding(tables)


def _routed_status(
    index: int, recorded: int, rows_to_run: int, logical: int | None, stale_run: int
) -> tuple[str, str | None]:
    if index == NONE:
        return ROUTED_NOT_WRITTEN, "no rows in the routing table"
    if recorded < rows_to_run:
        return ROUTED_PARTIAL, f"coverage {recorded}/{rows_to_run} rows; nothing is rescaled"
    if logical is not None and recorded < logical:
        return ROUTED_PARTIAL, f"coverage {recorded}/{logical} logical tokens; nothing is rescaled"
    if logical is None and stale_run >= _MIN_STALE_RUN:
        return (
            ROUTED_UNVERIFIED,
            f"no logical token count, and {stale_run} neighbouring rows are alike in every layer (stale padding?)",
        )
    return ROUTED, None


def invocation_rows(grid: pl.DataFrame, found: AttributedTrace, rank: int, empty: set[int]) -> pl.DataFrame:
    """Rows of the invocations table of one rank."""
    digests = pl.Series("rank", np.full(grid.height, rank), dtype=pl.Int32)
    joined = grid.with_columns(digests).join(
        found.rows.drop("executed_rows"), on=["iteration", "layer"], how="left", maintain_order="left"
    )
    is_empty = pl.col("iteration").is_in(list(empty))
    codes = {iteration: why.code for iteration, why in found.attribution.unavailable.items()}
    reason_code = pl.col("iteration").replace_strict(codes, default=None, return_dtype=pl.String)
    closed = pl.col("busy_ns").is_not_null()
    return joined.with_columns(
        timing_status=pl.when(is_empty)
        .then(pl.lit(ZERO_TOKENS))
        .when(closed)
        .then(pl.lit(CLOSED))
        .otherwise(pl.lit(UNAVAILABLE)),
        timing_reason_code=pl.when(is_empty)
        .then(pl.lit("ZERO_TOKENS"))
        .when(closed)
        .then(None)
        .otherwise(pl.coalesce(reason_code, pl.lit("TIME_NOT_CAPTURED"))),
        busy_ns=pl.when(is_empty & pl.col("busy_ns").is_null()).then(0).otherwise(pl.col("busy_ns")),
        executed_rows=pl.when((pl.col("rows_to_run") > 0) | is_empty).then(pl.col("rows_to_run")).otherwise(None),
        routed_digest=pl.lit(None, dtype=pl.String),
    )


def iteration_rows(
    steps: list[Step], grid: pl.DataFrame, found: AttributedTrace, rank: RankSource, invocations: pl.DataFrame
) -> pl.DataFrame:
    """Rows of the iterations table of one rank."""
    attribution, ops = found.attribution, found.trace.ops
    out = []
    for step in steps:
        mine = invocations.filter(pl.col("iteration") == step.iteration)
        status, why = _iteration_status(step, mine, found)
        mode, source = _launch_mode(step, mine)
        lost = np.flatnonzero((attribution.iteration == step.iteration) & (attribution.op_class == OpClass.UNKNOWN))
        rows = grid.filter(pl.col("iteration") == step.iteration)["rows_to_run"].max()
        out.append(
            {
                "iteration": step.iteration,
                "rank": rank.number,
                "logical_tokens": rank.logical[step.iteration],
                "executed_rows": rows if rows or declared_empty(step, rank.number) else None,
                "num_requests": step.reqs,
                "launch_mode": mode,
                "launch_mode_source": source,
                "status": status,
                "reason_code": why[0] if why else None,
                "reason": why[1] if why else None,
                "unattributed_ns": busy_union(ops.start_ns[lost], ops.end_ns[lost]),
                "num_unattributed_kernels": len(lost),
            }
        )
    return pl.DataFrame(out, schema=ITERATIONS.columns)


def _iteration_status(step: Step, mine: pl.DataFrame, found: AttributedTrace) -> tuple[str, tuple[str, str] | None]:
    failed = found.attribution.unavailable.get(step.iteration)
    if failed is not None:
        return "INCOMPLETE", (failed.code, failed.sentence)
    open_rows = mine.filter(pl.col("timing_status") == UNAVAILABLE)
    if open_rows.height:
        return "INCOMPLETE", ("TIME_NOT_CAPTURED", f"{open_rows.height} layers without a time")
    partial = mine.filter(pl.col("routed_status") == ROUTED_PARTIAL)
    if partial.height:
        lost = f"iteration {step.iteration}: {partial.height} layers, {partial['routed_reason'][0]}"
        return "INCOMPLETE", ("ROUTED_ROWS_PARTIAL", lost)
    return "COMPLETE", None


def _launch_mode(step: Step, mine: pl.DataFrame) -> tuple[str | None, str | None]:
    """What the engine said, checked against the launch calls; what the calls show where it said nothing."""
    seen = mine["launch_mode"].drop_nulls().unique().to_list()
    said = None if step.graph is None else ("graph" if step.graph else "eager")
    if said is not None and seen and seen != [said]:
        raise errors.Inconsistent(
            where=f"iteration {step.iteration}",
            expected=f"launch mode {said} (meta.json)",
            found=f"launch calls that show {' and '.join(sorted(seen))}",
            remedy="meta.json and the trace are not of one recording.",
        )
    if said is not None:
        return said, "engine"
    return (seen[0], "trace") if len(seen) == 1 else (None, None)


def routed_rows(rank: RankSource, shape: ModelShape, grid: pl.DataFrame) -> pl.DataFrame:
    """Rows of the routed_inputs table of one rank."""
    routed = rank.routed
    counts = np.diff(routed.offset)
    invocation = np.repeat(np.arange(len(counts)), counts)
    weights = pl.Series([None] * len(invocation), dtype=pl.Array(pl.Float32, shape.top_k))
    if routed.topk_weights is not None:
        recorded = np.zeros(len(counts), dtype=bool)
        known = grid.filter(pl.col("weights_recorded"))["table_index"].to_numpy()
        recorded[known] = True
        values = pl.Series(routed.topk_weights, dtype=pl.Array(pl.Float32, shape.top_k))
        weights = pl.select(pl.when(pl.Series(recorded[invocation])).then(values).otherwise(None)).to_series()
    return pl.DataFrame(
        {
            "iteration": pl.Series(routed.iteration[invocation], dtype=pl.Int32),
            "layer": pl.Series(routed.layer[invocation], dtype=pl.Int32),
            "rank": pl.Series(np.full(len(invocation), rank.number), dtype=pl.Int32),
            "row": pl.Series(np.arange(len(invocation)) - routed.offset[invocation], dtype=pl.Int32),
            "topk_ids": pl.Series(routed.topk_ids, dtype=pl.Array(pl.Int32, shape.top_k)),
            "topk_weights": weights,
        }
    )


def with_digests(invocations: pl.DataFrame, routed: RoutedTable) -> pl.DataFrame:
    """Fill routed_digest for every invocation whose rows are all there."""
    digests = [
        routed_ids_digest(routed.topk_ids[routed.offset[index] : routed.offset[index + 1]])
        if status == ROUTED
        else None
        for index, status in invocations.select("table_index", "routed_status").iter_rows()
    ]
    return invocations.with_columns(routed_digest=pl.Series(digests, dtype=pl.String)).select(
        pl.col(name).cast(dtype) for name, dtype in INVOCATIONS.columns.items()
    )
