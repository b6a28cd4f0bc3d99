"""prediction.json: interpolated times. Never a measurement, and never added to one."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from moegauge.records.measurement import Origin
from moegauge.records.schema import Record


class PredictionError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leave-one-out error of the measured rows: |relative|, median, 95th percentile and largest."""

    num_rows: int
    median_ratio: float
    p95_ratio: float
    max_ratio: float


class PredictionRecord(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Head of a prediction folder; rows.parquet holds one predicted time a rank invocation.

    Attributes:
        origin: always PREDICTED.
        subject: kernel kind, backend and format. report_digest: of the intact ladder that allows it.
        capture_digest: of the capture whose invocations were predicted.
        features: names, in the order of the interpolation. neighbours: rows each prediction came from.
        error: leave-one-out error of the measured rows.
        num_predicted: rows predicted. num_outside: rows outside the measured range, without a time.
        predicted_ns: sum over predicted rows. table_digest: of rows.parquet.
    """

    kind: ClassVar[str] = "prediction"
    version: ClassVar[int] = 1

    tool_version: str
    origin: Origin
    subject: str
    report_digest: str
    capture_digest: str
    features: tuple[str, ...]
    neighbours: int
    error: PredictionError
    num_predicted: int
    num_outside: int
    predicted_ns: int
    table_digest: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.origin != Origin.PREDICTED:
            raise ValueError("a prediction has the origin PREDICTED")
