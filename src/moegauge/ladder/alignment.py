"""Match served work with isolated rows. What does not match is returned with a reason, never dropped."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.ladder.strata import Stratum, critical_by_pass, samples_by_pass, strata_of
from moegauge.ladder.unused import unused_rows
from moegauge.records.comparison import Unmatched
from moegauge.records.measurement import TOGETHER
from moegauge.timing.reduction import critical_rank

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_INVOCATION = ["iteration", "layer"]
_RANK_ROW = [*_INVOCATION, "rank"]

CHOSEN_BY = ("match", "launch_mode", "cache_state", "co_running", "kernel_config", "ranks")
"""Columns of measured rows that decide which of them a served invocation is compared with."""


@dataclass(frozen=True)
class ServedWork:
    """The left side, one row a rank invocation.

    Attributes:
        rows: iteration, layer, rank, busy_ns (null: not captured), zero_tokens, timing_code (null where timed),
            routed_code (null where the exact input is there), launch_mode (null: not recorded), match (digest of the
            match key, null without exact input), kernels_digest.
        num_ranks: ranks every invocation has.
        unmatched: captured kernels that belong to no invocation.
        missing_ranks_text: " (rank 1 missing)", say; "" where every rank was recorded.
    """

    rows: pl.DataFrame
    num_ranks: int
    unmatched: tuple[Unmatched, ...]
    missing_ranks_text: str


@dataclass(frozen=True)
class MeasuredWork:
    """The right side.

    Attributes:
        rows: row_id, match, launch_mode and cache_state (null: not recorded), co_running (null: nothing),
            kernel_config (null: as the kernel's own code found it) and ranks (``together``, else: not known to have run
            together).
        samples: row_id, pass_id, iteration, layer, rank, busy_ns, kernels_digest, clocks (null: not recorded).
    """

    rows: pl.DataFrame
    samples: pl.DataFrame


@dataclass(frozen=True)
class Choice:
    """How rows are chosen where several match.

    Attributes:
        launch_mode: as-served, eager or graph. cache_state: None for whichever is there.
        co_running: what ran beside the kernel; None for nothing.
        kernel_config: digest of the configurations that were given; None for as found.
        clocks: take only passes that were read at these; None for all.
    """

    launch_mode: str
    cache_state: str | None
    co_running: str | None = None
    kernel_config: str | None = None
    clocks: str | None = None


@dataclass(frozen=True)
class Alignment:
    """Both sides side by side, one entry an invocation, ascending by (iteration, layer).

    Attributes:
        iteration, layer: int64 [n].
        left_ns: int64 [n], critical-rank time served (a lower bound where a rank is missing; 0 where none is known).
        left_known: bool [n], whether any rank's time was captured.
        left_rank, right_rank: int64 [n], critical rank of each side; NONE (-1) where there is none.
        covered: bool [n], both sides complete. why: reason code of each uncovered one, else "".
        launch_mode_differs, kernels_differ: bool [n], for covered ones.
        match: list [n], the match digests of the ranks in order, for the input digest.
        strata: measured times of the covered ones.
        rank_rows: iteration, layer, rank, left_ns, right_ns of covered invocations.
        row_ids: profile rows used.
        left_unmatched_kernels: served kernels that belong to no invocation.
        missing_ranks_text: names the ranks that were not recorded, for messages.
        right_unmatched: measured rows that were not used.
    """

    iteration: Int64Array
    layer: Int64Array
    left_ns: Int64Array
    left_known: BoolArray
    left_rank: Int64Array
    right_rank: Int64Array
    covered: BoolArray
    why: list[str]
    launch_mode_differs: BoolArray
    kernels_differ: BoolArray
    match: list[list[str]]
    strata: tuple[Stratum, ...]
    rank_rows: pl.DataFrame
    row_ids: tuple[int, ...]
    left_unmatched_kernels: tuple[Unmatched, ...]
    missing_ranks_text: str
    right_unmatched: tuple[Unmatched, ...]

    def right_mean_ns(self, chosen: BoolArray) -> int:
        """Mean over passes of the chosen invocations' total, rounded to whole ns (exact with one pass)."""
        total = sum((Fraction(int(s.totals(chosen).sum()), len(s.pass_ids)) for s in self.strata), start=Fraction(0))
        return round(total)

    def right_each_ns(self) -> Int64Array:
        """Mean over passes of every covered invocation, rounded to whole ns; 0 for uncovered ones. [n]"""
        out = np.zeros(len(self.iteration), dtype=np.int64)
        for stratum in self.strata:
            out[stratum.members] = np.rint(stratum.samples.sum(axis=0) / len(stratum.pass_ids)).astype(np.int64)
        return out

    def chosen_strata(self, chosen: BoolArray) -> list[Stratum]:
        """Strata that hold a chosen invocation."""
        return [stratum for stratum in self.strata if chosen[stratum.members].any()]


