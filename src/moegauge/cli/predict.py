"""moegauge predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from moegauge.cli.console import print_json, stdout
from moegauge.jobs.predict import predict
from moegauge.render.units import time_text


def predict_command(
    report: Path, *, capture: Path, out: Path, json: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Interpolate times for invocations that were not measured; refuses until a ladder is intact.

    Args:
        report: Report folder of an intact ladder.
        capture: Capture whose invocations are predicted.
        out: Prediction folder to make; nothing may stand there.
        json: Print prediction.json instead of text.
    """
    record = predict(report, capture, out)
    if json:
        print_json(record)
        return 0
    error = record.error
    stdout().print(
        f"PREDICTED {time_text(record.predicted_ns)} over {record.num_predicted} rank invocations "
        f"({record.num_outside} outside the measured range, without a time); leave-one-out error of {error.num_rows} "
        f"measured rows: median {error.median_ratio:.2%}, 95th percentile {error.p95_ratio:.2%}, largest "
        f"{error.max_ratio:.2%}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(predict_command, name="predict")
