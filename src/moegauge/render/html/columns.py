"""What the charts of a ladder page draw, as columns of integers, bounded however long the capture is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

MAX_BINS = 400
"""Columns of the charts. A longer capture is drawn in bins of consecutive iterations, each a sum."""
MAX_LAYERS = 256
MAX_KERNELS = 400
"""Kernels of the drawn invocation; the page says how many are left out."""


@dataclass(frozen=True)
class PageTables:
    """Rows behind a page.

    Attributes:
        invocations: one row an (iteration, layer), of the report.
        ranks: one row an (iteration, layer, rank), of the report.
        iterations: one row an (iteration, rank), of the capture; None where it was not read.
        intervals: kernels of the selected invocation, of the capture; None where it was not read.
        capture_note: why the capture was not read; None where it was.
    """

    invocations: pl.DataFrame
    ranks: pl.DataFrame
    iterations: pl.DataFrame | None
    intervals: pl.DataFrame | None
    capture_note: str | None


def chart_columns(tables: PageTables) -> dict[str, Any]:
    """Columns of the iteration chart and of the heat map.

    Times are ns, sums over the invocations that both sides cover; an empty sum is None, never 0.
    """
    binned, bin_size = _binned(tables.invocations)
    covered = pl.col("covered")
    sums = {side: pl.when(covered).then(pl.col(side)).sum() for side in ("left_ns", "right_ns")}
    counts = {"num": covered.sum(), "of": pl.len(), "beyond": pl.col("beyond_invocation_tolerance").sum()}
    span = {"first": pl.col("iteration").min(), "last": pl.col("iteration").max()}
    bins = binned.group_by("bin").agg(**span, **counts, **sums).sort("bin").with_columns(_unless_covered())
    layers = sorted(binned["layer"].unique().to_list())[:MAX_LAYERS]
    cells = (
        binned.filter(pl.col("layer").is_in(layers))
        .group_by("layer", "bin")
        .agg(**counts, **sums)
        .with_columns(_unless_covered())
    )
    every = pl.DataFrame({"layer": pl.Series(layers, dtype=pl.Int32)}).join(bins.select("bin"), how="cross")
    full = every.join(cells, on=["layer", "bin"], how="left").sort("layer", "bin")
    facts = _facts(tables.iterations, bin_size, bins) if tables.iterations is not None else None
    return {
        "bin_size": bin_size,
        "num_layers_left_out": binned["layer"].n_unique() - len(layers),
        "layers": layers,
        "bins": bins.drop("bin").to_dict(as_series=False),
        "cells": full.select("left_ns", "right_ns", "num", "of").to_dict(as_series=False),
        "facts": facts,
    }


def _binned(invocations: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    order = invocations.select(pl.col("iteration").unique().sort()).with_row_index("position")
    bin_size = max(1, -(-order.height // MAX_BINS))
    place = order.with_columns(bin=pl.col("position") // bin_size)
    return invocations.join(place, on="iteration", how="left"), bin_size


def _unless_covered() -> list[pl.Expr]:
    return [pl.when(pl.col("num") > 0).then(pl.col(side)).alias(side) for side in ("left_ns", "right_ns")]


def _facts(iterations: pl.DataFrame, bin_size: int, bins: pl.DataFrame) -> dict[str, list[Any]]:
    one = iterations.filter(pl.col("rank") == pl.col("rank").min())
    order = pl.concat([bins["first"]]).sort()
    placed = one.sort("iteration").with_columns(
        bin=order.search_sorted(one.sort("iteration")["iteration"], "right") - 1
    )
    modes = pl.col("launch_mode").drop_nulls().unique().sort()
    found = placed.group_by("bin").agg(
        rows=pl.col("executed_rows").sum(), tokens=pl.col("logical_tokens").sum(), mode=modes.str.join(" and ")
    )
    joined = (
        bins.select("bin")
        .with_columns(pl.col("bin").cast(pl.Int64))
        .join(found.with_columns(pl.col("bin").cast(pl.Int64)), on="bin", how="left")
    )
    return joined.sort("bin").select("rows", "tokens", "mode").to_dict(as_series=False)


def rank_totals(ranks: pl.DataFrame, invocations: pl.DataFrame) -> list[dict[str, Any]]:
    """A row a rank: its total on both sides (ns, rows that both have) and how often it was the critical one."""
    both = ranks.filter(pl.col("right_ns").is_not_null())
    totals = both.group_by("rank").agg(pl.col("left_ns").sum(), pl.col("right_ns").sum(), num=pl.len())
    critical = {
        side: dict(invocations[f"{side}_critical_rank"].drop_nulls().value_counts().iter_rows())
        for side in ("left", "right")
    }
    return [
        row | {f"{side}_critical": critical[side].get(row["rank"], 0) for side in ("left", "right")}
        for row in totals.sort("rank").to_dicts()
    ]


def timeline_lanes(intervals: pl.DataFrame) -> list[dict[str, Any]]:
    """A lane a (rank, stream) of one invocation: kernels with start and end in ns after the rank's first."""
    lanes = []
    for (rank, stream), rows in intervals.sort("rank", "stream", "start_ns").group_by(
        ["rank", "stream"], maintain_order=True
    ):
        first = intervals.filter(pl.col("rank") == rank)["start_ns"].min()
        kernels = rows.head(MAX_KERNELS).with_columns(pl.col("start_ns") - first, pl.col("end_ns") - first)
        shown = kernels.select("start_ns", "end_ns", "name", "stage", "op_class").to_dicts()
        lanes.append({"rank": rank, "stream": stream, "kernels": shown, "left_out": rows.height - len(shown)})
    return lanes
