"""A trace without step markers is not one iteration, and a step without its marker is not folded into another.

https://github.com/pytorch/kineto/issues/1060
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, import_passes, literal_kind, moegauge, replay_of, write_bundle

from moegauge.kernels.registry import KINDS
from simulator import TraceBuilder

LAYERS = range(4)
KIND = literal_kind("one_a_layer", ["fused_moe"])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def serving(steps: Iterable[int], *, marked: Iterable[int], by: str) -> TraceBuilder:
    """Four MoE kernels of 10 us in each step; markers on the host or on the device for some steps."""
    trace = TraceBuilder()
    for number, step in enumerate(steps):
        begin = EPOCH_NS + number * 1000 * US
        for layer in LAYERS:
            correlation = trace.launch(begin + layer * US) if by == "host" else None
            trace.kernel("fused_moe", begin + (100 + 20 * layer) * US, 10 * US, correlation=correlation)
        if step in marked:
            scope = trace.host_scope if by == "host" else trace.device_scope
            scope(f"iteration I{step}", begin, 500 * US)
    return trace


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: list[int], trace: TraceBuilder
) -> tuple[Outcome, Path]:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": step, "tokens": 1, "padded": 1} for step in steps],
        routes=[[(step, layer, [[layer, 7 - layer]]) for step in steps for layer in LAYERS]],
        traces=[trace],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    return shown, capture


def aligned(tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: list[int], capture: Path) -> Outcome:
    work = [(step, layer, [("fused_moe", 10 * US)]) for step in steps for layer in LAYERS]
    db = import_passes(capsys, capture, lambda offset: [replay_of(work, offset_ns=offset)])
    return moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")


@pytest.mark.parametrize("steps", [[0, 1, 2], [0]], ids=["three steps", "one step"])
def test_twelve_kernels_without_markers_are_no_iteration(
    steps: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, capture = imported(tmp_path, capsys, steps, serving(range(3), marked=[], by="host"))
    assert shown.json["capture"]["coverage"]["num_iterations_closed"] == 0
    iterations = pl.read_parquet(capture / "iterations.parquet")
    assert iterations["status"].unique().to_list() == ["INCOMPLETE"]
    assert iterations["reason_code"].unique().to_list() == ["NO_ITERATION_MARKERS"]
    assert "the whole trace is not one iteration" in iterations["reason"][0]
    assert "12 sequences / 4 layers = 3 iterations (inferred only)" in iterations["reason"][0]


def test_the_inferred_number_of_iterations_is_told_to_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, capture = imported(tmp_path, capsys, [0, 1, 2], serving(range(3), marked=[], by="host"))
    text = " ".join(moegauge(capsys, "capture", "show", capture).out.split())
    assert "12 sequences / 4 layers = 3 iterations (inferred only)" in text


def test_without_markers_no_rung_is_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys, [0, 1, 2], serving(range(3), marked=[], by="host"))
    answer = aligned(tmp_path, capsys, [0, 1, 2], capture)
    assert answer.status == 2
    assert [rung["status"] for rung in answer.json["rungs"]] == ["UNAVAILABLE"] * 5
    wide = answer.json["rungs"][1]["capture_wide"]
    assert (wide["left_ns"], wide["num_iterations"], wide["reason"]["code"]) == (None, 0, "NO_ITERATION_MARKERS")


@pytest.mark.parametrize("by", ["host", "device"])
def test_a_step_without_its_marker_is_unmatched_and_the_others_are_covered(
    by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [3, 4, 5, 6]
    shown, capture = imported(tmp_path, capsys, steps, serving(steps, marked=[3, 4, 6], by=by))
    coverage = shown.json["capture"]["coverage"]
    assert (coverage["num_iterations"], coverage["num_iterations_closed"]) == (4, 3)
    assert (coverage["busy_ns"], coverage["num_ops_outside_iterations"]) == (120_000, 4)
    iterations = pl.read_parquet(capture / "iterations.parquet")
    assert iterations["iteration"].to_list() == [3, 4, 5, 6]
    assert iterations["reason_code"].to_list() == [None, None, "ITERATION_NOT_MARKED", None]
    (outside,) = [f for f in shown.json["capture"]["findings"] if f["code"] == "SUBJECT_OUTSIDE_ITERATIONS"]
    assert (outside["num"], outside["ns"]) == (4, 40_000)

    answer = aligned(tmp_path, capsys, steps, capture)
    assert answer.status == 2
    wide = answer.json["rungs"][1]["capture_wide"]
    assert (wide["num_iterations"], wide["num_invocations"], wide["left_ns"]) == (3, 12, 120_000)
    left = {entry["why"]: (entry["num"], entry["ns"]) for entry in wide["unmatched"] if entry["side"] == "left"}
    assert left == {"ITERATION_NOT_MARKED": (4, None), "OUTSIDE_ITERATIONS": (4, 40_000)}
    assert wide["status"] == "INCONCLUSIVE"
