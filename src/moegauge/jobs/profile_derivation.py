"""From replay traces to samples. Import stores them; verify derives them again and compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_db import Sample
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.capture_tables import ROUTED
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace
from moegauge.jobs.profile_specs import exact_match
from moegauge.kernels.attribution import Plan
from moegauge.kernels.registry import kernel_kind
from moegauge.kernels.scopes import ScopeTags, annotated_iterations, annotation_tags
from moegauge.kernels.trace import Trace
from moegauge.records.identity import RankIdentity
from moegauge.records.measurement import CONDITIONS, LIMITS, Fact, LaunchMode
from moegauge.records.profile import InputLabel, ProfileKey, Setting

_SERVING_TAGS = frozenset({"iteration", "moe"})
_SAMPLE_COLUMNS = (
    "iteration",
    "layer",
    "device",
    "busy_ns",
    "span_ns",
    "foreign_ns",
    "num_kernels",
)


@dataclass(frozen=True)
class ReplayLabels:
    """What a person declares of a replay: its tag (None: the only one there), launch mode and conditions."""

    tag: str | None
    launch_mode: str | None
    declared: dict[str, str]


@dataclass(frozen=True)
class RankSamples:
    """Samples of one rank and the replay's tag."""

    samples: list[Sample]
    tag: str


def rank_of(trace: Trace, capture: CaptureFolder) -> int:
    """Which rank a replay trace is of: what it says itself, or 0 in a capture of one rank."""
    world_size = capture.record.topology.world_size
    if world_size == 1:
        return 0
    if trace.rank is None or not 0 <= trace.rank < world_size:
        raise errors.Inconsistent(
            where=trace.source,
            expected=f"distributedInfo with a rank in 0..{world_size - 1}",
            found=f"rank {trace.rank}",
            remedy="Record the replay with the process group initialised.",
        )
    return trace.rank


def by_rank(traces: Mapping[str, Trace], capture: CaptureFolder) -> dict[int, str]:
    """Source name of each rank's trace; every rank exactly once.

    Raises:
        Inconsistent: a rank twice. Incomplete: a rank without a trace.
    """
    found: dict[int, str] = {}
    for name, trace in traces.items():
        rank = rank_of(trace, capture)
        if rank in found:
            raise errors.Inconsistent(
                where=name,
                expected="one trace a rank",
                found=f"rank {rank} twice",
                remedy="Give each rank's trace once.",
            )
        found[rank] = name
    exact = capture.invocations.filter((pl.col("routed_status") == ROUTED) & (pl.col("executed_rows") > 0))
    recorded = set(exact["rank"].to_list())
    if recorded - found.keys():
        raise errors.Incomplete(
            where=", ".join(traces),
            expected=f"replay traces of ranks {sorted(recorded)}, which form one pass together",
            found=f"rank {', '.join(map(str, sorted(recorded - found.keys())))} missing",
            remedy="Give the traces of all ranks in one call.",
        )
    return found


def derive_samples(capture: CaptureFolder, rank: int, trace: Trace, labels: ReplayLabels) -> RankSamples:
    """Attribute a replay trace to the capture's invocations and reduce it to samples.

    Args:
        capture: the capture whose exact inputs were replayed.
        rank: which rank.
        trace: its replay trace; annotations ``<tag> L<l> I<n>`` (each invocation) or ``<tag> I<n>`` (whole
            iterations as one graph).
        labels: what a person declares.

    Raises:
        Incomplete: an annotated iteration does not close, or nothing of the capture is in the trace.
    """
    tags, tag = _replay_tags(trace, labels.tag)
    wanted = capture.invocations.filter((pl.col("rank") == rank) & (pl.col("routed_status") == ROUTED))
    wanted = wanted.filter(pl.col("iteration").is_in(annotated_iterations(trace, tag)) & (pl.col("executed_rows") > 0))
    identity = capture.record.topology.ranks[rank]
    plan = Plan(
        iteration=wanted["iteration"].to_numpy().astype(np.int64),
        layer=wanted["layer"].to_numpy().astype(np.int64),
        executed_rows=wanted["executed_rows"].to_numpy().astype(np.int64),
        top_k=capture.record.model.top_k,
        num_experts=capture.record.model.num_experts,
        has_expert_map=identity.expert_map is not None,
    )
    found = attributed_trace(trace, kernel_kind(capture.record.kernel.kind), plan, tags)
    _refuse_open(found, trace, wanted.height)
    rows = found.rows.drop("executed_rows", "variant", "attribution", "stream", "start_ns")
    rows = rows.join(wanted.select("iteration", "layer", "executed_rows", "routed_digest"), on=["iteration", "layer"])
    return RankSamples(_samples(capture, identity, found, labels, rows), tag)


