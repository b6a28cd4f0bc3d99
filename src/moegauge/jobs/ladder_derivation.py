"""From a capture and a profile database to a ladder. Align writes it; verify derives it again and compares."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from moegauge import __version__
from moegauge.adapters.profile_db import ProfileDb, ProfileRow
from moegauge.evidence.capture_folder import RECORD_NAME as CAPTURE_RECORD
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.capture_tables import CLOSED, ROUTED, ROUTED_PARTIAL, ZERO_TOKENS
from moegauge.evidence.digest import record_digest
from moegauge.evidence.report_folder import INVOCATION_ROWS, ITERATION_ROWS, RANK_ROWS
from moegauge.evidence.report_folder import RECORD_NAME as REPORT_RECORD
from moegauge.jobs.profile_derivation import match_key
from moegauge.ladder.alignment import Alignment, Choice, MeasuredWork, ServedWork, align_work
from moegauge.ladder.assembly import assemble, complete_iterations
from moegauge.ladder.conditions import condition_rows, limits
from moegauge.ladder.pairs import LadderInput
from moegauge.records.comparison import Evidence, EvidenceLink, LadderReport, Links, ServedTime, Settings, Unmatched
from moegauge.records.measurement import Facts

_CACHE_STATE = "cache_state"


@dataclass(frozen=True)
class DerivedLadder:
    """The report without the digests of its tables, and the tables."""

    report: LadderReport
    tables: dict[str, pl.DataFrame]


def derive_ladder(
    capture: CaptureFolder, database: ProfileDb, settings: Settings, *, report_folder: Path
) -> DerivedLadder:
    """Compute the whole ladder.

    Args:
        capture: the served side.
        database: the isolated side.
        settings: tolerances, selection and choice of rows.
        report_folder: where the report stands or will stand (links are relative to it).
    """
    rows = database.rows(capture.record.kernel.kind)
    samples = database.samples()
    work = align_work(_served(capture), _measured(rows, samples), Choice(settings.launch_mode, settings.cache_state))
    used = [row for row in rows if row.row_id in set(work.row_ids)]
    facts = _distinct_facts(used)
    conditions = condition_rows(capture.record.conditions, facts)
    measurements = _measurement_digest(used, samples)
    links = Links(
        capture=_relative(capture.path, report_folder),
        input=f"{_relative(capture.path, report_folder)}/routed_inputs.parquet",
        measurements=_relative(database.path, report_folder),
        report=REPORT_RECORD,
    )
    rungs, verdict = assemble(
        LadderInput(
            work=work,
            settings=settings,
            conditions=conditions,
            launch_mode_recorded=_launch_modes_recorded(capture, used),
            links=links,
            num_ranks=capture.record.topology.world_size,
            rank_identity="RANK_NUMBER",
        )
    )
    kernel, coverage = capture.record.kernel, capture.record.coverage
    report = LadderReport(
        schema=LadderReport.tag(),
        tool_version=__version__,
        subject=f"{kernel.kind} ({kernel.backend}, {kernel.numeric_format})",
        capture_name=capture.path.name,
        settings=settings,
        verdict=verdict,
        rungs=rungs,
        conditions=conditions,
        served=ServedTime(busy_ns=coverage.busy_ns, span_ns=coverage.span_ns, foreign_ns=coverage.foreign_ns),
        limits=limits(facts),
        notes=_notes(capture, work),
        evidence=Evidence(
            capture=EvidenceLink(path=f"{links.capture}/{CAPTURE_RECORD}", digest=capture.digest),
            measurements=EvidenceLink(path=links.measurements, digest=measurements),
            tables={},
        ),
    )
    return DerivedLadder(report, _tables(work, settings))


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _served(capture: CaptureFolder) -> ServedWork:
    """The capture's invocations as the left side."""
    invocations = capture.invocations
    ranks = {rank.rank: rank for rank in capture.record.topology.ranks}
    match = [
        record_digest(match_key(capture, ranks[row["rank"]], row))
        if row["routed_status"] == ROUTED and row["executed_rows"]
        else None
        for row in invocations.select("rank", "executed_rows", "routed_digest", "routed_status").iter_rows(named=True)
    ]
    modes = capture.iterations.select("iteration", "rank", pl.col("launch_mode").alias("served_mode"))
    status = pl.col("routed_status")
    rows = invocations.join(modes, on=["iteration", "rank"], how="left", maintain_order="left").select(
        "iteration",
        "layer",
        "rank",
        "busy_ns",
        zero_tokens=pl.col("timing_status") == ZERO_TOKENS,
        timing_code=pl.when(pl.col("timing_status").is_in([CLOSED, ZERO_TOKENS]))
        .then(None)
        .otherwise(pl.col("timing_reason_code")),
        routed_code=pl.when(status == ROUTED)
        .then(None)
        .when(status == ROUTED_PARTIAL)
        .then(pl.lit("ROUTED_ROWS_PARTIAL"))
        .otherwise(pl.lit("NO_EXACT_INPUT")),
        launch_mode=pl.col("served_mode"),
        match=pl.Series(match, dtype=pl.String),
        kernels_digest=pl.col("kernels_digest"),
    )
    missing = [rank for rank in ranks.values() if not rank.recorded]
    text = "".join(f" (rank {rank.rank} missing: {rank.why_missing})" for rank in missing)
    return ServedWork(rows, capture.record.topology.world_size, _loose_kernels(capture), text)