def align_work(served: ServedWork, measured: MeasuredWork, choice: Choice) -> Alignment:
    """Match the two sides.

    Args:
        served: the left side.
        measured: the right side.
        choice: which rows to take where several match.
    """
    pairs, codes = _choose(served.rows, measured.rows, choice, served.num_ranks)
    invocations = served.rows.select(_INVOCATION).unique().sort(_INVOCATION).with_row_index("invocation")
    rows = (
        served.rows.join(invocations, on=_INVOCATION, maintain_order="left")
        .join(codes, on=_RANK_ROW, how="left", maintain_order="left")
        .join(pairs, on=_RANK_ROW, how="left", maintain_order="left")
    )
    why = _why(rows, invocations.height, served.num_ranks)
    left = _left(rows, invocations.height)
    samples = samples_by_pass(rows.filter(pl.col("row_id").is_not_null()), measured.samples)
    if choice.clocks is not None:
        samples = samples.filter(pl.col("clocks") == choice.clocks)
    critical = critical_by_pass(rows, samples)
    covered = _covered(rows, critical, why)
    means = samples.group_by("invocation", "rank").agg(
        pl.col("busy_ns").mean().round().cast(pl.Int64).alias("right_ns")
    )
    return Alignment(
        iteration=invocations["iteration"].to_numpy().astype(np.int64),
        layer=invocations["layer"].to_numpy().astype(np.int64),
        left_ns=left.busy_ns,
        left_known=left.num_ranks > 0,
        left_rank=left.rank,
        right_rank=_right_rank(means, invocations.height),
        covered=covered,
        why=why,
        launch_mode_differs=_any_by_invocation(rows, _launch_mode_differs(), invocations.height) & covered,
        kernels_differ=_kernels_differ(rows, samples, invocations.height) & covered,
        match=_matches(rows, invocations.height),
        strata=strata_of(critical, covered),
        rank_rows=_rank_rows(rows, means, covered),
        row_ids=tuple(sorted(rows["row_id"].drop_nulls().unique().to_list())),
        left_unmatched_kernels=served.unmatched,
        missing_ranks_text=served.missing_ranks_text,
        right_unmatched=unused_rows(rows, measured.rows, measured.samples, covered),
    )


def _as_served(ranks: pl.Expr, num_ranks: int) -> pl.Expr:
    """Whether ranks ran as in serving: together where there are several."""
    return ranks.eq_missing(TOGETHER) if num_ranks > 1 else ranks.ne_missing(TOGETHER)


