"""How much of a recording is accounted for: coverage, findings, and the check against the engine's own routes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.adapters.routes.serving import ServingSource
from moegauge.adapters.routes.vllm_export import read_official_routes
from moegauge.evidence.capture_tables import CLOSED, ROUTED, UNAVAILABLE, ZERO_TOKENS
from moegauge.jobs.attributed_trace import AttributedTrace, cross_invocation_overlap
from moegauge.jobs.capture_rows import RankSource
from moegauge.kernels.classification import OpClass
from moegauge.records.capture import Coverage, Finding, RoutesCrossCheck

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class RankResult:
    """Everything derived of one rank: rows of each table, the attributed trace, and subject time outside iterations."""

    number: int
    iterations: pl.DataFrame
    invocations: pl.DataFrame
    routed: pl.DataFrame
    intervals: pl.DataFrame
    found: AttributedTrace
    outside_ns: int


def coverage_of(results: list[RankResult]) -> Coverage:
    """Count what closes, and partition every device operation by class."""
    invocations = pl.concat([r.invocations for r in results])
    iterations = pl.concat([r.iterations for r in results])
    closed = iterations.group_by("iteration").agg((pl.col("status") == "COMPLETE").all().alias("all"))
    timed = invocations.filter(pl.col("timing_status") != UNAVAILABLE)
    intervals = pl.concat([r.intervals.select("op_class", "iteration", "name") for r in results])
    inside = intervals.filter(pl.col("iteration").is_not_null())
    unknown = inside.filter(pl.col("op_class") == OpClass.UNKNOWN.name)

    def ops(op_class: OpClass) -> int:
        return inside.filter(pl.col("op_class") == op_class.name).height

    return Coverage(
        num_iterations=closed.height,
        num_iterations_closed=int(closed["all"].sum()),
        num_rank_invocations=invocations.height,
        num_rank_invocations_closed=invocations.filter(pl.col("timing_status") == CLOSED).height,
        num_rank_invocations_zero_tokens=invocations.filter(pl.col("timing_status") == ZERO_TOKENS).height,
        num_rank_invocations_routed=invocations.filter(pl.col("routed_status") == ROUTED).height,
        num_ops_in_boundary=ops(OpClass.IN_BOUNDARY),
        num_ops_outside_boundary=ops(OpClass.OUTSIDE_BOUNDARY),
        num_ops_foreign=ops(OpClass.FOREIGN),
        num_ops_unknown=ops(OpClass.UNKNOWN),
        num_ops_outside_iterations=intervals.height - inside.height,
        num_ops_invalid=sum(len(r.found.trace.invalid.name) for r in results),
        busy_ns=int(timed["busy_ns"].sum()),
        span_ns=int(timed["span_ns"].sum()),
        foreign_ns=int(timed["foreign_ns"].sum()),
        unknown_names=tuple(sorted({name[:120] for name in unknown["name"].to_list()})[:20]),
    )


def findings_of(results: list[RankResult]) -> tuple[Finding, ...]:
    """What reading and attribution noticed, and everything of each rank that is not accounted for."""
    found = [finding for r in results for finding in r.found.attribution.findings]
    for result in results:
        found += [*_outside(result), *_incomplete(result), *_not_exact(result), *_overlap(result)]
    return tuple(found)


def _outside(result: RankResult) -> list[Finding]:
    """Kernels of the subject outside every iteration."""
    outside = result.found.attribution.outside_iterations
    if not len(outside):
        return []
    ops, names = result.found.trace.ops, result.found.trace.names
    return [
        Finding(
            code="SUBJECT_OUTSIDE_ITERATIONS",
            sentence=f"kernels of the kind outside every iteration (rank {result.number}): unmatched work",
            num=len(outside),
            ns=result.outside_ns,
            examples=tuple(names[int(ops.name[index])][:60] for index in outside[:5]),
        )
    ]


def _incomplete(result: RankResult) -> list[Finding]:
    """Iterations that do not close, one finding a reason."""
    lost = result.iterations.filter(pl.col("status") != "COMPLETE").sort("iteration")
    return [
        Finding(
            code="ITERATIONS_INCOMPLETE",
            sentence=f"iterations of rank {result.number} do not close ({code})",
            num=rows.height,
            ns=int(rows["unattributed_ns"].sum()),
            examples=tuple(rows["reason"].head(5)),
        )
        for (code,), rows in lost.group_by("reason_code", maintain_order=True)
    ]


def _not_exact(result: RankResult) -> list[Finding]:
    """Invocations whose routed rows may not be called exact, one finding a status."""
    lost = result.invocations.filter((pl.col("routed_status") != ROUTED) & (pl.col("timing_status") != ZERO_TOKENS))
    where = pl.format("iteration {}, layer {}: {}", "iteration", "layer", "routed_reason").alias("where")
    return [
        Finding(
            code=f"ROUTED_ROWS_{status}",
            sentence=f"invocations of rank {result.number} have no exact input",
            num=rows.height,
            examples=tuple(rows.select(where)["where"].head(5)),
        )
        for (status,), rows in lost.group_by("routed_status", maintain_order=True)
    ]


def _overlap(result: RankResult) -> list[Finding]:
    """Time in which two invocations ran at once: counted in both, so their sum is more than the device was busy."""
    overlap = cross_invocation_overlap(result.found)
    if not overlap.ns:
        return []
    return [
        Finding(
            code="CROSS_INVOCATION_OVERLAP",
            sentence=f"invocations of rank {result.number} start before an earlier one ends; each keeps its whole "
            "time, and the time of all together divided by their number is not the time of one",
            num=overlap.num,
            ns=overlap.ns,
            examples=overlap.examples,
        )
    ]


def cross_check(bundle: ServingSource, rank: RankSource, layers: Int64Array) -> RoutesCrossCheck | None:
    """Hold captured ids against the engine's own export, token by token over all MoE layers."""
    if bundle.official_routes is None:
        return None
    official: Counter[bytes] = Counter()
    deepest, top_k = int(layers.max()) + 1, bundle.shape.top_k
    for request in read_official_routes(bundle.official_routes, num_layers=deepest, top_k=top_k):
        official.update(row.tobytes() for row in np.ascontiguousarray(request[:, layers, :], dtype=np.int64))
    logical: Counter[bytes] = Counter()
    padded: list[bytes] = []
    for step in bundle.meta.steps:
        index = np.flatnonzero(rank.routed.iteration == step.iteration)
        if len(index) != len(layers) or step.tokens is None:
            continue
        tables = [rank.routed.topk_ids[rank.routed.offset[i] : rank.routed.offset[i + 1]] for i in index]
        if len({len(table) for table in tables}) != 1:
            continue
        rows = [row.tobytes() for row in np.stack(tables, axis=1).astype(np.int64)]
        logical.update(rows[: step.tokens])
        padded += rows[step.tokens :]
    return RoutesCrossCheck(
        num_tokens_official=official.total(),
        num_tokens_captured=logical.total(),
        num_tokens_equal=(official & logical).total(),
        num_padded_rows=len(padded),
        num_padded_rows_like_a_token=sum(row in official for row in padded),
    )
