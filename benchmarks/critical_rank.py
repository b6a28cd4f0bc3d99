"""Is the critical rank the busiest one? By routed rows, and by experts that it has to read.

    python benchmarks/critical_rank.py CAPTURE

Over the invocations of a capture with expert parallelism in which every rank has a time and an exact input: how often
the rank with the most rows, and the one with the most active experts, is the critical one. Invocations in which ranks
tie for the most are counted apart. Rows that were executed count, padded ones too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from moegauge.evidence.capture_folder import CaptureFolder, open_capture


def loads(capture: CaptureFolder) -> pl.DataFrame:
    """A row an (iteration, layer, rank): rows routed to its experts, and experts that any row is routed to."""
    routed = capture.routed_inputs.select("iteration", "layer", "rank", expert="topk_ids")
    picks = routed.explode("expert").filter(pl.col("expert") >= 0)
    owners = pl.concat(
        pl.DataFrame({"rank": one.rank, "expert": np.flatnonzero(np.array(one.expert_map) >= 0).astype(np.int32)})
        for one in capture.record.topology.ranks
        if one.expert_map is not None
    ).with_columns(pl.col("rank").cast(pl.Int32))
    owned = picks.join(owners, on=["rank", "expert"])
    return owned.group_by("iteration", "layer", "rank").agg(rows=pl.len(), experts=pl.col("expert").n_unique())


def main() -> None:
    """Print both counts of a capture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    capture = open_capture(parser.parse_args().capture)
    times = capture.invocations.filter(pl.col("timing_status") == "CLOSED").select(
        "iteration", "layer", "rank", "busy_ns"
    )
    both = times.join(loads(capture), on=["iteration", "layer", "rank"], how="left").with_columns(
        pl.col("rows", "experts").fill_null(0)
    )
    each = both.group_by("iteration", "layer", maintain_order=True)
    busiest = each.agg(
        *(pl.col("rank").sort_by(name, descending=True).first().alias(name) for name in ("busy_ns", "rows", "experts")),
        *((pl.col(name) == pl.col(name).max()).sum().alias(f"{name}_most") for name in ("rows", "experts")),
    )
    print(f"{busiest.height} invocations")
    for name in ("rows", "experts"):
        told = busiest.filter(pl.col(f"{name}_most") == 1)
        same = told.filter(pl.col(name) == pl.col("busy_ns")).height
        print(f"most {name}: the critical rank in {same} of {told.height}, {busiest.height - told.height} ties")


if __name__ == "__main__":
    main()
