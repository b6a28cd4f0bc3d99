"""Match served work with isolated rows. What does not match is returned with a reason, never dropped."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.records.comparison import Unmatched
from moegauge.timing.reduction import critical_rank

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_INVOCATION = ["iteration", "layer"]
_RANK_ROW = [*_INVOCATION, "rank"]


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
        rows: row_id, match, launch_mode (null: not recorded), cache_state (null: not recorded).
        samples: row_id, pass_id, iteration, layer, busy_ns, kernels_digest.
    """

    rows: pl.DataFrame
    samples: pl.DataFrame


@dataclass(frozen=True)
class Choice:
    """How rows are chosen where several match: ``as-served``, ``eager`` or ``graph``; a cache state or None."""

    launch_mode: str
    cache_state: str | None


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
        """Strata with at least one chosen invocation."""
        return [stratum for stratum in self.strata if chosen[stratum.members].any()]


def align_work(served: ServedWork, measured: MeasuredWork, choice: Choice) -> Alignment:
    """Match the two sides.

    Args:
        served: the left side.
        measured: the right side.
        choice: which rows to take where several match.
    """
    pairs, codes = _choose(served.rows, measured.rows, choice)
    invocations = served.rows.select(_INVOCATION).unique().sort(_INVOCATION).with_row_index("invocation")
    rows = (
        served.rows.join(invocations, on=_INVOCATION, maintain_order="left")
        .join(codes, on=_RANK_ROW, how="left", maintain_order="left")
        .join(pairs, on=_RANK_ROW, how="left", maintain_order="left")
    )
    why = _why(rows, invocations.height, served.num_ranks)
    left = _left(rows, invocations.height)
    samples = _sampled(rows.filter(pl.col("row_id").is_not_null()), measured.samples)
    critical = _critical_by_pass(rows, samples)
    covered = _covered(rows, critical, why)
    means = samples.group_by("invocation", "rank").agg(
        pl.col("busy_ns").mean().round().cast(pl.Int64).alias("right_ns")
    )
    strata = _strata(critical, covered)
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
        strata=strata,
        rank_rows=_rank_rows(rows, means, covered),
        row_ids=tuple(sorted(rows["row_id"].drop_nulls().unique().to_list())),
        left_unmatched_kernels=served.unmatched,
        missing_ranks_text=served.missing_ranks_text,
        right_unmatched=_right_unmatched(rows, measured, served),
    )


def _choose(served: pl.DataFrame, rows: pl.DataFrame, choice: Choice) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rank rows with exactly one fitting profile row, and the reason code of those with none or several."""
    candidates = served.filter(pl.col("match").is_not_null()).select(*_RANK_ROW, "match", "launch_mode")
    found = candidates.join(rows.rename({"launch_mode": "row_launch_mode"}), on="match", how="inner")
    wanted = pl.col("launch_mode") if choice.launch_mode == "as-served" else pl.lit(choice.launch_mode)
    found = found.filter(pl.col("row_launch_mode").is_null() | wanted.is_null() | (pl.col("row_launch_mode") == wanted))
    if choice.cache_state is not None:
        found = found.filter(pl.col("cache_state") == choice.cache_state)
    known = pl.col("row_launch_mode").is_not_null()
    found = found.filter(known | ~known.any().over(_RANK_ROW))
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


def _sampled(chosen: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """One time a (rank row, pass): the sample taken for this very invocation, else the mean of the row's samples."""
    joined = chosen.select("invocation", *_RANK_ROW, "row_id").join(samples, on="row_id", suffix="_source")
    own = (pl.col("iteration") == pl.col("iteration_source")) & (pl.col("layer") == pl.col("layer_source"))
    return (
        joined.with_columns(own=own)
        .group_by("invocation", "rank", "row_id", "pass_id")
        .agg(
            pl.when(pl.col("own").any())
            .then(pl.col("busy_ns").filter(pl.col("own")).first())
            .otherwise(pl.col("busy_ns").mean().round().cast(pl.Int64))
            .alias("busy_ns"),
            pl.col("kernels_digest").first(),
        )
        .sort("invocation", "pass_id", "rank")
    )


def _critical_by_pass(rows: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Critical-rank time of each (invocation, pass) in which every measured rank took part."""
    needed = rows.filter(pl.col("row_id").is_not_null()).group_by("invocation").agg(pl.len().alias("needed"))
    return (
        samples.group_by("invocation", "pass_id")
        .agg(pl.col("busy_ns").max(), pl.len().alias("ranks"))
        .join(needed, on="invocation")
        .filter(pl.col("ranks") == pl.col("needed"))
        .sort("invocation", "pass_id")
    )


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


def _strata(critical: pl.DataFrame, covered: BoolArray) -> tuple[Stratum, ...]:
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


def _right_unmatched(rows: pl.DataFrame, measured: MeasuredWork, served: ServedWork) -> tuple[Unmatched, ...]:
    """Profile rows that were not used, by why: another launch mode or cache state chosen, or no such served input."""
    used = set(rows["row_id"].drop_nulls().to_list())
    rest = measured.rows.filter(~pl.col("row_id").is_in(list(used)))
    if not rest.height:
        return ()
    means = measured.samples.group_by("row_id").agg(
        pl.col("busy_ns").mean().round().cast(pl.Int64), pl.col("iteration", "layer").first()
    )
    rest = rest.join(means, on="row_id", how="left")
    known = pl.col("match").is_in(served.rows["match"].drop_nulls().unique().to_list())
    rest = rest.with_columns(why=pl.when(known).then(pl.lit("OTHER_ROW_CHOSEN")).otherwise(pl.lit("INPUT_NOT_SERVED")))
    units = rest.group_by("why", "launch_mode", "cache_state", *_INVOCATION).agg(pl.col("busy_ns").max())
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
