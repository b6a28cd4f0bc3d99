"""Is the critical rank the busiest one? By routed rows, and by experts that it has to read.

    python benchmarks/critical_rank.py CAPTURE
    python benchmarks/critical_rank.py CAPTURE --db DB --expert-parallel 2

The first counts over the invocations of a capture with expert parallelism in which every rank has a served time and an
exact input; the second over ranks derived from a capture of one rank and measured alone (moegauge profile run
--expert-parallel 2), by the median over their passes. Counted: how often the rank with the most rows, and the one with
the most active experts, is the critical one. Invocations in which ranks tie for the most are counted apart. Rows that
were executed count, padded ones too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.jobs.expert_shards import derived_type, linear_expert_map
from moegauge.jobs.profile_specs import EXACT

PLACE = ("iteration", "layer", "rank")


def served_owners(capture: CaptureFolder) -> pl.DataFrame:
    """Which rank owns which expert, as served."""
    return pl.concat(
        pl.DataFrame({"rank": one.rank, "expert": np.flatnonzero(np.array(one.expert_map) >= 0).astype(np.int32)})
        for one in capture.record.topology.ranks
        if one.expert_map is not None
    ).with_columns(pl.col("rank").cast(pl.Int32))


def derived_owners(num_ranks: int, num_experts: int) -> pl.DataFrame:
    """Which of the derived ranks owns which expert."""
    maps = {rank: linear_expert_map(rank, num_ranks, num_experts) for rank in range(num_ranks)}
    owned = ({"rank": rank, "expert": np.flatnonzero(one >= 0).astype(np.int32)} for rank, one in maps.items())
    return pl.concat(pl.DataFrame(one) for one in owned).with_columns(pl.col("rank").cast(pl.Int32))


def loads(capture: CaptureFolder, owners: pl.DataFrame, *, derived: bool) -> pl.DataFrame:
    """A row an (iteration, layer, rank): rows routed to its experts, and experts that any row is routed to."""
    routed = capture.routed_inputs.select(*PLACE, expert="topk_ids")
    picks = routed.explode("expert").filter(pl.col("expert") >= 0)
    owned = picks.drop("rank").join(owners, on="expert") if derived else picks.join(owners, on=["rank", "expert"])
    return owned.group_by(*PLACE).agg(rows=pl.len(), experts=pl.col("expert").n_unique())


def derived_times(db: Path, num_ranks: int) -> pl.DataFrame:
    """Median busy time of every derived rank invocation over its passes."""
    with open_profile_db(db) as database:
        kind = derived_type(EXACT, num_ranks)
        wanted = [row.row_id for row in database.rows() if row.key.match.input_type == kind]
        samples = database.samples().filter(pl.col("row_id").is_in(wanted))
    if not wanted:
        raise SystemExit(f"{db} holds no exact inputs derived for {num_ranks} ranks")
    return samples.group_by(*PLACE).agg(pl.col("busy_ns").median())


def main() -> None:
    """Print both counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--expert-parallel", type=int)
    asked = parser.parse_args()
    if (asked.db is None) != (asked.expert_parallel is None):
        parser.error("--db and --expert-parallel belong together")
    capture = open_capture(asked.capture)
    if asked.db is None:
        closed = capture.invocations.filter(pl.col("timing_status") == "CLOSED")
        times, load = closed.select(*PLACE, "busy_ns"), loads(capture, served_owners(capture), derived=False)
    else:
        times = derived_times(asked.db, asked.expert_parallel)
        owners = derived_owners(asked.expert_parallel, capture.record.model.num_experts)
        load = loads(capture, owners, derived=True)
    show(times.cast(dict.fromkeys(PLACE, pl.Int32)).join(load, on=PLACE, how="left"))


def show(both: pl.DataFrame) -> None:
    """Print how often the busiest rank is the critical one, and by how much the ranks differ."""
    each = both.with_columns(pl.col("rows", "experts").fill_null(0)).group_by("iteration", "layer", maintain_order=True)
    busiest = each.agg(
        *(pl.col("rank").sort_by(name, descending=True).first().alias(name) for name in ("busy_ns", "rows", "experts")),
        *((pl.col(name) == pl.col(name).max()).sum().alias(f"{name}_most") for name in ("rows", "experts")),
        critical=pl.col("busy_ns").max(),
        mean=pl.col("busy_ns").mean(),
    )
    ratio = busiest["critical"].sum() / busiest["mean"].sum()
    print(f"{busiest.height} invocations, critical rank over mean rank {ratio:.3f}")
    for name in ("rows", "experts"):
        told = busiest.filter(pl.col(f"{name}_most") == 1)
        same = told.filter(pl.col(name) == pl.col("busy_ns")).height
        print(f"most {name}: the critical rank in {same} of {told.height}, {busiest.height - told.height} ties")


if __name__ == "__main__":
    main()
