"""moegauge predict: refused until a ladder is intact, and never anything but PREDICTED."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from test_rungs_3_to_5 import Desk, desk, imported, nothing

from moegauge import errors
from moegauge.cli.main import run
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.predict import predict
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION
from simulator import Recording

__all__ = ["desk", "imported"]

BUNDLED = Path(__file__).parents[2] / "evidence" / "h200-qwen3-graph"
ALL = dict.fromkeys((EXACT, ITERATION, FULL_RUN), nothing)


def test_an_intact_ladder_predicts_its_own_invocations_as_they_were_measured(desk: Desk, tmp_path: Path) -> None:
    desk.plant(ALL)
    assert desk.align().verdict.claims_stop_at is None
    record = predict(desk.folder / "report", desk.capture.path, tmp_path / "prediction")
    assert (record.origin, record.num_predicted, record.num_outside) == ("PREDICTED", 50, 0)
    assert record.error.num_rows == 50
    rows = pl.read_parquet(tmp_path / "prediction" / "rows.parquet")
    assert rows["origin"].unique().to_list() == ["PREDICTED"]
    assert rows["from_rows"].list.len().min() > 0
    assert rows["weights"].list.sum().round(9).unique().to_list() == [1.0]
    assert record.predicted_ns == pytest.approx(4_000_000, rel=0.02)


def test_a_ladder_that_diverges_is_refused_and_nothing_is_written(desk: Desk, tmp_path: Path) -> None:
    desk.plant(ALL | {FULL_RUN: lambda iteration, layer: 0.10})
    desk.align()
    with pytest.raises(errors.MisuseError, match="claims stop at rung 4"):
        predict(desk.folder / "report", desk.capture.path, tmp_path / "prediction")
    assert not (tmp_path / "prediction").exists()


def test_the_bundled_ladder_is_not_intact_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    align(BUNDLED / "capture", BUNDLED / "profile.db", tmp_path / "report", settings=ladder_settings())
    words = ["predict", str(tmp_path / "report"), "--capture", str(BUNDLED / "capture"), "--out", str(tmp_path / "p")]
    assert run([*words, "--json"]) == 2
    assert "rung 4" in json.loads(capsys.readouterr().out)["error"]["found"]


def test_another_shape_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.plant(ALL)
    desk.align()
    other = import_serving(Recording(num_experts=16).write(tmp_path / "other"), tmp_path / "other-capture")
    with pytest.raises(errors.MisuseError, match="model shape"):
        predict(desk.folder / "report", other.path, tmp_path / "prediction")
