"""One trace, read, attributed and reduced: shared by the import of captures and of isolated measurements."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge.evidence.digest import kernel_sequence_digest
from moegauge.kernels.attribution import Attribution, How, Plan, attribute
from moegauge.kernels.classification import OpClass
from moegauge.kernels.kind import KernelKind
from moegauge.kernels.scopes import ScopeTags
from moegauge.kernels.trace import NONE, OpKind, Trace
from moegauge.timing.intervals import covered_within, occupancy

Int64Array = NDArray[np.int64]

_OP_COLUMNS = ("device", "stream", "start_ns", "end_ns")


@dataclass(frozen=True)
class AttributedTrace:
    """A trace with its attribution and reductions.

    Attributes:
        trace, attribution: as read and attributed.
        rows: one row a plan entry: iteration, layer, executed_rows, variant, attribution, launch_mode, device,
            stream, start_ns, busy_ns, span_ns, gap_ns, foreign_ns, num_kernels, kernels_digest; all times null where
            the invocation is not closed.
        kernel_names: ordered kernel names behind each kernels_digest.
    """

    trace: Trace
    attribution: Attribution
    rows: pl.DataFrame
    kernel_names: dict[str, tuple[str, ...]]


def attributed_trace(trace: Trace, kind: KernelKind, plan: Plan, tags: ScopeTags) -> AttributedTrace:
    """Attribute a trace and reduce every closed invocation to busy union, span, gap and co-running time."""
    found = attribute(trace, kind, plan, tags)
    ops = trace.ops
    mine = np.flatnonzero(found.invocation != NONE)
    mine = mine[found.op_class[mine] == OpClass.IN_BOUNDARY]
    group = found.invocation[mine]
    size = len(plan.iteration)
    taken = occupancy(group, ops.start_ns[mine], ops.end_ns[mine], num_groups=size)
    closed = taken.num_intervals > 0
    head = _first_of(group, mine, ops.start_ns, size)
    stream, device = _at(ops.stream, head), _at(ops.device, head)
    foreign = _foreign(
        trace, found, start_ns=taken.start_ns, end_ns=taken.end_ns, device=device, stream=stream, closed=closed
    )
    digests, kernel_names = _kernel_digests(trace, group, mine, size)
    modes = {0: "eager", 1: "graph", NONE: None}
    rows = pl.DataFrame(
        {
            "iteration": pl.Series(plan.iteration, dtype=pl.Int32),
            "layer": pl.Series(plan.layer, dtype=pl.Int32),
            "executed_rows": pl.Series(plan.executed_rows, dtype=pl.Int32),
            "variant": pl.Series([v or None for v in found.variant], dtype=pl.String),
            "attribution": pl.Series(_weakest(found.how, group, mine, size), dtype=pl.String),
            "launch_mode": pl.Series([modes[int(m)] for m in found.launched_by_graph], dtype=pl.String),
            "device": pl.Series(device, dtype=pl.Int32),
            "stream": pl.Series(stream, dtype=pl.Int64),
            "start_ns": pl.Series(taken.start_ns),
            "busy_ns": pl.Series(taken.busy_ns),
            "span_ns": pl.Series(taken.span_ns),
            "gap_ns": pl.Series(taken.gap_ns),
            "foreign_ns": pl.Series(foreign),
            "num_kernels": pl.Series(taken.num_intervals, dtype=pl.Int32),
            "kernels_digest": pl.Series(digests, dtype=pl.String),
        }
    )
    measured = rows.columns[rows.columns.index("launch_mode") :]
    mask = pl.Series(closed)
    rows = rows.with_columns([pl.when(mask).then(pl.col(name)).otherwise(None).alias(name) for name in measured])
    return AttributedTrace(trace, found, rows, kernel_names)


@dataclass(frozen=True)
class CrossOverlap:
    """Invocations that overlap one another on their device.

    Attributes:
        num: invocations that start before an earlier one of the same device ends.
        ns: sum of the invocations' busy unions less the busy union of all of them, over all devices.
        examples: a few of the invocations that start early.
    """

    num: int
    ns: int
    examples: tuple[str, ...]


def cross_invocation_overlap(found: AttributedTrace) -> CrossOverlap:
    """How far consecutive invocations of a trace overlap (a chain that starts before the one before it ends)."""
    ops, attribution = found.trace.ops, found.attribution
    mine = np.flatnonzero((attribution.invocation != NONE) & (attribution.op_class == OpClass.IN_BOUNDARY))
    devices, group = np.unique(ops.device[mine], return_inverse=True)
    together = occupancy(group, ops.start_ns[mine], ops.end_ns[mine], num_groups=len(devices)).busy_ns
    closed = found.rows.filter(pl.col("busy_ns").is_not_null()).sort("device", "start_ns")
    reach = (pl.col("start_ns") + pl.col("span_ns")).cum_max().shift(1).over("device")
    early = closed.with_columns(early_ns=reach - pl.col("start_ns")).filter(pl.col("early_ns") > 0)
    told = pl.format("iteration {}, layer {}: {} ns before an earlier one ends", "iteration", "layer", "early_ns")
    examples = early.head(5).select(told).to_series()
    return CrossOverlap(early.height, int(closed["busy_ns"].sum()) - int(together.sum()), tuple(examples))


def interval_rows(found: AttributedTrace, plan: Plan, rank: int) -> pl.DataFrame:
    """Every device operation of a trace as rows of the intervals table."""
    trace, attribution = found.trace, found.attribution
    ops = trace.ops
    names = np.array(trace.names, dtype=object)
    layer = np.where(attribution.invocation != NONE, _at(plan.layer, attribution.invocation), NONE)
    launch = np.full(len(ops), None, dtype=object)
    known = ops.launch != NONE
    launch[known] = names[trace.launches.name[ops.launch[known]]]
    stages = np.array([*attribution.stages, None], dtype=object)
    how = np.array([*[h.name for h in How], None], dtype=object)
    return pl.DataFrame(
        {
            "rank": pl.Series(np.full(len(ops), rank), dtype=pl.Int32),
            "op": pl.Series(np.arange(len(ops)), dtype=pl.Int32),
            "iteration": _nullable(attribution.iteration, pl.Int32),
            "layer": _nullable(layer, pl.Int32),
            "device": pl.Series(ops.device, dtype=pl.Int32),
            "stream": pl.Series(ops.stream, dtype=pl.Int64),
            "kind": pl.Series([OpKind(k).name.lower() for k in ops.kind], dtype=pl.String),
            "start_ns": pl.Series(ops.start_ns),
            "end_ns": pl.Series(ops.end_ns),
            "name": pl.Series(names[ops.name].tolist(), dtype=pl.String),
            "stage": pl.Series(stages[attribution.stage].tolist(), dtype=pl.String),
            "op_class": pl.Series([OpClass(c).name for c in attribution.op_class], dtype=pl.String),
            "how": pl.Series(how[attribution.how].tolist(), dtype=pl.String),
            "launch": pl.Series(launch.tolist(), dtype=pl.String),
        }
    )


def _nullable(values: Int64Array, dtype: type[pl.DataType]) -> pl.Series:
    series = pl.Series(values)
    return series.set(series == NONE, None).cast(dtype)


def _at(values: Int64Array, index: Int64Array) -> Int64Array:
    """values[index], NONE where the index is NONE."""
    if not len(values):
        return np.full(len(index), NONE, dtype=np.int64)
    return np.where(index == NONE, NONE, values[np.maximum(index, 0)])


def _first_of(group: Int64Array, mine: Int64Array, start_ns: Int64Array, size: int) -> Int64Array:
    """The operation of each group that starts first, NONE where a group has none. [size]"""
    head = np.full(size, NONE, dtype=np.int64)
    order = np.lexsort((-start_ns[mine], group))
    head[group[order]] = mine[order]
    return head


def _foreign(
    trace: Trace,
    found: Attribution,
    *,
    start_ns: Int64Array,
    end_ns: Int64Array,
    device: Int64Array,
    stream: Int64Array,
    closed: NDArray[np.bool_],
) -> Int64Array:
    """Union of work outside the boundary on other streams of the device, inside each invocation's span. [size]"""
    ops = trace.ops
    out = np.zeros(len(start_ns), dtype=np.int64)
    outside = found.op_class != OpClass.IN_BOUNDARY
    for one_device, one_stream in {(int(d), int(s)) for d, s in zip(device[closed], stream[closed], strict=True)}:
        windows = np.flatnonzero(closed & (device == one_device) & (stream == one_stream))
        other = outside & (ops.device == one_device) & (ops.stream != one_stream)
        out[windows] = covered_within(ops.start_ns[other], ops.end_ns[other], start_ns[windows], end_ns[windows])
    return out


def _weakest(how: Int64Array, group: Int64Array, mine: Int64Array, size: int) -> list[str | None]:
    weakest = np.full(size, NONE, dtype=np.int64)
    np.maximum.at(weakest, group, how[mine])
    return [How(value).name if value != NONE else None for value in weakest.tolist()]


def _kernel_digests(
    trace: Trace, group: Int64Array, mine: Int64Array, size: int
) -> tuple[list[str | None], dict[str, tuple[str, ...]]]:
    """Digest of the ordered kernel names of each invocation, and the names behind each digest."""
    ops = trace.ops
    order = np.lexsort((ops.end_ns[mine], ops.start_ns[mine], group))
    group, mine = group[order], mine[order]
    out: list[str | None] = [None] * size
    bounds = np.flatnonzero(np.r_[True, group[1:] != group[:-1], True]) if len(group) else group
    cache: dict[tuple[int, ...], str] = {}
    for first, last in pairwise(bounds.tolist()):
        key = tuple(ops.name[mine[first:last]].tolist())
        if key not in cache:
            cache[key] = kernel_sequence_digest(trace.names[index] for index in key)
        out[int(group[first])] = cache[key]
    return out, {digest: tuple(trace.names[index] for index in key) for key, digest in cache.items()}
