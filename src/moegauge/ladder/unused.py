"""Measured rows that no comparison uses: named with a reason, never dropped."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.records.comparison import Unmatched

BoolArray = NDArray[np.bool_]

_INVOCATION = ["iteration", "layer"]


def unused_rows(
    rows: pl.DataFrame, measured: pl.DataFrame, samples: pl.DataFrame, covered: BoolArray
) -> tuple[Unmatched, ...]:
    """Measured rows outside covered invocations, by why: counterpart incomplete, not chosen, or never served.

    Counted in invocations that were measured, each at its critical rank; one whose ranks have several reasons goes
    under the first of them.

    Args:
        rows: rank invocations with invocation, match and the row_id chosen (null: none).
        measured, samples: of MeasuredWork.
        covered: bool [num_invocations].
    """
    matched = rows.filter(pl.col("row_id").is_not_null())
    used = matched.filter(pl.Series(covered)[matched["invocation"]])["row_id"].to_list()
    rest = measured.filter(~pl.col("row_id").is_in(used))
    if not rest.height:
        return ()
    why = (
        pl.when(pl.col("row_id").is_in(matched["row_id"].to_list()))
        .then(pl.lit("COUNTERPART_INCOMPLETE"))
        .when(pl.col("match").is_in(rows["match"].drop_nulls().unique().to_list()))
        .then(pl.lit("OTHER_ROW_CHOSEN"))
        .otherwise(pl.lit("INPUT_NOT_SERVED"))
    )
    condition = ["launch_mode", "cache_state", "co_running", "kernel_config", "ranks"]
    means = samples.group_by("row_id", *_INVOCATION, "rank").agg(pl.col("busy_ns").mean().round().cast(pl.Int64))
    units = (
        rest.with_columns(why=why)
        .join(means, on="row_id", how="inner")
        .group_by(*condition, *_INVOCATION)
        .agg(pl.col("why").min(), pl.col("busy_ns").max())
    )
    summed = (
        units.group_by("why", "launch_mode")
        .agg(pl.len().alias("num"), pl.col("busy_ns").sum())
        .sort("why", "launch_mode")
    )
    return tuple(
        Unmatched(
            side="right", what=f"measured invocations, launch mode {mode or 'not recorded'}", why=why, num=num, ns=ns
        )
        for why, mode, num, ns in summed.iter_rows()
    )
