"""Measured times by pass: one for each rank invocation, the critical rank of each, and what was measured together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_RANK_ROW = ["iteration", "layer", "rank"]


@dataclass(frozen=True)
class Stratum:
    """Invocations measured by one set of passes.

    Attributes:
        pass_ids: the passes.
        members: int64 [n], indices into the alignment's invocations.
        samples: int64 [num_passes, n], critical-rank time of each pass.
    """

    pass_ids: tuple[int, ...]
    members: Int64Array
    samples: Int64Array

    def totals(self, chosen: BoolArray) -> Int64Array:
        """Total of the chosen invocations, pass by pass. [num_passes]"""
        return np.asarray(self.samples[:, chosen[self.members]].sum(axis=1), dtype=np.int64)


def samples_by_pass(chosen: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """One time a (rank row, pass): the sample of this very rank invocation, else the mean of the row's samples."""
    joined = chosen.select("invocation", *_RANK_ROW, "row_id").join(samples, on="row_id", suffix="_source")
    own = pl.all_horizontal([pl.col(name) == pl.col(f"{name}_source") for name in _RANK_ROW])
    taken = (
        joined.with_columns(own=own)
        .group_by("invocation", "rank", "row_id", "pass_id")
        .agg(
            pl.when(pl.col("own").any())
            .then(pl.col("busy_ns").filter(pl.col("own")).first())
            .otherwise(pl.col("busy_ns").mean().round().cast(pl.Int64))
            .alias("busy_ns"),
            pl.col("kernels_digest").first(),
            pl.col("clocks").first(),
        )
    )
    return _paired(taken).sort("invocation", "pass_id", "rank")


def _paired(taken: pl.DataFrame) -> pl.DataFrame:
    """Give ranks that were measured one at a time common passes: the first of each, the second, and so on.

    Such passes are numbered -1, -2, ...: they are pairs of passes, not passes that ran together.
    """
    ranks = taken.group_by("invocation").agg(pl.col("rank").n_unique().alias("ranks"))
    together = taken.group_by("invocation", "pass_id").agg(pl.len().alias("there")).join(ranks, on="invocation")
    apart = together.group_by("invocation").agg((pl.col("there") < pl.col("ranks")).all().alias("apart"))
    taken = taken.sort("invocation", "rank", "pass_id").join(apart, on="invocation", maintain_order="left")
    order = pl.int_range(pl.len()).over("invocation", "rank")
    return taken.with_columns(pass_id=pl.when(pl.col("apart")).then(-1 - order).otherwise(pl.col("pass_id"))).drop(
        "apart"
    )


def critical_by_pass(rows: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Critical-rank time of each (invocation, pass) in which every measured rank took part."""
    needed = rows.filter(pl.col("row_id").is_not_null()).group_by("invocation").agg(pl.len().alias("needed"))
    return (
        samples.group_by("invocation", "pass_id")
        .agg(pl.col("busy_ns").max(), pl.len().alias("ranks"))
        .join(needed, on="invocation")
        .filter(pl.col("ranks") == pl.col("needed"))
        .sort("invocation", "pass_id")
    )


def strata_of(critical: pl.DataFrame, covered: BoolArray) -> tuple[Stratum, ...]:
    """Covered invocations grouped by the set of passes that measured them; wholly empty ones join the first."""
    passes = critical.group_by("invocation", maintain_order=True).agg("pass_id", "busy_ns")
    strata = []
    for key in passes["pass_id"].unique(maintain_order=True).to_list():
        group = passes.filter(pl.col("pass_id") == pl.lit(key, dtype=pl.List(pl.Int64)))
        members = group["invocation"].to_numpy().astype(np.int64)
        table = np.array(group["busy_ns"].to_list(), dtype=np.int64).T
        keep = covered[members]
        if keep.any():
            strata.append(Stratum(tuple(key), members[keep], np.ascontiguousarray(table[:, keep])))
    empty = np.setdiff1d(
        np.flatnonzero(covered), np.concatenate([s.members for s in strata] or [np.zeros(0, np.int64)])
    )
    if len(empty) and strata:
        passes_there = strata[0].pass_ids
        strata.append(Stratum(passes_there, empty, np.zeros((len(passes_there), len(empty)), dtype=np.int64)))
    return tuple(strata)
