"""A decode step that is one graph launch: layers follow from a declared pattern by order, or not at all.

https://github.com/pytorch/pytorch/issues/186026
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, import_passes, literal_kind, moegauge, write_bundle

from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace
from moegauge.kernels.attribution import How, Plan
from moegauge.kernels.registry import KINDS
from moegauge.kernels.scopes import SERVING_TAGS
from simulator import NAMES, Recording, TraceBuilder

KIND = literal_kind("four_a_layer", ["gemm1", "act", "gemm2", "sum"])
STEP = ["gemm1", "act", "gemm2", "sum"] * 2


def one_graph_launch(kernels: list[str]) -> TraceBuilder:
    """One cudaGraphLaunch with correlation 500 inside iteration 0; each kernel takes 10 us."""
    trace = TraceBuilder(next_correlation=499)
    trace.host_scope("iteration I0", EPOCH_NS, 50 * US)
    correlation = trace.launch(EPOCH_NS + US, name="cudaGraphLaunch")
    assert correlation == 500
    for index, name in enumerate(kernels):
        trace.kernel(name, EPOCH_NS + (100 + 11 * index) * US, 10 * US, correlation=correlation)
    return trace


def attributed(kernels: list[str]) -> AttributedTrace:
    two_layers = Plan(
        iteration=np.array([0, 0]),
        layer=np.array([0, 1]),
        executed_rows=np.array([1, 1]),
        top_k=2,
        num_experts=8,
        has_expert_map=False,
    )
    trace = parse_kineto(one_graph_launch(kernels).data(), source="trace.json")
    return attributed_trace(trace, KIND, two_layers, SERVING_TAGS)


def test_eight_kernels_of_one_launch_are_two_layers_by_order() -> None:
    found = attributed(STEP)
    assert found.attribution.invocation.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert set(found.attribution.how.tolist()) == {How.ORDER}
    assert found.attribution.unavailable == {}
    assert found.rows["layer"].to_list() == [0, 1]
    assert found.rows["attribution"].to_list() == ["ORDER", "ORDER"]
    assert found.rows["busy_ns"].to_list() == [40_000, 40_000]
    assert found.rows["launch_mode"].to_list() == ["graph", "graph"]


def test_the_launch_call_is_one_row_that_all_eight_kernels_share() -> None:
    trace = attributed(STEP).trace
    assert trace.launches.correlation.tolist() == [500]
    assert trace.ops.launch.tolist() == [0] * 8


@pytest.mark.parametrize("lost", range(8))
def test_seven_kernels_do_not_divide_and_nothing_is_assigned(lost: int) -> None:
    found = attributed(STEP[:lost] + STEP[lost + 1 :])
    assert found.attribution.unavailable[0].code == "PATTERN_DOES_NOT_DIVIDE"
    assert "pattern does not divide" in found.attribution.unavailable[0].sentence
    assert found.attribution.invocation.tolist() == [-1] * 7
    assert found.rows["busy_ns"].to_list() == [None, None]


def test_the_capture_says_by_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1, "graph": True}],
        routes=[[(0, 0, [[0, 1]]), (0, 1, [[2, 3]])]],
        traces=[one_graph_launch(STEP)],
    )
    capture = tmp_path / "capture"
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture).status == 0
    rows = pl.read_parquet(capture / "invocations.parquet")
    assert rows["attribution"].to_list() == ["ORDER", "ORDER"]
    assert rows["launch_mode"].to_list() == ["graph", "graph"]


def test_a_graph_that_lost_a_kernel_has_no_layer_rung(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording()
    trace = recording.serving(0)
    sums = [event for event in trace.events if event["name"] == NAMES["sum"]]
    trace.events.remove(sums[4])  # layer 1 of iteration 1, which is one graph launch
    bundle = recording.write(tmp_path / "bundle")
    (bundle / "serving_trace.json").write_bytes(trace.data())
    capture = tmp_path / "capture"
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--out", capture).status == 0
    iterations = pl.read_parquet(capture / "iterations.parquet")
    assert iterations["status"].to_list() == ["COMPLETE", "INCOMPLETE", "COMPLETE"]
    assert iterations["reason"][1] == (
        "iteration 1: pattern does not divide: 2 complete sequences (gemm act gemm sum) for 3 layers"
    )
    db = import_passes(capsys, capture, lambda offset: [recording.graph_replay(offset_ns=offset)])
    tokens = ("align", capture, "--db", db, "--out", tmp_path / "report", "--select", "iteration=1,layer=0", "--json")
    answer = moegauge(capsys, *tokens)
    assert answer.status == 2
    selected = answer.json["rungs"][0]["selected"]
    assert (selected["status"], selected["reason"]["code"]) == ("UNAVAILABLE", "PATTERN_DOES_NOT_DIVIDE")
    assert (selected["left_ns"], selected["relative_ratio"]) == (None, None)