def _loose_kernels(capture: CaptureFolder) -> tuple[Unmatched, ...]:
    """Kernels of the subject that belong to no invocation: outside every iteration, or in one that did not close."""
    found = [
        Unmatched(
            side="left", what=f"kernels: {finding.sentence}", why="OUTSIDE_ITERATIONS", num=finding.num, ns=finding.ns
        )
        for finding in capture.record.findings
        if finding.code == "SUBJECT_OUTSIDE_ITERATIONS"
    ]
    lost = capture.iterations.filter(pl.col("unattributed_ns") > 0)
    found += [
        Unmatched(
            side="left", what=f"kernels of iteration {iteration}, rank {rank}", why=code or "STRAY_KERNEL", num=1, ns=ns
        )
        for iteration, rank, code, ns in lost.select("iteration", "rank", "reason_code", "unattributed_ns").iter_rows()
    ]
    return tuple(found)


def _measured(rows: list[ProfileRow], samples: pl.DataFrame) -> MeasuredWork:
    """Exact, measured rows of the database as the right side."""
    exact = [row for row in rows if row.key.match.input_type == "exact" and row.status == "MEASURED"]
    table = pl.DataFrame(
        {
            "row_id": [row.row_id for row in exact],
            "match": [record_digest(row.key.match) for row in exact],
            "launch_mode": [row.key.setting.launch_mode for row in exact],
            "cache_state": [_fact(row.key.setting.conditions, _CACHE_STATE) for row in exact],
        },
        schema={"row_id": pl.Int64, "match": pl.String, "launch_mode": pl.String, "cache_state": pl.String},
    )
    wanted = samples.select("row_id", "pass_id", "iteration", "layer", "busy_ns", "kernels_digest")
    return MeasuredWork(table, wanted.filter(pl.col("row_id").is_in(table["row_id"].to_list())))


def _fact(facts: Facts, name: str) -> str | None:
    return facts[name].value if name in facts else None


def _distinct_facts(rows: list[ProfileRow]) -> list[Facts]:
    return list({record_digest(row.key.setting.conditions): row.key.setting.conditions for row in rows}.values())


def _launch_modes_recorded(capture: CaptureFolder, used: list[ProfileRow]) -> bool:
    served = capture.iterations["launch_mode"].null_count() == 0
    return served and all(row.key.setting.launch_mode is not None for row in used)