def _replay_tags(trace: Trace, wanted: str | None) -> tuple[ScopeTags, str]:
    found = annotation_tags(trace)
    tags = (found["invocation"] | found["iteration"]) - _SERVING_TAGS
    tag = wanted if wanted is not None else (next(iter(tags)) if len(tags) == 1 else None)
    if tag is None or tag not in tags:
        raise errors.Incomplete(
            where=trace.source,
            expected=f"one replay annotation tag ({wanted or '<tag> L<layer> I<iteration> or <tag> I<iteration>'})",
            found=f"tags {sorted(tags) or 'none'}",
            remedy="Annotate each replayed invocation, or name the tag with --tag.",
        )
    if tag in found["invocation"]:
        return ScopeTags(frozenset(), frozenset({tag})), tag
    return ScopeTags(frozenset({tag}), frozenset()), tag


def _refuse_open(found: AttributedTrace, trace: Trace, num_wanted: int) -> None:
    unavailable = found.attribution.unavailable
    if unavailable or not num_wanted:
        first = next(iter(unavailable.values())).sentence if unavailable else "no annotated iteration of the capture"
        raise errors.Incomplete(
            where=trace.source,
            expected="every annotated iteration of the replay to close",
            found=f"{first} ({len(unavailable)} iterations do not close)",
            remedy="Replay the capture's own inputs through the registered kernel kind, and record whole iterations.",
        )


def _samples(
    capture: CaptureFolder, identity: RankIdentity, found: AttributedTrace, labels: ReplayLabels, rows: pl.DataFrame
) -> list[Sample]:
    trace = found.trace
    conditions = _conditions(trace, labels.declared)
    samples = []
    for row in rows.sort("iteration", "layer").iter_rows(named=True):
        mode = _launch_mode(row["launch_mode"], labels.launch_mode, trace)
        key = ProfileKey(
            match=exact_match(capture, identity, row["executed_rows"], row["routed_digest"]),
            setting=Setting(launch_mode=mode, conditions=conditions),
        )
        columns = {name: int(row[name]) for name in _SAMPLE_COLUMNS} | {"rank": identity.rank}
        samples.append(Sample(key, InputLabel(), columns, found.kernel_names[row["kernels_digest"]]))
    return samples


def _launch_mode(seen: str | None, declared: str | None, trace: Trace) -> LaunchMode | None:
    if seen is not None and declared is not None and seen != declared:
        raise errors.Inconsistent(
            where=trace.source,
            expected=f"launch mode {declared} (declared)",
            found=f"launch calls that show {seen}",
            remedy="Leave the declaration out; the trace knows.",
        )
    mode = seen if seen is not None else declared
    return None if mode is None else LaunchMode(mode)


def _conditions(trace: Trace, declared: dict[str, str]) -> dict[str, Fact]:
    unknown = sorted(set(declared) - set(CONDITIONS) - set(LIMITS))
    if unknown:
        raise errors.MisuseError(
            where="--declare",
            expected=f"names out of {', '.join(sorted({**CONDITIONS, **LIMITS}))}",
            found=", ".join(unknown),
            remedy="Declare known conditions only; others would never be compared.",
        )
    facts = {name: Fact(value=value, source="trace") for name, value in trace.facts.items()}
    contradicted = [name for name in declared if name in facts and facts[name].value != declared[name]]
    if contradicted:
        raise errors.Inconsistent(
            where=trace.source,
            expected=f"{contradicted[0]} = {declared[contradicted[0]]} (declared)",
            found=facts[contradicted[0]].value,
            remedy="Leave the declaration out; the trace knows.",
        )
    return {name: Fact(value=value, source="declared") for name, value in declared.items()} | facts
