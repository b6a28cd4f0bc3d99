"""Row tables of a ladder report."""

from __future__ import annotations

import numpy as np
import polars as pl

from moegauge.evidence.report_folder import INVOCATION_ROWS, ITERATION_ROWS, RANK_ROWS
from moegauge.ladder.alignment import Alignment
from moegauge.ladder.sides import TwoSides
from moegauge.records.comparison import Settings


def ladder_tables(work: Alignment, settings: Settings) -> dict[str, pl.DataFrame]:
    """Invocation, rank and iteration rows of the exact comparison."""
    right, known, covered = work.right_each_ns(), pl.Series(work.left_known), pl.Series(work.covered)
    diff = right - work.left_ns
    beyond = np.abs(diff) > settings.invocation_tolerance_ratio * work.left_ns
    base = pl.DataFrame(
        {
            "iteration": pl.Series(work.iteration, dtype=pl.Int32),
            "layer": pl.Series(work.layer, dtype=pl.Int32),
            "covered": covered,
            "reason_code": pl.Series([code or None for code in work.why], dtype=pl.String),
            "left_ns": pl.Series(work.left_ns),
            "right_ns": pl.Series(right),
            "diff_ns": pl.Series(diff),
            "left_critical_rank": pl.Series(work.left_rank, dtype=pl.Int32),
            "right_critical_rank": pl.Series(work.right_rank, dtype=pl.Int32),
            "beyond_invocation_tolerance": pl.Series(beyond),
            "kernels_differ": pl.Series(work.kernels_differ),
            "launch_mode_differs": pl.Series(work.launch_mode_differs),
        }
    )
    right_only = ("right_ns", "diff_ns", "beyond_invocation_tolerance", "right_critical_rank")
    rows = base.with_columns(
        [pl.when(covered).then(pl.col(name)).otherwise(None).alias(name) for name in right_only]
        + [pl.when(known).then(pl.col(name)).otherwise(None).alias(name) for name in ("left_ns", "left_critical_rank")]
    ).with_columns(pl.when(pl.col("right_critical_rank") >= 0).then(pl.col("right_critical_rank")).otherwise(None))
    rank_rows = work.rank_rows.select(pl.col(name).cast(dtype) for name, dtype in RANK_ROWS.columns.items())
    whole = pl.Series(TwoSides(work).whole)
    iterations = (
        rows.with_columns(whole=whole)
        .group_by("iteration")
        .agg(
            covered=pl.col("whole").all(),
            num_layers=pl.len().cast(pl.Int32),
            **{name: pl.col(name).sum() for name in ("left_ns", "right_ns", "diff_ns")},
        )
        .with_columns(
            [
                pl.when("covered").then(pl.col(name)).otherwise(None).alias(name)
                for name in ("left_ns", "right_ns", "diff_ns")
            ]
        )
        .with_columns(relative_ratio=pl.when(pl.col("left_ns") > 0).then(pl.col("diff_ns") / pl.col("left_ns")))
        .sort("iteration")
    )
    return {INVOCATION_ROWS.name: rows, RANK_ROWS.name: rank_rows, ITERATION_ROWS.name: iterations}
