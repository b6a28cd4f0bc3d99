"""Which kernels belong to which invocation: the same set on both sides, nothing lost, nothing guessed."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import NO_LABELS
from moegauge import errors
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace, interval_rows
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from moegauge.kernels.attribution import Plan
from moegauge.kernels.classification import OpClass
from moegauge.kernels.registry import kernel_kind
from moegauge.kernels.scopes import SERVING_TAGS, ScopeTags
from moegauge.kernels.trace import NONE
from simulator import BASE_NS, NAMES, Recording, TraceBuilder, us

KIND = kernel_kind("vllm_triton_moe")
INSIDE = [name for role, name in NAMES.items() if role not in {"norm", "router", "finalize"}]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def plan_of(recording: Recording) -> Plan:
    rows = [(step["iter"], layer, step["padded"]) for step in recording.steps for layer in recording.layers]
    table = np.array(rows, dtype=np.int64)
    return Plan(
        iteration=table[:, 0],
        layer=table[:, 1],
        executed_rows=table[:, 2],
        top_k=recording.top_k,
        num_experts=recording.num_experts,
        has_expert_map=recording.expert_parallel,
    )


def attributed(recording: Recording, trace: TraceBuilder, tags: ScopeTags = SERVING_TAGS) -> AttributedTrace:
    return attributed_trace(parse_kineto(trace.data(), source="trace.json"), KIND, plan_of(recording), tags)


def busy(found: AttributedTrace) -> dict[tuple[int, int], int | None]:
    """Busy time of each (iteration, layer); None where the invocation is not closed."""
    return {(i, layer): ns for i, layer, ns in found.rows.select("iteration", "layer", "busy_ns").iter_rows()}


def expected_busy(recording: Recording, rank: int = 0) -> dict[tuple[int, int], int | None]:
    return {
        (step["iter"], layer): recording.busy_ns(step["iter"], layer, rank)
        for step in recording.steps
        for layer in recording.layers
    }


def without(found: dict[tuple[int, int], int | None], iteration: int) -> dict[tuple[int, int], int | None]:
    """The same with one iteration unavailable."""
    return {key: None if key[0] == iteration else ns for key, ns in found.items()}


def kernels_of(trace: TraceBuilder, iteration: int, names: list[str] | None = None) -> list[dict[str, Any]]:
    """Device operations of one iteration, by its device annotation, in order of start."""
    (scope,) = [
        event
        for event in trace.events
        if event["cat"] == "gpu_user_annotation" and event["name"] == f"iteration I{iteration}"
    ]
    end = scope["ts"] + scope["dur"]
    found = [e for e in trace.events if e["cat"] in DEVICE and scope["ts"] <= e["ts"] < end]
    return sorted((e for e in found if names is None or e["name"] in names), key=lambda event: event["ts"])


def insert(trace: TraceBuilder, after: dict[str, Any], name: str, *, stream: int = 7, cat: str = "kernel") -> None:
    """Put an operation of 100 ns into the gap behind another one, launched by the same call."""
    event = copy.deepcopy(after)
    event.update(name=name, cat=cat, ts=after["ts"] + after["dur"] + us(100), dur=us(100))
    event["args"]["stream"] = stream
    trace.events.append(event)


@st.composite
def recordings(draw: st.DrawFn, ranks: int = 1) -> Recording:
    """Small recordings over every variant of the kind: rows, experts, layers, launch mode and expert map vary."""
    numbers = draw(st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True).map(sorted))
    steps = []
    for number in numbers:
        rows = draw(st.sampled_from([1, 2, 3, 8, 40, 260]))
        tokens = draw(st.integers(1, rows))
        steps.append({"iter": number, "tokens": tokens, "padded": rows, "reqs": 1, "graph": draw(st.booleans())})
    return Recording(
        steps=steps,
        layers=tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(sorted))),
        num_experts=draw(st.sampled_from([8, 64, 128])),
        top_k=draw(st.sampled_from([1, 2, 4])),
        ranks=ranks,
        expert_parallel=ranks > 1 and draw(st.booleans()),
        launch_rows=draw(st.booleans()),
        gap_ns=draw(st.sampled_from([500, 0, 1])),
    )


@given(recordings())
def test_every_invocation_of_every_variant_closes_with_exactly_its_kernels(recording: Recording) -> None:
    found = attributed(recording, recording.serving(0))
    assert found.attribution.unavailable == {}
    assert busy(found) == expected_busy(recording)
    counts = {step["iter"]: len(recording.roles(step["padded"])) for step in recording.steps}
    assert found.rows["num_kernels"].to_list() == [counts[i] for i in found.rows["iteration"]]


@given(recordings())
def test_the_kernel_set_of_an_invocation_is_the_same_on_both_sides(recording: Recording) -> None:
    served = attributed(recording, recording.serving(0)).rows
    replayed = attributed(recording, recording.replay(scale=1.3), ScopeTags(frozenset(), frozenset({"exact"}))).rows
    columns = ["iteration", "layer", "variant", "num_kernels", "kernels_digest"]
    assert served.select(columns).rows() == replayed.select(columns).rows()
    graphs = [step["iter"] for step in recording.steps if step["graph"]]
    if graphs:
        part = Recording(**(vars(recording) | {"steps": [s for s in recording.steps if s["graph"]]}))
        as_graph = attributed(part, recording.graph_replay(), ScopeTags(frozenset({"graph"}), frozenset())).rows
        wanted = served.filter(pl.col("iteration").is_in(graphs))
        assert wanted.select(columns).rows() == as_graph.select(columns).rows()


@given(recordings(ranks=2))
def test_each_rank_is_attributed_on_its_own(recording: Recording) -> None:
    for rank in range(2):
        assert busy(attributed(recording, recording.serving(rank))) == expected_busy(recording, rank)


@given(recordings(), st.integers(0, 10**9))
def test_neither_where_time_begins_nor_the_order_of_the_events_matters(recording: Recording, seed: int) -> None:
    trace = recording.serving(0)
    before = attributed(recording, trace)
    for event in trace.events:
        event["ts"] += us(1_700_000_000_000_000_123)
    random.Random(seed).shuffle(trace.events)  # noqa: S311
    after = attributed(recording, trace)
    columns = ["iteration", "layer", "busy_ns", "span_ns", "gap_ns", "foreign_ns", "num_kernels", "kernels_digest"]
    assert before.rows.select(columns).rows() == after.rows.select(columns).rows()
    assert (after.rows["start_ns"] - before.rows["start_ns"]).unique().to_list() == [1_700_000_000_000_000_123]


@given(recordings(), st.data())
def test_one_kernel_of_the_boundary_missing_makes_its_iteration_unavailable_and_no_other(
    recording: Recording, data: st.DataObject
) -> None:
    trace = recording.serving(0)
    iteration = data.draw(st.sampled_from([step["iter"] for step in recording.steps]))
    trace.events.remove(data.draw(st.sampled_from(kernels_of(trace, iteration, INSIDE))))
    found = attributed(recording, trace)
    assert list(found.attribution.unavailable) == [iteration]
    assert found.attribution.unavailable[iteration].code in {
        *("GRAMMAR_MISMATCH", "PATTERN_DOES_NOT_DIVIDE", "NO_KERNELS")
    }
    assert busy(found) == without(expected_busy(recording), iteration)
    left = np.array([op for op in range(len(found.trace.ops)) if found.attribution.iteration[op] == iteration])
    classes = found.attribution.op_class[left]
    assert OpClass.IN_BOUNDARY not in classes
    named = {found.trace.names[found.trace.ops.name[op]] for op in left[classes == OpClass.UNKNOWN]}
    assert NAMES["gemm"] in named


@given(recordings(), st.data())
def test_one_kernel_of_the_kind_too_many_makes_its_iteration_unavailable_and_no_other(
    recording: Recording, data: st.DataObject
) -> None:
    recording.gap_ns = 500
    trace = recording.serving(0)
    iteration = data.draw(st.sampled_from([step["iter"] for step in recording.steps]))
    after = data.draw(st.sampled_from(kernels_of(trace, iteration)[:-1]))
    insert(trace, after, data.draw(st.sampled_from([NAMES[role] for role in ("gemm", "sum", "align", "sort")])))
    found = attributed(recording, trace)
    assert list(found.attribution.unavailable) == [iteration]
    assert busy(found) == without(expected_busy(recording), iteration)


@given(recordings(), st.data())
def test_every_operation_is_in_the_boundary_or_a_known_stage_or_foreign_or_listed_as_unknown(
    recording: Recording, data: st.DataObject
) -> None:
    recording.gap_ns = 500
    trace = recording.serving(0)
    names = ["void vllm::rms_norm_kernel<float>()", "ncclDevKernel_AllReduce", "my_new_moe_kernel", "expert_gemm"]
    # Without launch calls only the annotations of the stream itself can tell the iteration.
    streams = st.sampled_from([7, 20] if recording.launch_rows else [7])
    extra = data.draw(st.lists(st.tuples(st.sampled_from(names), streams), max_size=4))
    for number, (name, stream) in enumerate(extra):
        step = recording.steps[number % len(recording.steps)]
        # Behind the router: no kernel of an invocation stands before it, so nothing is torn apart.
        router = kernels_of(trace, step["iter"], [NAMES["router"]])[0]
        insert(trace, router, name, stream=stream + (number if stream == 20 else 0))
        trace.events[-1]["ts"] += us(200 * number)
    found = attributed(recording, trace)
    assert busy(found) == expected_busy(recording)
    rows = interval_rows(found, plan_of(recording), 0)
    num_ops = sum(event["cat"] in DEVICE for event in trace.events)
    assert rows.height == num_ops
    assert rows["iteration"].null_count() == 0
    by_class = {name: set(part["name"].to_list()) for (name,), part in rows.group_by("op_class")}
    inside = {NAMES[role] for step in recording.steps for role in recording.roles(step["padded"])}
    assert by_class.pop("IN_BOUNDARY") == inside
    seen = {name for name, _ in extra}
    assert by_class.pop("OUTSIDE_BOUNDARY") == {NAMES["router"], NAMES["finalize"]} | (seen & {names[1]})
    assert by_class.pop("FOREIGN", set()) == seen & {names[0]}
    assert by_class.pop("UNKNOWN", set()) == seen & set(names[2:])
    assert by_class == {}


def test_unknown_kernels_are_listed_by_name_in_the_capture(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    insert(trace, kernels_of(trace, 1, [NAMES["router"]])[0], "my_new_moe_kernel")
    capture = imported(recording, trace, tmp_path)
    assert capture.record.coverage.unknown_names == ("my_new_moe_kernel",)
    assert capture.record.coverage.num_ops_unknown == 1
    coverage = capture.record.coverage
    assert capture.intervals.height == (
        coverage.num_ops_in_boundary
        + coverage.num_ops_outside_boundary
        + coverage.num_ops_foreign
        + coverage.num_ops_unknown
        + coverage.num_ops_outside_iterations
    )


def imported(recording: Recording, trace: TraceBuilder, folder: Path) -> CaptureFolder:
    """The recording as a capture, with another serving trace."""
    bundle = recording.write(folder / "bundle")
    (bundle / "serving_trace.json").write_bytes(trace.data())
    return import_serving(bundle, folder / "capture")


def test_a_serving_trace_without_the_fill_kernel_makes_the_iteration_unavailable(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    (fill, *_) = kernels_of(trace, 2, [NAMES["fill"]])
    trace.events.remove(fill)
    capture = imported(recording, trace, tmp_path)
    status = capture.iterations.select("iteration", "status", "reason_code").rows()
    assert status == [(0, "COMPLETE", None), (1, "COMPLETE", None), (2, "INCOMPLETE", "GRAMMAR_MISMATCH")]
    reason = capture.iterations["reason"].to_list()[2]
    assert "layer 0 (1 rows) calls for naive_block_assignment (fill)" in reason
    assert capture.record.coverage.num_rank_invocations_closed == 6
    assert capture.iterations["unattributed_ns"].to_list()[2] > 0


def test_a_replay_without_the_fill_kernel_is_refused_and_no_database_is_made(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    trace = recording.replay()
    trace.events.remove(next(event for event in trace.events if event["name"] == NAMES["fill"]))
    (tmp_path / "replay.json").write_bytes(trace.data())
    with pytest.raises(
        errors.Incomplete, match=r"calls for naive_block_assignment \(fill\).*1 iterations do not close"
    ):
        import_replay(capture.path, [tmp_path / "replay.json"], tmp_path / "profile.db", labels=NO_LABELS)
    assert not (tmp_path / "profile.db").exists()


def test_a_variant_that_rows_do_not_call_for_is_not_accepted_because_the_trace_shows_it(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    for event in kernels_of(trace, 2, [NAMES["fill"]]):
        event["name"] = NAMES["align_small"]
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list() == [None, None, "GRAMMAR_MISMATCH"]


def shorten(trace: TraceBuilder, cat: str, name: str, *, by_ns: int) -> None:
    (scope,) = [event for event in trace.events if event["cat"] == cat and event["name"] == name]
    scope["dur"] -= us(by_ns)


@pytest.mark.parametrize("of_the_iteration_too", [False, True])
def test_a_device_annotation_that_cuts_a_kernel_off_does_not_lose_it(
    tmp_path: Path, of_the_iteration_too: bool
) -> None:
    recording = Recording(launch_rows=False, layers=(0, 1))
    trace = recording.serving(0)
    last = kernels_of(trace, 0, [NAMES["sum"]])[-1]
    cut_ns = int(last["dur"] * 1000) + 100
    shorten(trace, "gpu_user_annotation", "moe L1 I0", by_ns=cut_ns)
    if of_the_iteration_too:
        shorten(trace, "gpu_user_annotation", "iteration I0", by_ns=cut_ns + 1_000)
    capture = imported(recording, trace, tmp_path)
    assert capture.record.coverage.busy_ns == recording.total_ns()
    assert capture.record.coverage.num_iterations_closed == 3
    (finding,) = [one for one in capture.record.findings if one.code == "ANNOTATION_CUT"]
    assert (finding.num, finding.ns) == (1, int(last["dur"] * 1000))
    assert finding.examples[0].startswith("layer 1 of iteration 0: void vllm::moe::moe_sum")
    how = capture.invocations.filter((pl.col("iteration") == 0) & (pl.col("layer") == 1))["attribution"].to_list()
    assert how == ["NEIGHBOURS"]


@pytest.mark.parametrize("launch_rows", [True, False])
def test_annotations_that_contradict_the_order_make_the_iteration_unavailable(
    tmp_path: Path, launch_rows: bool
) -> None:
    recording = Recording(launch_rows=launch_rows)
    trace = recording.serving(0)
    swapped = {"moe L0 I0": "moe L1 I0", "moe L1 I0": "moe L0 I0"}
    for event in trace.events:
        if "annotation" in event["cat"]:
            event["name"] = swapped.get(event["name"], event["name"])
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list() == ["SCOPES_DISAGREE", None, None]
    assert "by order layer 0, by annotation layer 1 of iteration 0" in capture.iterations["reason"].to_list()[0]
    assert capture.record.coverage.num_rank_invocations_closed == 6


def test_an_invocation_annotated_for_another_iteration_makes_its_iteration_unavailable(tmp_path: Path) -> None:
    recording = Recording(launch_rows=False)
    trace = recording.serving(0)
    for event in trace.events:
        if event["name"] == "moe L2 I0":
            event["name"] = "moe L2 I7"
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list() == ["SCOPES_DISAGREE", None, None]


@pytest.mark.parametrize("launch_rows", [True, False])
def test_kernels_of_one_invocation_in_two_iterations_make_both_suspect(tmp_path: Path, launch_rows: bool) -> None:
    recording = Recording(launch_rows=launch_rows, steps=Recording().steps[:1] * 2)
    recording.steps = [dict(step, iter=number) for number, step in enumerate(recording.steps)]
    trace = recording.serving(0)
    category = "user_annotation" if launch_rows else "gpu_user_annotation"
    (first,) = [e for e in trace.events if e["cat"] == category and e["name"] == "iteration I0"]
    (second,) = [e for e in trace.events if e["cat"] == category and e["name"] == "iteration I1"]
    if launch_rows:
        launches = sorted((e for e in trace.events if e["cat"] == "cuda_runtime"), key=lambda event: event["ts"])
        moved = [e for e in launches if first["ts"] + us(30) <= e["ts"] < first["ts"] + first["dur"]]
        moved[-1]["ts"] = second["ts"] + us(1)
        members = [e for e in trace.events if e["args"].get("correlation") == moved[-1]["args"]["correlation"]]
        assert {e["name"] for e in members} & set(INSIDE)
    else:
        gemm = kernels_of(trace, 0, [NAMES["gemm"]])[-1]
        first["dur"] = gemm["ts"] - first["ts"] - us(10)
        second["dur"] += second["ts"] - gemm["ts"] + us(5)
        second["ts"] = gemm["ts"] - us(5)
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list()[0] == "SCOPES_DISAGREE"
    assert capture.record.coverage.num_iterations_closed < 2


def test_kernels_outside_every_iteration_are_unmatched_work_and_in_no_total(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    warmup = BASE_NS - 10_000_000
    for number, role in enumerate(("align_small", "gemm", "act", "gemm", "sum")):
        trace.kernel(NAMES[role], warmup + 1_000 * number, 900)
    capture = imported(recording, trace, tmp_path)
    assert capture.record.coverage.busy_ns == recording.total_ns()
    (finding,) = [one for one in capture.record.findings if one.code == "SUBJECT_OUTSIDE_ITERATIONS"]
    assert (finding.num, finding.ns) == (4, 4 * 900)  # act_and_mul alone does not prove MoE work
    assert capture.record.coverage.num_ops_outside_iterations == 5


def test_two_layers_that_end_with_one_copy_keep_it_as_finalize_outside_the_boundary() -> None:
    recording = Recording()
    found = attributed(recording, recording.serving(0))
    rows = interval_rows(found, plan_of(recording), 0)
    copies = rows.filter(pl.col("name") == NAMES["finalize"])
    assert copies["op_class"].unique().to_list() == ["OUTSIDE_BOUNDARY"]
    assert copies["stage"].unique().to_list() == ["finalize"]
    assert copies.height == 9


def test_a_trace_without_any_annotation_is_not_divided_by_guesswork(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    trace.events = [event for event in trace.events if "annotation" not in event["cat"]]
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list() == ["NO_ITERATION_MARKERS"] * 3
    assert "9 sequences / 3 layers = 3 iterations (inferred only)" in capture.iterations["reason"].to_list()[0]
    assert capture.record.coverage.num_rank_invocations_closed == 0


def test_an_iteration_without_its_annotation_is_not_marked_and_its_kernels_are_outside(tmp_path: Path) -> None:
    recording = Recording(launch_rows=False)
    trace = recording.serving(0)
    trace.events = [event for event in trace.events if event["name"] != "iteration I1"]
    capture = imported(recording, trace, tmp_path)
    assert capture.iterations["reason_code"].to_list() == [None, "ITERATION_NOT_MARKED", None]
    (finding,) = [one for one in capture.record.findings if one.code == "SUBJECT_OUTSIDE_ITERATIONS"]
    assert finding.num == 4 * 3
    assert (
        capture.record.coverage.busy_ns + sum(recording.busy_ns(1, layer) for layer in recording.layers)
        == recording.total_ns()
    )


def test_annotations_of_one_iteration_that_stand_twice_are_ambiguous(tmp_path: Path) -> None:
    recording = Recording()
    trace = recording.serving(0)
    trace.host_scope("iteration I1", BASE_NS - 500, 10)
    with pytest.raises(errors.Ambiguous, match="two annotations for iteration 1"):
        imported(recording, trace, tmp_path)
    assert not (tmp_path / "capture").exists()


def test_how_an_invocation_was_attributed_is_recorded(tmp_path: Path) -> None:
    capture = imported(Recording(), Recording().serving(0), tmp_path / "a")
    assert capture.invocations["attribution"].to_list() == ["LAUNCH"] * 3 + ["ORDER"] * 6
    bare = Recording(launch_rows=False)
    capture = imported(bare, bare.serving(0), tmp_path / "b")
    assert capture.invocations["attribution"].to_list() == ["DEVICE_SCOPE"] * 3 + ["ORDER"] * 6


def test_no_operation_is_in_two_invocations_and_none_of_the_plan_is_forgotten() -> None:
    recording = Recording(layers=(3, 5))
    found = attributed(recording, recording.serving(0))
    taken = found.attribution.invocation[found.attribution.invocation != NONE]
    assert sorted(set(taken.tolist())) == list(range(6))
    assert found.rows["layer"].to_list() == [3, 5] * 3