def _measurement_digest(used: list[ProfileRow], samples: pl.DataFrame) -> str:
    """Digest of every key and raw sample the ladder used, whatever else the database holds or how it lays it out."""
    keys = {row.row_id: record_digest(row.key) for row in used}
    rows = samples.filter(pl.col("row_id").is_in(list(keys))).select(
        "row_id", "pass_id", "ordinal", "iteration", "layer", "rank", "busy_ns", "kernels_digest"
    )
    return record_digest([[keys[row[0]], *row[1:]] for row in rows.iter_rows()])


def _notes(capture: CaptureFolder, work: Alignment) -> tuple[str, ...]:
    notes = ["one serving capture: serving variation is not included in any interval"]
    both = (work.left_rank >= 0) & (work.right_rank >= 0) & work.covered
    if capture.record.topology.world_size > 1 and both.any():
        same = int((work.left_rank == work.right_rank)[both].sum())
        notes.append(f"same critical rank on both sides in {same} of {int(both.sum())} invocations")
    if capture.record.partial:
        notes.append("the capture is partial: a declared rank was not recorded")
    notes += [f"{finding.code}: {finding.num} {finding.sentence}" for finding in capture.record.findings]
    return tuple(notes)


def _tables(work: Alignment, settings: Settings) -> dict[str, pl.DataFrame]:
    """Row tables of the report."""
    right, known, covered = work.right_each_ns(), pl.Series(work.left_known), pl.Series(work.covered)
    diff = right - work.left_ns
    beyond = np.abs(diff) > settings.invocation_tolerance_ratio * work.left_ns
    base = pl.DataFrame(
        {
            "iteration": pl.Series(work.iteration, dtype=pl.Int32),
            "layer": pl.Series(work.layer, dtype=pl.Int32),
            "covered": covered,
            "reason_code": pl.Series([code or None for code in work.why], dtype=pl.String),
            "left_ns": pl.Series(work.left_ns),
            "right_ns": pl.Series(right),
            "diff_ns": pl.Series(diff),
            "left_critical_rank": pl.Series(work.left_rank, dtype=pl.Int32),
            "right_critical_rank": pl.Series(work.right_rank, dtype=pl.Int32),
            "beyond_invocation_tolerance": pl.Series(beyond),
            "kernels_differ": pl.Series(work.kernels_differ),
            "launch_mode_differs": pl.Series(work.launch_mode_differs),
        }
    )
    right_only = ("right_ns", "diff_ns", "beyond_invocation_tolerance", "right_critical_rank")
    rows = base.with_columns(
        [pl.when(covered).then(pl.col(name)).otherwise(None).alias(name) for name in right_only]
        + [pl.when(known).then(pl.col(name)).otherwise(None).alias(name) for name in ("left_ns", "left_critical_rank")]
    ).with_columns(pl.when(pl.col("right_critical_rank") >= 0).then(pl.col("right_critical_rank")).otherwise(None))
    rank_rows = work.rank_rows.select(pl.col(name).cast(dtype) for name, dtype in RANK_ROWS.columns.items())
    whole = pl.Series(complete_iterations(work))
    iterations = (
        rows.with_columns(whole=whole)
        .group_by("iteration")
        .agg(
            covered=pl.col("whole").all(),
            num_layers=pl.len().cast(pl.Int32),
            **{name: pl.col(name).sum() for name in ("left_ns", "right_ns", "diff_ns")},
        )
        .with_columns(
            [
                pl.when("covered").then(pl.col(name)).otherwise(None).alias(name)
                for name in ("left_ns", "right_ns", "diff_ns")
            ]
        )
        .with_columns(relative_ratio=pl.when(pl.col("left_ns") > 0).then(pl.col("diff_ns") / pl.col("left_ns")))
        .sort("iteration")
    )
    return {INVOCATION_ROWS.name: rows, RANK_ROWS.name: rank_rows, ITERATION_ROWS.name: iterations}