def _choose(
    served: pl.DataFrame, rows: pl.DataFrame, choice: Choice, num_ranks: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rank rows with one fitting profile row, and the reason code of those with none or several."""
    candidates = served.filter(pl.col("match").is_not_null()).select(*_RANK_ROW, "match", "launch_mode")
    found = candidates.join(rows.rename({"launch_mode": "row_launch_mode"}), on="match", how="inner")
    wanted = pl.col("launch_mode") if choice.launch_mode == "as-served" else pl.lit(choice.launch_mode)
    found = found.filter(pl.col("row_launch_mode").is_null() | wanted.is_null() | (pl.col("row_launch_mode") == wanted))
    for name, value in (("co_running", choice.co_running), ("kernel_config", choice.kernel_config)):
        found = found.filter(pl.col(name).eq_missing(pl.lit(value, dtype=pl.String)))
    if choice.cache_state is not None:
        found = found.filter(pl.col("cache_state") == choice.cache_state)
    for better in (_as_served(pl.col("ranks"), num_ranks), pl.col("row_launch_mode").is_not_null()):
        found = found.filter(better | ~better.any().over(_RANK_ROW))
    counted = found.group_by(_RANK_ROW).agg(
        pl.len().alias("num"), pl.col("row_id").first(), pl.col("row_launch_mode").first()
    )
    single = counted.filter(pl.col("num") == 1).select(*_RANK_ROW, "row_id", "row_launch_mode")
    codes = candidates.select(_RANK_ROW).join(counted, on=_RANK_ROW, how="left", maintain_order="left")
    code = (
        pl.when(pl.col("num").is_null())
        .then(pl.lit("NO_MEASURED_ROWS"))
        .when(pl.col("num") > 1)
        .then(pl.lit("AMBIGUOUS_ROWS"))
    )
    return single, codes.select(*_RANK_ROW, code.otherwise(None).alias("match_code"))


def _why(rows: pl.DataFrame, num_invocations: int, num_ranks: int) -> list[str]:
    """Reason code of each uncovered invocation, "" for covered ones."""
    present = rows.group_by("invocation").agg(
        pl.len().alias("ranks"),
        pl.col("timing_code").drop_nulls().first(),
        pl.col("routed_code").filter(~pl.col("zero_tokens")).drop_nulls().first(),
        pl.col("match_code").filter(~pl.col("zero_tokens")).drop_nulls().first(),
    )
    why = ["RANK_MISSING"] * num_invocations
    for invocation, ranks, timing, routed, match in present.iter_rows():
        codes = ("RANK_MISSING" if ranks < num_ranks else None, timing, routed, match)
        why[invocation] = next((code for code in codes if code is not None), "")
    return why


@dataclass(frozen=True)
class _Left:
    busy_ns: Int64Array
    rank: Int64Array
    num_ranks: Int64Array


def _left(rows: pl.DataFrame, num_invocations: int) -> _Left:
    timed = rows.filter(pl.col("busy_ns").is_not_null())
    found = critical_rank(
        timed["invocation"].to_numpy().astype(np.int64),
        timed["rank"].to_numpy().astype(np.int64),
        timed["busy_ns"].to_numpy().astype(np.int64),
        num_invocations=num_invocations,
    )
    return _Left(found.busy_ns, found.rank, found.num_ranks)


def _covered(rows: pl.DataFrame, critical: pl.DataFrame, why: list[str]) -> BoolArray:
    """Invocations that are complete on both sides; notes the reason where measured rows share no whole pass."""
    measured = set(critical["invocation"].to_list())
    for invocation in rows.filter(pl.col("row_id").is_not_null())["invocation"].unique().to_list():
        if why[invocation] == "" and invocation not in measured:
            why[invocation] = "NO_MEASURED_ROWS"
    return np.array([code == "" for code in why], dtype=bool)


def _right_rank(means: pl.DataFrame, num_invocations: int) -> Int64Array:
    columns = (means[name].to_numpy().astype(np.int64) for name in ("invocation", "rank", "right_ns"))
    return critical_rank(*columns, num_invocations=num_invocations).rank


def _launch_mode_differs() -> pl.Expr:
    return (pl.col("launch_mode") != pl.col("row_launch_mode")).fill_null(value=False)


def _any_by_invocation(rows: pl.DataFrame, condition: pl.Expr, num_invocations: int) -> BoolArray:
    out = np.zeros(num_invocations, dtype=bool)
    out[rows.filter(condition)["invocation"].unique().to_numpy()] = True
    return out


def _kernels_differ(rows: pl.DataFrame, samples: pl.DataFrame, num_invocations: int) -> BoolArray:
    both = samples.join(
        rows.select("invocation", "rank", pl.col("kernels_digest").alias("served")), on=["invocation", "rank"]
    )
    return _any_by_invocation(both, pl.col("served") != pl.col("kernels_digest"), num_invocations)


def _matches(rows: pl.DataFrame, num_invocations: int) -> list[list[str]]:
    out: list[list[str]] = [[] for _ in range(num_invocations)]
    for invocation, match in rows.sort("invocation", "rank").select("invocation", "match").iter_rows():
        out[invocation].append(match or "")
    return out


def _rank_rows(rows: pl.DataFrame, means: pl.DataFrame, covered: BoolArray) -> pl.DataFrame:
    both = rows.join(means, on=["invocation", "rank"], how="left", maintain_order="left")
    both = both.filter(pl.Series(covered)[both["invocation"]])
    right = pl.when(pl.col("zero_tokens")).then(pl.col("right_ns").fill_null(0)).otherwise(pl.col("right_ns"))
    return both.select(*_RANK_ROW, pl.col("busy_ns").alias("left_ns"), right.alias("right_ns"), "row_id").sort(
        _RANK_ROW
    )
