"""Recordings read as what they are: rows that were not written are no expert, and a cut end is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from cases.literal_bundle import moegauge
from moegauge import errors
from moegauge.adapters.routes.recording import open_recording
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.frame_log import FrameWriter
from moegauge.jobs.capture_import import import_serving
from moegauge.records.capture import Finding
from moegauge.records.recording import Frame, Head, IterationFrame, Problem, ProfiledRange, Surroundings
from recordings import LAYERS, NUM_EXPERTS, TOP_K, end, head, iteration, part, routed, write_recording


def imported(tmp_path: Path, *ranks: list[Frame]) -> CaptureFolder:
    return import_serving(write_recording(tmp_path / "recording", *ranks), tmp_path / "capture")


def two_ranks(**changes: object) -> tuple[Head, Head]:
    first = head(world_size=2, tp_size=2)
    return first, msgspec.structs.replace(first, rank=1, **changes)


def codes(capture: CaptureFolder) -> dict[str, Finding]:
    return {finding.code: finding for finding in capture.record.findings}


def refused(tmp_path: Path, *ranks: list[Frame]) -> errors.EvidenceError:
    folder = write_recording(tmp_path / "recording", *ranks)
    with pytest.raises(errors.EvidenceError) as caught:
        import_serving(folder, tmp_path / "capture")
    assert not (tmp_path / "capture").exists()
    return caught.value


# What a whole recording becomes


@pytest.fixture
def whole(tmp_path: Path) -> CaptureFolder:
    parts = [part("a", 3, 0, 3), part("b", 2, 0, 5)]
    later = [part("a", 1, 3, 3), part("b", 3, 2, 5)]
    return imported(tmp_path, [head(), iteration(0, 5, parts=parts), iteration(1, 4, parts=later), end(2)])


def test_the_host_clock_closes_every_invocation_with_its_literal_time(whole: CaptureFolder) -> None:
    coverage = whole.record.coverage
    assert (coverage.num_iterations, coverage.num_iterations_closed, coverage.num_rank_invocations_closed) == (2, 2, 4)
    found = whole.invocations.select("iteration", "layer", "timing_status", "busy_ns", "start_ns", "launch_mode")
    assert found.rows() == [
        (0, 1, "CLOSED", 100, 1_001_000, None),
        (0, 3, "CLOSED", 101, 1_002_000, None),
        (1, 1, "CLOSED", 110, 2_001_000, None),
        (1, 3, "CLOSED", 111, 2_002_000, None),
    ]
    assert coverage.busy_ns == 100 + 101 + 110 + 111
    assert (coverage.num_ops_in_boundary, coverage.num_ops_unknown, coverage.num_ops_outside_iterations) == (4, 0, 0)
    assert whole.record.findings == ()


def test_every_row_arrives_with_its_ids_and_weights(whole: CaptureFolder) -> None:
    assert set(whole.invocations["routed_status"]) == {"WRITTEN"}
    for number, rows in ((0, 5), (1, 4)):
        for index, layer in enumerate(LAYERS):
            one = whole.routed_inputs.filter(pl.col("iteration") == number, pl.col("layer") == layer).sort("row")
            np.testing.assert_array_equal(one["topk_ids"].to_numpy(), routed(number, rows)[index])
            assert set(one["topk_weights"].explode()) == {0.5}


def test_requests_and_steps_are_tables(whole: CaptureFolder) -> None:
    assert whole.requests is not None
    assert whole.steps is not None
    assert whole.requests.drop("rank").rows() == [
        (0, 0, "a", "prefill", 0, 3, 0, 3, False),
        (0, 1, "b", "chunk", 3, 2, 0, 5, False),
        (1, 0, "a", "decode", 0, 1, 3, 3, False),
        (1, 1, "b", "chunk", 1, 3, 2, 5, False),
    ]
    digest = "canonical-json+sha256:" + "0" * 63
    assert whole.steps.drop("rank").rows() == [
        (0, 1_000_000, 1_100_000, 0, f"{digest}5"), (1, 2_000_000, 2_100_000, 0, f"{digest}4"),
    ]  # fmt: skip


def test_the_commands_import_show_and_verify_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [part("a", 2, 0, 2)]
    folder = write_recording(tmp_path / "rec", [head(), iteration(0, 2, parts=parts), iteration(1, 1), end(2)])
    done = moegauge(capsys, "capture", "import", "recording", folder, "--out", tmp_path / "capture", "--json")
    assert done.status == 0, done.err
    assert (done.json["capture"]["source"], done.json["rows_by_phase"]) == ("recording", {"prefill": 2})
    assert moegauge(capsys, "capture", "show", tmp_path / "capture").status == 0
    verified = moegauge(capsys, "verify", tmp_path / "capture")
    assert verified.status == 0, verified.out
    assert "1 rows of requests" in verified.out
    assert "2 rows of steps" in verified.out


def test_verify_names_a_raw_file_in_which_a_byte_was_flipped(
    whole: CaptureFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = whole.path / "raw" / "rank0.frames"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    outcome = moegauge(capsys, "verify", whole.path)
    assert outcome.status == 1
    assert "raw/rank0.frames: changed" in " ".join(outcome.out.split())
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet"])
def test_verify_names_a_table_that_was_exchanged(
    whole: CaptureFolder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    table = pl.read_parquet(whole.path / name)
    table.head(1).write_parquet(whole.path / name)
    outcome = moegauge(capsys, "verify", whole.path)
    assert outcome.status == 1
    assert f"{name}: changed" in " ".join(outcome.out.split())


# Rows that were not written


@pytest.mark.parametrize(("first_missing", "status"), [(0, "NOT_WRITTEN"), (1, "PARTIAL"), (3, "PARTIAL")])
def test_rows_from_the_first_that_was_not_written_on_are_absent_and_never_expert_0(
    tmp_path: Path, first_missing: int, status: str
) -> None:
    ids = routed(0, 4)
    ids[1, first_missing] = -2
    capture = imported(tmp_path, [head(), iteration(0, 4, ids=ids), end(1)])
    found = {layer: (status, digest) for layer, status, digest in
             capture.invocations.select("layer", "routed_status", "routed_digest").iter_rows()}  # fmt: skip
    assert found[1][0] == "WRITTEN"
    assert found[3] == (status, None)
    rows = capture.routed_inputs.filter(pl.col("layer") == 3)
    np.testing.assert_array_equal(rows["topk_ids"].to_numpy().reshape(-1, TOP_K), routed(0, 4)[1, :first_missing])
    assert capture.record.coverage.num_rank_invocations_routed == 1


def test_one_slot_of_a_row_that_was_not_written_makes_the_row_absent(tmp_path: Path) -> None:
    ids = routed(0, 4)
    ids[0, 2, 1] = -2
    capture = imported(tmp_path, [head(), iteration(0, 4, ids=ids), end(1)])
    assert capture.routed_inputs.filter(pl.col("layer") == 1).height == 2


def test_nothing_written_at_all_is_a_capture_without_one_exact_input(tmp_path: Path) -> None:
    ids = np.full((len(LAYERS), 2, TOP_K), -2)
    capture = imported(tmp_path, [head(), iteration(0, 2, ids=ids), end(1)])
    found = capture.invocations.select("layer", "routed_status", "timing_status", "busy_ns")
    assert found.rows() == [(1, "NOT_WRITTEN", "CLOSED", 100), (3, "NOT_WRITTEN", "CLOSED", 101)]
    assert (capture.routed_inputs.height, capture.record.coverage.num_rank_invocations_routed) == (0, 0)


def test_an_id_above_the_experts_is_refused(tmp_path: Path) -> None:
    ids = routed(0, 2)
    ids[0, 1, 0] = NUM_EXPERTS
    assert isinstance(refused(tmp_path, [head(), iteration(0, 2, ids=ids), end(1)]), errors.Inconsistent)


def test_padded_rows_are_executed_and_not_logical(tmp_path: Path) -> None:
    frame = iteration(0, 4, logical_tokens=3, launch_mode="graph")
    capture = imported(tmp_path, [head(), frame, end(1)])
    assert capture.iterations.select("logical_tokens", "executed_rows").rows() == [(3, 4)]


def test_an_iteration_with_a_layer_that_has_no_time_is_not_closed(tmp_path: Path) -> None:
    whole = iteration(0)
    frame = msgspec.structs.replace(whole, intervals_ns=(whole.intervals_ns or ())[1:], timed_layers=(1,))
    capture = imported(tmp_path, [head(), frame, iteration(1), end(2)])
    found = capture.invocations.filter(pl.col("iteration") == 0).select("layer", "timing_status", "busy_ns").rows()
    assert found == [(1, "UNAVAILABLE", None), (3, "UNAVAILABLE", None)]
    assert capture.iterations.select("iteration", "status").rows() == [(0, "INCOMPLETE"), (1, "COMPLETE")]
    assert capture.record.coverage.num_iterations_closed == 1


# Ends


def test_a_recording_without_an_end_names_its_last_whole_iteration(tmp_path: Path) -> None:
    cut = codes(imported(tmp_path, [head(), iteration(0), iteration(1)]))["RECORDING_CUT"]
    assert cut.sentence == "rank 0 was not stopped on purpose: whatever ran after iteration 1 is missing"
    assert cut.examples == ("last whole iteration 1",)


def test_a_torn_frame_is_named_with_its_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_recording(tmp_path / "recording", [head(), iteration(0), iteration(1)])
    path = folder / "rank0.frames"
    path.write_bytes(path.read_bytes()[:-3])
    capture = import_serving(folder, tmp_path / "capture")
    assert capture.record.coverage.num_iterations == 1
    example = codes(capture)["RECORDING_CUT"].examples[0]
    length = len(msgspec.msgpack.encode(iteration(1)))
    assert example == (
        f"last whole iteration 0; {length + 5} bytes after it belong to no whole frame "
        f"(a frame of {length} bytes is cut after {length - 3})"
    )
    assert moegauge(capsys, "verify", capture.path).status == 0


def test_iterations_that_another_rank_lacks_are_left_out_and_counted(tmp_path: Path) -> None:
    first, second = two_ranks()
    capture = imported(
        tmp_path,
        [first, iteration(0), iteration(1), iteration(2), iteration(3)],
        [second, iteration(0), iteration(1), end(2)],
    )
    assert capture.record.coverage.num_iterations == 2
    found = codes(capture)
    assert (found["RANKS_UNEVEN"].num, found["RANKS_UNEVEN"].sentence) == (
        2, "iterations of rank 0 that another rank lacks; they are left out",
    )  # fmt: skip
    assert found["RECORDING_CUT"].examples == ("last whole iteration 3",)
    assert set(capture.invocations["iteration"]) == {0, 1}
    assert set(capture.invocations["rank"]) == {0, 1}


def test_a_rank_without_frames_is_a_missing_rank(tmp_path: Path) -> None:
    first, _ = two_ranks()
    found = refused(tmp_path, [first, iteration(0), end(1)], [])
    assert isinstance(found, errors.Incomplete)
    assert found.found == "rank 1 missing (no trace file and no routing file)"


def test_dropped_iterations_are_counted(tmp_path: Path) -> None:
    found = codes(imported(tmp_path, [head(), iteration(0), end(1, num_dropped=3)]))
    assert found["ITERATIONS_DROPPED"].num == 3


def test_a_problem_of_the_recorder_marks_the_capture(tmp_path: Path) -> None:
    problem = Problem(before_iteration=1, what="RECORDER_FAILED", text="OSError: disk full")
    found = codes(imported(tmp_path, [head(), iteration(0), problem]))
    assert found["RECORDER_PROBLEM"].examples == ("before iteration 1: OSError: disk full",)
    assert "RECORDING_CUT" in found


def test_no_iteration_at_all_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, [head(), end(0)])
    assert isinstance(found, errors.Incomplete)
    assert found.expected == "at least one iteration that every rank has"


def test_features_that_endanger_exactness_are_found(tmp_path: Path) -> None:
    frames = [
        head(engine={"eplb": "True"}),
        iteration(0, 2, num_draft_tokens=1),
        iteration(1, 2, parts=[part("a", 2, 0, 9, resumed=True)]),
        end(2),
    ]
    found = {code: finding.num for code, finding in codes(imported(tmp_path, frames)).items()}
    assert found == {"SPECULATIVE_TOKENS": 1, "PREEMPTED_REQUESTS": 1, "EXPERTS_MOVE": 2}


# Phases


@pytest.mark.parametrize(
    ("shares", "phases"),
    [
        ([(4, 0, False), (1, 4, False)], ["prefill", "decode"]),
        ([(3, 0, False), (1, 3, False), (1, 4, False)], ["chunk", "chunk", "decode"]),
        ([(2, 2, False), (1, 4, False)], ["prefill", "decode"]),
        ([(1, 2, False), (1, 3, False), (1, 4, False)], ["chunk", "chunk", "decode"]),
        ([(4, 0, False), (1, 4, False), (5, 0, True), (1, 5, False)], ["prefill", "decode", "prefill", "decode"]),
        ([(4, 0, False), (3, 0, True), (2, 3, False)], ["prefill", "chunk", "chunk"]),
    ],
    ids=["whole", "two chunks", "cached prefix", "cached prefix in chunks", "resumed", "resumed in chunks"],
)
def test_phases_of_a_request_with_a_prompt_of_four(
    tmp_path: Path, shares: list[tuple[int, int, bool]], phases: list[str]
) -> None:
    frames = [
        iteration(number, rows, parts=[part("a", rows, computed, 4, resumed=resumed)])
        for number, (rows, computed, resumed) in enumerate(shares)
    ]
    capture = imported(tmp_path, [head(), *frames, end(len(frames))])
    assert capture.requests is not None
    assert capture.requests["phase"].to_list() == phases


def test_a_prompt_that_was_not_seen_has_no_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = imported(tmp_path, [head(), iteration(0, 2, parts=[part("a", 2, 7, None)]), end(1)])
    assert capture.requests is not None
    assert capture.requests["phase"].to_list() == [None]
    shown = moegauge(capsys, "capture", "show", capture.path, "--json")
    assert shown.json["rows_by_phase"] == {"not seen": 2}


# Conditions


def test_surroundings_become_conditions_as_ranges(tmp_path: Path) -> None:
    facts = ({"threads": "2", "load_average": "1.00"}, {"threads": "2", "load_average": "0.50"})
    samples = [Surroundings(before_iteration=number, facts=one) for number, one in enumerate(facts)]
    capture = imported(tmp_path, [head(), samples[0], iteration(0), iteration(1, 3), samples[1], end(2)])
    conditions = {name: fact.value for name, fact in capture.record.conditions.items()}
    assert conditions == {
        "profiler": "none (monotonic clock)", "device_model": "a processor", "threads": "2", "torch": "2.13.0",
        "vllm": "0.32.0", "kernel_config_digest": "2 configurations, by executed rows",
    }  # fmt: skip
    assert {fact.source for fact in capture.record.conditions.values()} == {"engine"}


def test_conditions_of_a_device_are_smallest_to_largest() -> None:
    from moegauge.adapters.routes.recorded_facts import conditions_of  # noqa: PLC0415
    from moegauge.evidence.frame_log import FrameLog  # noqa: PLC0415

    low = {"sm_clock_mhz": "1200", "memory_clock_mhz": "2619", "power_mw": "300500", "power_limit_mw": "700000"}
    high = low | {"sm_clock_mhz": "1980", "power_mw": "650900", "throttle": "none"}
    frames = tuple(Surroundings(before_iteration=0, facts=one) for one in (high, low))
    found = conditions_of({0: FrameLog(Path("x"), head(clock="device"), frames, None)})
    assert found == {
        "profiler": "kineto", "device_model": "a processor", "clocks": "SM 1200-1980 MHz, memory 2619 MHz",
        "power": "300-650 W of 700 W", "throttle": "none",
    }  # fmt: skip


# Contradictions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tp_size", 1), ("layers", (1, 2)), ("num_experts", 16), ("top_k", 3), ("experts_class", "TritonExperts"),
        ("kernel_kind", None), ("numeric_format", "float32"), ("clock", "device"), ("versions", {"vllm": "0.25.1"}),
        ("world_size", 3), ("config", {}),
    ],
)  # fmt: skip
def test_heads_of_two_ranks_that_contradict_each_other_are_refused(tmp_path: Path, name: str, value: object) -> None:
    first, second = two_ranks(**{name: value})
    found = refused(tmp_path, [first, iteration(0), end(1)], [second, iteration(0), end(1)])
    assert isinstance(found, errors.Inconsistent)
    assert (found.expected, found.found) == ("ranks of one engine", f"another {name} than the first rank's")


def test_a_file_named_for_another_rank_is_refused(tmp_path: Path) -> None:
    first, _ = two_ranks()
    found = refused(tmp_path, [first, iteration(0), end(1)], [first, iteration(0), end(1)])
    assert (found.expected, found.found) == ("the frames of rank 1", "rank 0 of 2")


def test_two_ranks_with_other_logical_tokens_are_refused(tmp_path: Path) -> None:
    first, second = two_ranks()
    found = refused(tmp_path, [first, iteration(0, 2), end(1)], [second, iteration(0, 3), end(1)])
    assert (found.expected, found.found) == ("2 logical tokens, as the first rank has", "3")


@pytest.mark.parametrize("layers", [(), (3, 1), (1, 1)])
def test_layers_that_do_not_ascend_are_refused(tmp_path: Path, layers: tuple[int, ...]) -> None:
    found = refused(tmp_path, [head(layers=layers), iteration(0), end(1)])
    assert found.expected == "MoE layers in ascending order, each once"


def test_an_iteration_that_stands_twice_is_refused(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path, [head(), iteration(0), iteration(0), end(2)]), errors.Inconsistent)


def test_a_recording_of_another_version_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, [head(schema="moegauge/recording/v2"), iteration(0), end(1)])
    assert isinstance(found, errors.SchemaNewer)


def test_a_head_that_contradicts_the_model_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, [head(top_k=1), iteration(0, topk_ids=bytes(8), topk_weights=bytes(16)), end(1)])
    assert isinstance(found, errors.Inconsistent)


_WHOLE = iteration(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"topk_ids": _WHOLE.topk_ids[:-1]},
        {"topk_ids": b""},
        {"topk_weights": _WHOLE.topk_weights + b"\0"},
        {"executed_rows": 3},
        {"executed_rows": None},
        {"executed_rows": -1},
        {"executed_rows": 1 << 40},
        {"ids_type": "int32"},
        {"ids_type": "int8"},
        {"timed_layers": (0,)},
        {"timed_layers": (0, 2)},
        {"timed_layers": (0, -1)},
        {"timed_layers": (0, 0)},
        {"intervals_ns": None},
        {"intervals_ns": ((1_001_000, 1_001_100),)},
        {"intervals_ns": ((1_001_000, 1_000_900), (1_002_000, 1_002_100))},
        {"intervals_ns": ((1 << 63, (1 << 63) + 9), (1_002_000, 1_002_100))},
        {"start_ns": 1 << 63},
        {"start_ns": 2_000_000},
        {"number": -1},
        {"number": 1 << 31},
        {"logical_tokens": 3},
        {"logical_tokens": -1},
        {"num_draft_tokens": 1 << 40},
        {"num_draft_tokens": -1},
        {"launch_mode": "turbo"},
        {"requests": (part("a", 1 << 40, 0, 1),)},
        {"requests": (part("a", 2, -1, 1),)},
        {"requests": (part("a", 2, 0, 1 << 40),)},
        {"requests": (part("a", 1, 0, 1),)},
        {"requests": (part("a", 0, 0, 1), part("b", 2, 0, 2))},
    ],
    ids=str,
)
def test_an_iteration_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    frame: IterationFrame = msgspec.structs.replace(_WHOLE, **changes)
    assert isinstance(refused(tmp_path, [head(), frame, end(1)]), errors.Inconsistent)


@pytest.mark.parametrize(
    "changes",
    [
        {"world_size": 1 << 40},
        {"world_size": 0},
        {"layers": (1, 1 << 40)},
        {"layers": (-1, 3)},
        {"top_k": -2},
        {"top_k": 1 << 40},
        {"expert_map": (0, 1)},
        {"expert_map": (1 << 40,) * NUM_EXPERTS},
        {"clock": "sundial"},
        {"rank": 5},
    ],
    ids=str,
)
def test_a_head_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    assert isinstance(refused(tmp_path, [head(**changes), _WHOLE, end(1)]), errors.Inconsistent)


def test_a_device_clock_without_a_profiled_range_is_refused(tmp_path: Path) -> None:
    frame = iteration(0, intervals_ns=None, timed_layers=())
    found = refused(tmp_path, [head(clock="device", kernel_kind="vllm_triton_moe"), frame, end(1)])
    assert isinstance(found, errors.Incomplete)
    assert found.expected == "at least one profiled range, with its trace"


@pytest.mark.parametrize("name", ["../rank0.trace-0.json.gz", "trace.json", "/etc/passwd", "rank0.trace-0.json.gz\n"])
def test_a_trace_of_a_strange_name_is_refused(tmp_path: Path, name: str) -> None:
    frames = [head(clock="device"), iteration(0, intervals_ns=None, timed_layers=())]
    found = refused(tmp_path, [*frames, ProfiledRange(first=0, last=0, file=name), end(1)])
    assert found.expected == "traces named rank<r>.trace-<n>.json.gz"


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    frames = [head(clock="device"), iteration(0, intervals_ns=None, timed_layers=())]
    trace = ProfiledRange(first=0, last=0, file="rank0.trace-0.json.gz")
    assert isinstance(refused(tmp_path, [*frames, trace, end(1)]), errors.MissingFile)


def test_surroundings_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    odd = Surroundings(before_iteration=0, facts={"threads": "several"})
    assert isinstance(refused(tmp_path, [head(), odd, iteration(0), end(1)]), errors.Inconsistent)


def test_a_folder_of_frames_that_are_torn_in_the_head_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    with FrameWriter(folder / "rank0.frames"):
        pass
    with pytest.raises(errors.MalformedFile):
        open_recording(folder)
