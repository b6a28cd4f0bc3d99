"""From a bundle's raw files to everything a capture says. Import writes it; verify derives it again and compares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.routes.bundle import open_bundle
from moegauge.adapters.routes.recording import is_recording, open_recording
from moegauge.adapters.routes.serving import Parallel, ServingSource
from moegauge.evidence.capture_tables import (
    INTERVALS,
    INVOCATIONS,
    ITERATIONS,
    routed_inputs,
)
from moegauge.evidence.digest import record_digest
from moegauge.jobs.attributed_trace import attributed_trace, interval_rows
from moegauge.jobs.capture_coverage import RankResult, coverage_of, cross_check, findings_of
from moegauge.jobs.capture_rows import (
    RankSource,
    check_routed_iterations,
    declared_empty,
    invocation_grid,
    invocation_rows,
    iteration_rows,
    routed_rows,
    with_digests,
)
from moegauge.jobs.capture_scope import rank_logical, routed_scope
from moegauge.jobs.progress import Progress, silent
from moegauge.kernels.attribution import Plan
from moegauge.kernels.registry import KINDS, KernelKind, kernel_kind
from moegauge.kernels.scopes import SERVING_TAGS
from moegauge.kernels.trace import Trace
from moegauge.records.capture import Coverage, Finding, RoutesCrossCheck
from moegauge.records.identity import KernelIdentity, ModelShape, RankIdentity, Topology
from moegauge.records.measurement import CONDITIONS, Fact, Facts
from moegauge.timing.intervals import busy_union

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class Derived:
    """Everything a capture says that follows from its raw files (capture.json without dates and digests)."""

    source: str
    model: ModelShape
    moe_layers: tuple[int, ...]
    model_config_digest: str
    kernel: KernelIdentity
    topology: Topology
    conditions: Facts
    coverage: Coverage
    findings: tuple[Finding, ...]
    routes_cross_check: RoutesCrossCheck | None
    tables: dict[str, pl.DataFrame]
    raw_files: tuple[Path, ...]
    partial: bool


def derive(folder: Path, *, kind_name: str | None, partial: bool, progress: Progress = silent) -> Derived:
    """Derive a capture from a bundle or recording folder.

    Args:
        folder: the bundle or recording (or the raw/ folder of a capture).
        kind_name: registered kernel kind, or None to take the one whose kernels the trace holds.
        partial: go on where a declared rank is missing, and mark the capture.
        progress: told about each rank.

    Raises:
        EvidenceError: anything in the bundle that is not what docs/formats/bundle.md says.
    """
    bundle = open_recording(folder) if is_recording(folder) else open_bundle(folder)
    missing = _missing_ranks(bundle)
    if missing and not partial:
        raise _rank_missing(bundle, missing)
    ranks = _read_ranks(bundle, missing, progress)
    if not ranks:
        raise _rank_missing(bundle, missing)
    kind = _kind(kind_name or bundle.meta.kernel_kind, [rank.trace for rank in ranks])
    layers = _moe_layers(bundle, ranks)
    scope = routed_scope(bundle, ranks)
    results = []
    for number, rank in enumerate(ranks):
        progress(f"attributing rank {rank.number}", number, len(ranks))
        results.append(_derive_rank(bundle, rank, kind, layers))
    progress("attributed", len(ranks), len(ranks))
    return Derived(
        source=bundle.source,
        model=bundle.shape,
        moe_layers=tuple(int(layer) for layer in layers),
        model_config_digest=record_digest(bundle.meta.config),
        kernel=_kernel_identity(bundle, kind),
        topology=_topology(bundle, ranks, missing, scope),
        conditions=_conditions(bundle, ranks),
        coverage=coverage_of(results),
        findings=(*bundle.findings, *findings_of(results)),
        routes_cross_check=cross_check(bundle, ranks[0], layers),
        tables=_tables(results, bundle.shape) | bundle.further_tables(),
        raw_files=bundle.raw_files(missing),
        partial=bool(missing),
    )


def _missing_ranks(bundle: ServingSource) -> dict[int, str]:
    missing: dict[int, str] = {}
    for rank, files in enumerate(bundle.ranks):
        absent = [name for name, path in (("trace", files.trace), ("routing", files.routing)) if path is None]
        empty = [path.name for path in (files.trace, files.routing) if path is not None and not path.stat().st_size]
        if absent or empty:
            missing[rank] = " and ".join(
                [f"no {name} file" for name in absent] + [f"{name} is empty" for name in empty]
            )
    return missing


def _rank_missing(bundle: ServingSource, missing: dict[int, str]) -> errors.Incomplete:
    what = "; ".join(f"rank {rank} missing ({why})" for rank, why in missing.items())
    return errors.Incomplete(
        where=str(bundle.folder),
        expected=f"a trace and a routing table of each of {len(bundle.ranks)} ranks",
        found=what,
        remedy="Record all ranks, or give --partial to import the rest; its critical-rank times stay unavailable.",
    )


def _read_ranks(bundle: ServingSource, missing: dict[int, str], progress: Progress) -> list[RankSource]:
    ranks: list[RankSource] = []
    for number, files in enumerate(bundle.ranks):
        if number in missing or files.trace is None or files.routing is None:
            continue
        progress(f"reading rank {number}", number, len(bundle.ranks))
        trace = bundle.read_trace(number)
        if trace.rank is not None and trace.rank != number and len(bundle.ranks) > 1:
            raise errors.Inconsistent(
                where=str(files.trace),
                expected=f"the trace of rank {number}",
                found=f"distributedInfo says rank {trace.rank}",
                remedy="A rank's trace stands twice, or two were swapped; name the files after their ranks.",
            )
        logical = rank_logical(bundle, number)
        known = {iteration: rows for iteration, rows in logical.items() if rows is not None}
        rank = RankSource(number, bundle.read_routed(number, known), trace, logical)
        check_routed_iterations(rank, bundle.meta.steps)
        ranks.append(rank)
    return ranks


def _kind(name: str | None, traces: list[Trace]) -> KernelKind:
    """The kind named, or the only one whose kernels the traces hold; a named one must be there too."""
    kinds = list(KINDS.values()) if name is None else [kernel_kind(name)]
    kernels = {one for trace in traces for one in trace.op_names(kernels_only=True)}
    fits = [kind for kind in kinds if kind.runs_in(kernels)]
    most = max((kind.num_of_core(kernels) for kind in fits), default=0)
    fits = [kind for kind in fits if kind.num_of_core(kernels) == most]
    if len(fits) == 1:
        return fits[0]
    seen = {one for trace in traces for one in trace.op_names(kernels_only=False)}
    found = "; ".join(kind.not_seen(seen) for kind in kinds) if not fits else f"several: {[kind.name for kind in fits]}"
    raise errors.Incomplete(
        where=traces[0].source,
        expected=f"kernels of one registered kind ({', '.join(kind.name for kind in kinds)})",
        found=found,
        remedy="Profile the device while it runs the kernel, give --kind, or register the kernel kind.",
    )


def _moe_layers(bundle: ServingSource, ranks: list[RankSource]) -> Int64Array:
    named = np.array(bundle.moe_layers, dtype=np.int64)
    layers = np.unique(np.concatenate([named, *(rank.routed.layer for rank in ranks)]))
    if not len(layers):
        raise errors.Incomplete(
            where=ranks[0].trace.source,
            expected="routed rows of at least one layer",
            found="none",
            remedy="Record again.",
        )
    return layers


def _derive_rank(bundle: ServingSource, rank: RankSource, kind: KernelKind, layers: Int64Array) -> RankResult:
    steps = sorted(bundle.meta.steps, key=lambda step: step.iteration)
    grid = invocation_grid(rank, steps, layers)
    zero = np.array([declared_empty(step, rank.number) for step in steps])
    planned = grid.filter(pl.col("rows_to_run") > 0)
    plan = Plan(
        iteration=planned["iteration"].to_numpy().astype(np.int64),
        layer=planned["layer"].to_numpy().astype(np.int64),
        executed_rows=planned["rows_to_run"].to_numpy().astype(np.int64),
        top_k=bundle.shape.top_k,
        num_experts=bundle.shape.num_experts,
        has_expert_map=rank.routed.expert_map is not None,
    )
    found = attributed_trace(rank.trace, kind, plan, SERVING_TAGS)
    empty_iterations = {step.iteration for step, is_empty in zip(steps, zero, strict=True) if is_empty}
    invocations = invocation_rows(grid, found, rank.number, empty_iterations)
    iterations = iteration_rows(steps, grid, found, rank, invocations)
    outside = found.attribution.outside_iterations
    ops = rank.trace.ops
    return RankResult(
        number=rank.number,
        iterations=iterations,
        invocations=with_digests(invocations, rank.routed),
        routed=routed_rows(rank, bundle.shape, grid),
        intervals=interval_rows(found, plan, rank.number),
        found=found,
        outside_ns=busy_union(ops.start_ns[outside], ops.end_ns[outside]),
    )


def _tables(results: list[RankResult], shape: ModelShape) -> dict[str, pl.DataFrame]:
    order = {"iterations": ["iteration", "rank"], "invocations": ["iteration", "layer", "rank"]}
    return {
        ITERATIONS.name: pl.concat([r.iterations for r in results]).sort(order["iterations"]),
        INVOCATIONS.name: pl.concat([r.invocations for r in results]).sort(order["invocations"]),
        INTERVALS.name: pl.concat([r.intervals for r in results]),
        routed_inputs(shape.top_k).name: pl.concat([r.routed for r in results]),
    }


def _kernel_identity(bundle: ServingSource, kind: KernelKind) -> KernelIdentity:
    dtype = bundle.meta.config.get("torch_dtype") or bundle.meta.config.get("dtype")
    if dtype not in kind.numeric_formats:
        raise errors.Inconsistent(
            where=bundle.meta_path,
            expected=f"torch_dtype {' or '.join(kind.numeric_formats)} for kernel kind {kind.name}",
            found=repr(dtype),
            remedy="Record torch_dtype in the model configuration, or register the format.",
        )
    return KernelIdentity(kind=kind.name, backend=kind.backend, numeric_format=str(dtype), boundary=kind.boundary)


def _topology(bundle: ServingSource, ranks: list[RankSource], missing: dict[int, str], scope: str) -> Topology:
    present = {rank.number: rank for rank in ranks}
    uuids = bundle.meta.device_uuids
    parallel = bundle.meta.parallel
    sizes = parallel if isinstance(parallel, Parallel) else Parallel()
    alone = len(bundle.ranks) == 1 and ranks[0].trace.world_size == 1
    maps = all(rank.routed.expert_map is not None for rank in ranks)

    def identity(number: int) -> RankIdentity:
        rank = present.get(number)
        if rank is None:
            return RankIdentity(rank=number, recorded=False, why_missing=missing[number])
        expert_map = rank.routed.expert_map
        devices = np.unique(rank.trace.ops.device)
        return RankIdentity(
            rank=number,
            recorded=True,
            device=int(devices[0]) if len(devices) == 1 else None,
            device_uuid=uuids[number] if uuids is not None and number < len(uuids) else None,
            num_local_experts=bundle.shape.num_experts if expert_map is None else int((expert_map >= 0).sum()),
            expert_map=None if expert_map is None else tuple(expert_map.tolist()),
        )

    return Topology(
        world_size=len(bundle.ranks),
        tp_size=1 if alone else sizes.tp,
        ep_size=1 if alone else sizes.ep if sizes.ep is not None else (len(bundle.ranks) if maps else None),
        dp_size=1 if alone else sizes.dp,
        routed_scope=scope,
        ranks=tuple(identity(number) for number in range(len(bundle.ranks))),
    )


def _conditions(bundle: ServingSource, ranks: list[RankSource]) -> Facts:
    """Recorded conditions: the trace's own, the engine's versions, and what the bundle declares."""
    found = {name: Fact(value=value, source="trace") for name, value in ranks[0].trace.facts.items()}
    for rank in ranks[1:]:
        for name, value in rank.trace.facts.items():
            if name in found and found[name].value != value:
                found[name] = Fact(value=f"{found[name].value}, {value}", source="trace")
    uuids = bundle.meta.device_uuids
    declared = {"device_uuids": ", ".join(uuids)} if uuids else {}
    engine = declared | {"torch": bundle.meta.torch, "vllm": bundle.meta.vllm} | bundle.meta.conditions
    unknown = sorted(set(engine) - set(CONDITIONS))
    if unknown:
        raise errors.Inconsistent(
            where=bundle.meta_path,
            expected=f"conditions out of {', '.join(sorted(CONDITIONS))}",
            found=", ".join(unknown),
            remedy="Use the names of docs/formats/bundle.md.",
        )
    found |= {name: Fact(value=value, source="engine") for name, value in engine.items() if value is not None}
    return found
