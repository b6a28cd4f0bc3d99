"""The served side of a ladder: rank invocations of a capture with the key of the input that would be measured."""

from __future__ import annotations

import polars as pl

from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.capture_tables import CLOSED, ROUTED, ROUTED_PARTIAL, ZERO_TOKENS
from moegauge.evidence.digest import record_digest
from moegauge.jobs.profile_specs import EXACT, InputChoice, SpecSource, exact_match
from moegauge.ladder.alignment import ServedWork
from moegauge.records.comparison import Unmatched

_PLACE = ["iteration", "layer", "rank"]


def served_work(capture: CaptureFolder, choice: InputChoice) -> ServedWork:
    """The capture's invocations as the left side.

    Args:
        capture: the capture.
        choice: representation whose measurement is looked for; a reconstruction is drawn again, so that its digest is
            derived and never copied.
    """
    invocations = capture.invocations
    modes = capture.iterations.select("iteration", "rank", pl.col("launch_mode").alias("served_mode"))
    status = pl.col("routed_status")
    timed = pl.col("timing_status").is_in([CLOSED, ZERO_TOKENS])
    rows = (
        invocations.join(modes, on=["iteration", "rank"], how="left", maintain_order="left")
        .join(_matches(capture, choice), on=_PLACE, how="left", maintain_order="left")
        .select(
            *_PLACE,
            "busy_ns",
            zero_tokens=pl.col("timing_status") == ZERO_TOKENS,
            timing_code=pl.when(timed).then(None).otherwise(pl.col("timing_reason_code")),
            routed_code=pl.when(status == ROUTED)
            .then(None)
            .when(status == ROUTED_PARTIAL)
            .then(pl.lit("ROUTED_ROWS_PARTIAL"))
            .otherwise(pl.lit("NO_EXACT_INPUT")),
            launch_mode=pl.col("served_mode"),
            match=pl.col("match"),
            kernels_digest=pl.col("kernels_digest"),
        )
    )
    missing = [rank for rank in capture.record.topology.ranks if not rank.recorded]
    text = "".join(f" (rank {rank.rank} missing: {rank.why_missing})" for rank in missing)
    return ServedWork(rows, capture.record.topology.world_size, _loose_kernels(capture), text)


def _matches(capture: CaptureFolder, choice: InputChoice) -> pl.DataFrame:
    """Digest of the match key of each rank invocation with an input."""
    if choice.type == EXACT:
        ranks = {rank.rank: rank for rank in capture.record.topology.ranks}
        wanted = capture.invocations.filter((pl.col("routed_status") == ROUTED) & (pl.col("executed_rows") > 0))
        columns = (*_PLACE, "executed_rows", "routed_digest")
        found = [
            (iteration, layer, rank, record_digest(exact_match(capture, ranks[rank], rows, digest)))
            for iteration, layer, rank, rows, digest in wanted.select(columns).iter_rows()
        ]
    else:
        specs = SpecSource(capture).specs(choice)
        found = [(spec.iteration, spec.layer, spec.rank, record_digest(spec.match)) for spec in specs]
    schema = {"iteration": pl.Int32, "layer": pl.Int32, "rank": pl.Int32, "match": pl.String}
    return pl.DataFrame(found, schema=schema, orient="row")


def _loose_kernels(capture: CaptureFolder) -> tuple[Unmatched, ...]:
    """Kernels of the subject that belong to no invocation: outside every iteration, or in one that did not close."""
    found = [
        Unmatched(
            side="left", what=f"kernels: {finding.sentence}", why="OUTSIDE_ITERATIONS", num=finding.num, ns=finding.ns
        )
        for finding in capture.record.findings
        if finding.code == "SUBJECT_OUTSIDE_ITERATIONS"
    ]
    lost = capture.iterations.filter(pl.col("num_unattributed_kernels") > 0)
    found += [
        Unmatched(
            side="left",
            what=f"kernels of iteration {iteration}, rank {rank}",
            why=code or "STRAY_KERNEL",
            num=num,
            ns=ns,
        )
        for iteration, rank, code, num, ns in lost.select(
            "iteration", "rank", "reason_code", "num_unattributed_kernels", "unattributed_ns"
        ).iter_rows()
    ]
    return tuple(found)
