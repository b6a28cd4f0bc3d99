"""moegauge predict: times for invocations that were not measured, from an intact ladder's measured rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from moegauge import __version__, errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.digest import file_digest
from moegauge.evidence.report_folder import RANK_ROWS, RECORD_NAME
from moegauge.evidence.store import new_folder, read_record, refuse_existing, write_record
from moegauge.evidence.tables import TableSchema, read_table, write_table
from moegauge.jobs.profile_specs import SpecSource
from moegauge.ladder.predict import NEIGHBOURS, Measured, Predicted, interpolate, leave_one_out
from moegauge.records.comparison import LadderReport
from moegauge.records.measurement import Origin
from moegauge.records.prediction import PredictionError, PredictionRecord
from moegauge.routing.load_features import FEATURES, load_features

PREDICTED_ROWS = TableSchema(
    name="rows",
    columns={
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "rank": pl.Int32,
        "origin": pl.String,
        "predicted_ns": pl.Int64,
        "inside_range": pl.Boolean,
        "from_rows": pl.List(pl.Int64),
        "weights": pl.List(pl.Float64),
    },
    nullable=frozenset({"predicted_ns"}),
    key=("iteration", "layer", "rank"),
)
_MIN_ROWS = 2
Place = tuple[int, int, int]


def predict(report: Path, capture: Path, out: Path) -> PredictionRecord:
    """Interpolate the times of a capture's invocations from the rows of an intact ladder.

    Args:
        report: report folder of a ladder whose five rungs match, none flagged CANCELLATION.
        capture: capture whose invocations are predicted (of the same kernel and shape).
        out: prediction folder to make; nothing may stand there.

    Raises:
        MisuseError: the ladder is not intact, or the capture is of another kernel. Nothing is written then.
    """
    refuse_existing(out)
    ladder = read_record(report / RECORD_NAME, LadderReport)
    _require_intact(ladder, report)
    measured_capture = open_capture((report / ladder.evidence.capture.path).parent)
    target = open_capture(capture)
    _require_same_kernel(measured_capture, target)
    measured = _measured(report, ladder, measured_capture)
    places, queries = _features(target)
    found = interpolate(measured, queries)
    loo = leave_one_out(measured)
    rows = _rows(places, found)
    with new_folder(out) as building:
        write_table(building / "rows.parquet", PREDICTED_ROWS, rows)
        record = PredictionRecord(
            schema=PredictionRecord.tag(),
            tool_version=__version__,
            origin=Origin.PREDICTED,
            subject=ladder.subject,
            report_digest=file_digest(report / RECORD_NAME),
            capture_digest=target.digest,
            features=FEATURES,
            neighbours=NEIGHBOURS,
            error=PredictionError(
                num_rows=len(loo),
                median_ratio=float(np.median(loo)),
                p95_ratio=float(np.quantile(loo, 0.95)),
                max_ratio=float(loo.max()),
            ),
            num_predicted=int(found.inside.sum()),
            num_outside=int((~found.inside).sum()),
            predicted_ns=int(rows["predicted_ns"].sum()),
            table_digest=file_digest(building / "rows.parquet"),
        )
        write_record(building / "prediction.json", record)
    return record


def _require_intact(ladder: LadderReport, report: Path) -> None:
    if ladder.verdict.claims_stop_at is not None:
        raise errors.MisuseError(
            where=str(report),
            expected="an intact ladder (five MATCH, none flagged CANCELLATION)",
            found=f"claims stop at rung {ladder.verdict.claims_stop_at}: {ladder.verdict.sentence}",
            remedy="Measure what is missing, or resolve the divergence; until then a predicted time would claim more "
            "than was shown.",
        )


def _require_same_kernel(measured: CaptureFolder, target: CaptureFolder) -> None:
    pairs = {
        "kernel": (measured.record.kernel, target.record.kernel),
        "model shape": (measured.record.model, target.record.model),
        "topology": (measured.record.topology.world_size, target.record.topology.world_size),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            raise errors.MisuseError(
                where=str(target.path),
                expected=f"the {name} that the ladder was measured with ({one})",
                found=str(other),
                remedy="Run a ladder for this kernel and shape first.",
            )


def _features(capture: CaptureFolder) -> tuple[list[Place], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    inputs = SpecSource(capture).exact_inputs
    num_experts = capture.record.model.num_experts
    places = sorted(inputs)
    table = [load_features(inputs[p].topk_ids, inputs[p].expert_map, num_experts=num_experts) for p in places]
    return places, np.array(table, dtype=np.float64).reshape(-1, len(FEATURES))


def _measured(report: Path, ladder: LadderReport, capture: CaptureFolder) -> Measured:
    """Features and measured time of every rank invocation the ladder covered."""
    rows = read_table(report / f"{RANK_ROWS.name}.parquet", RANK_ROWS).filter(pl.col("row_id").is_not_null())
    with open_profile_db(report / ladder.evidence.measurements.path) as database:
        known = {row.row_id for row in database.rows()}
    places, features = _features(capture)
    index = {place: number for number, place in enumerate(places)}
    found = [
        (index[(iteration, layer, rank)], right, row_id)
        for iteration, layer, rank, right, row_id in rows.select(
            "iteration", "layer", "rank", "right_ns", "row_id"
        ).iter_rows()
        if row_id in known and (iteration, layer, rank) in index and right
    ]
    if len(found) < _MIN_ROWS:
        raise errors.Incomplete(
            where=str(report),
            expected=f"at least {_MIN_ROWS} measured rows",
            found=str(len(found)),
            remedy="Keep the profile database and the capture where the report links to.",
        )
    at = np.array([number for number, _, _ in found])
    return Measured(
        features[at],
        np.array([right for _, right, _ in found], dtype=np.float64),
        np.array([row_id for _, _, row_id in found], dtype=np.int64),
    )


def _rows(places: list[Place], found: Predicted) -> pl.DataFrame:
    times = [round(float(ns)) if inside else None for ns, inside in zip(found.time_ns, found.inside, strict=True)]
    return pl.DataFrame(
        {
            "iteration": pl.Series([place[0] for place in places], dtype=pl.Int32),
            "layer": pl.Series([place[1] for place in places], dtype=pl.Int32),
            "rank": pl.Series([place[2] for place in places], dtype=pl.Int32),
            "origin": [str(Origin.PREDICTED)] * len(places),
            "predicted_ns": pl.Series(times, dtype=pl.Int64),
            "inside_range": pl.Series(found.inside),
            "from_rows": pl.Series(found.rows.tolist(), dtype=pl.List(pl.Int64)),
            "weights": pl.Series(found.weights.tolist(), dtype=pl.List(pl.Float64)),
        }
    )
