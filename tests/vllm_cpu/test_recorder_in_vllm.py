"""The recorder inside a real vLLM: what it records is what was served, and serving is what it was without it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from served import WATCHED_LAYER, Prompt, Served, greedy, start_engine, stop_engine
from vllm._custom_ops import cpu_fused_moe

from cases.literal_bundle import moegauge
from moegauge.adapters.routes.recording import frame_arrays
from moegauge.adapters.vllm.settings import read_statuses, write_control
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.frame_log import FrameLog, read_frames
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.recording_control import start_recording, stop_recording
from moegauge.records.recording import End, IterationFrame, Problem

NUM_LAYERS = 6
TOKENS = random.Random(5)  # noqa: S311 - prompts
LENGTHS = (1, 90, 20, 16, 33, 12, 7)
"""A prompt of one token, two longer than the 32 tokens of a step, and more of them than the 4 sequences of a batch."""
OUTPUTS = (5, 4, 7, 3, 4, 6, 5)
PROMPTS: list[Prompt] = [tuple(TOKENS.randrange(10, 1024) for _ in range(length)) for length in LENGTHS]
ROWS = sum(LENGTHS) + sum(OUTPUTS) - len(OUTPUTS)
"""Each prompt once, and each generated token but the last of a request."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    before = dict(os.environ)
    engine = start_engine(tmp_path_factory.mktemp("engine"))
    yield engine
    stop_engine(engine)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def unrecorded(served: Served) -> list[list[int]]:
    """Tokens of all prompts while nothing is recorded."""
    return served.generate(PROMPTS, OUTPUTS)


def command(*tokens: object, **options: Any) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "moegauge", *(str(token) for token in tokens)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, **options)


def workload(path: Path, requests: list[tuple[Prompt, int]]) -> Path:
    lines = [json.dumps({"prompt_token_ids": prompt, "max_tokens": number}) for prompt, number in requests]
    path.write_text("\n".join(lines) + "\n")
    return path


def log_of(take: Path) -> FrameLog:
    return read_frames(take / "rank0.frames")


def iterations(log: FrameLog) -> list[IterationFrame]:
    return [frame for frame in log.frames if isinstance(frame, IterationFrame)]


def ids_of(log: FrameLog) -> list[np.ndarray[Any, Any]]:
    """Recorded ids of each iteration, [layers, rows, top_k]."""
    return [frame_arrays(log.head, frame, where="test")[0] for frame in iterations(log)]


def verified(capsys: pytest.CaptureFixture[str], capture: Path) -> str:
    outcome = moegauge(capsys, "verify", capture)
    assert outcome.status == 0, outcome.out + outcome.err
    return outcome.out


def check_whole(capture: CaptureFolder, *, rows: int, ranks: int = 1) -> None:
    """Every iteration closes, every invocation has its exact input, and every row that was asked for is there."""
    coverage, table = capture.record.coverage, capture.iterations
    assert capture.record.findings == ()
    assert coverage.num_iterations_closed == coverage.num_iterations == table["iteration"].n_unique() > 0
    num = coverage.num_iterations * NUM_LAYERS * ranks
    closed, routed = coverage.num_rank_invocations_closed, coverage.num_rank_invocations_routed
    assert (closed, routed, coverage.num_ops_in_boundary) == (num, num, num)
    assert coverage.num_ops_unknown + coverage.num_ops_outside_iterations + coverage.num_ops_invalid == 0
    per_rank = table.group_by("rank").agg(pl.col("logical_tokens").sum(), pl.col("executed_rows").sum())
    assert per_rank.height == ranks
    assert set(per_rank["logical_tokens"]) == set(per_rank["executed_rows"]) == {rows}
    assert capture.requests is not None
    assert capture.requests.filter(pl.col("rank") == 0)["num_rows"].sum() == rows


# Through the command


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CaptureFolder, dict[str, Any]]:
    """A capture of all prompts by the command, with timed runs beside it; and what the command printed."""
    folder = tmp_path_factory.mktemp("made")
    done = command(
        "capture", "vllm", "--workload", workload(folder / "w.jsonl", list(zip(PROMPTS, OUTPUTS, strict=True))),
        "--engine-argument", "max_num_batched_tokens=32", "--engine-argument", "max_num_seqs=4", "--out",
        folder / "capture", "--timed-runs", 1, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (folder / "capture.recording").exists()
    return open_capture(folder / "capture"), json.loads(done.stdout)


def test_every_iteration_of_a_recorded_workload_closes_and_verifies(
    made: tuple[CaptureFolder, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    capture, _ = made
    check_whole(capture, rows=ROWS)
    verified(capsys, capture.path)


def test_prompts_longer_than_a_step_are_chunks_and_a_batch_never_exceeds_its_bound(
    made: tuple[CaptureFolder, dict[str, Any]],
) -> None:
    capture, _ = made
    requests = capture.requests
    assert requests is not None
    by_phase = dict(requests.group_by("phase").agg(pl.col("num_rows").sum()).iter_rows())
    assert set(by_phase) == {"prefill", "chunk", "decode"}
    assert by_phase["prefill"] + by_phase["chunk"] == sum(LENGTHS)
    assert by_phase["decode"] == sum(OUTPUTS) - len(OUTPUTS)
    longest = requests.filter(pl.col("num_prompt") == 90, pl.col("phase") != "decode").sort("iteration")
    assert set(longest["phase"]) == {"chunk"}
    assert longest["num_computed"].to_list() == np.cumsum([0, *longest["num_rows"]])[:-1].tolist()
    alone = requests.filter(pl.col("num_prompt") == 1, pl.col("phase") != "decode")
    assert alone.select("phase", "num_rows").rows() == [("prefill", 1)]
    assert requests["request"].n_unique() == len(PROMPTS)
    assert requests.group_by("iteration").len()["len"].max() == 4
    assert capture.iterations["executed_rows"].max() == 32


def test_engine_processes_with_and_without_the_recorder_generate_the_same_tokens(
    made: tuple[CaptureFolder, dict[str, Any]], unrecorded: list[list[int]]
) -> None:
    _, printed = made
    overhead = printed["overhead"]
    roles = [(run["process"], run["recorder"], run["take"]) for run in overhead["runs"]]
    with_it = [(1, "paused", None), (1, "recording", None)]
    again = [(3, "paused", None), (3, "recording", None)]
    assert roles == [(0, "absent", None), *with_it, (2, "absent", None), *again, (4, "recording", "take-0")]
    assert overhead["outputs_identical"] is True
    assert len({run["outputs_digest"] for run in overhead["runs"]}) == 1
    assert all(run["wall_ns"] > 0 for run in overhead["runs"])
    assert [len(tokens) for tokens in unrecorded] == list(OUTPUTS)


def test_a_killed_engine_leaves_a_capture_up_to_its_last_whole_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "capture"
    arguments = [
        sys.executable, "-m", "moegauge", "capture", "vllm", "--workload",
        str(workload(tmp_path / "w.jsonl", [(PROMPTS[1], 400)])), "--out", str(out),
    ]  # fmt: skip
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    frames = tmp_path / "capture.recording" / "take-0" / "rank0.frames"
    while running.poll() is None and not (frames.is_file() and frames.stat().st_size > 30_000):
        time.sleep(0.01)
    assert running.poll() is None, running.communicate()
    os.kill(engine_of(running.pid), signal.SIGKILL)
    _, said = running.communicate()
    assert running.returncode == 2
    assert "engine process ended with signal 9" in said
    assert "Traceback" not in said
    capture = open_capture(out)
    last = capture.record.coverage.num_iterations - 1
    assert 0 < last < 404
    assert capture.record.coverage.num_iterations_closed == last + 1
    cut = [finding for finding in capture.record.findings if finding.code == "RECORDING_CUT"]
    sentence = f"rank 0 was not stopped on purpose: whatever ran after iteration {last} is missing"
    assert [finding.sentence for finding in cut] == [sentence]
    shown = moegauge(capsys, "capture", "show", out)
    assert shown.status == 0
    assert f"after iteration {last} is missing" in " ".join(shown.out.split())
    verified(capsys, out)
    assert frames.is_file()


def engine_of(pid: int) -> int:
    """The engine process that the command started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    found = [one for one in children if b"moegauge.adapters.vllm.offline" in Path(f"/proc/{one}/cmdline").read_bytes()]
    assert len(found) == 1
    return found[0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need a core each")
def test_two_ranks_are_recorded_measured_and_compared_by_their_critical_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = list(zip(PROMPTS[2:4], (4, 3), strict=True))
    out, db = tmp_path / "capture", tmp_path / "profile.db"
    done = command("capture", "vllm", "--tp", 2, "--workload", workload(tmp_path / "w.jsonl", requests), "--out", out)
    assert done.returncode == 0, done.stderr
    capture = open_capture(out)
    check_whole(capture, rows=20 + 16 + 4 + 3 - 2, ranks=2)
    assert (capture.record.topology.world_size, capture.record.topology.tp_size) == (2, 2)
    both = capture.invocations.pivot(on="rank", index=["iteration", "layer"], values="routed_digest")
    assert both["0"].to_list() == both["1"].to_list()
    verified(capsys, out)
    measured = command(
        "profile", "run", "--capture", out, "--db", db, "--runner", "vllm_cpu_moe", "--cache-state", "served_order",
        "--input", "exact", "--input", "iteration", "--input", "full-run", "--sampler", "counts_exact", "--passes", 6,
    )  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    report = tmp_path / "report"
    aligned = moegauge(capsys, "align", out, "--db", db, "--out", report, "--json")
    rungs = {rung["rung"]: rung for rung in aligned.json["rungs"]}
    assert sorted(rungs) == [1, 2, 3, 4, 5]
    for rung in rungs.values():
        for pair in filter(None, (rung["selected"], rung["capture_wide"])):
            assert pair["left_ns"] > 0
            assert pair["right_ns"] > 0
        assert rung["capture_wide"]["num_invocations"] == capture.record.coverage.num_iterations * NUM_LAYERS
    condition = {one["name"]: one["verdict"] for one in aligned.json["conditions"]}
    assert condition["ranks"] == "SAME"
    rows = pl.read_parquet(report / "invocation_rows.parquet")
    assert rows.height == capture.record.coverage.num_iterations * NUM_LAYERS
    assert rows["covered"].all()
    slowest = capture.invocations.sort("busy_ns").group_by("iteration", "layer").last().sort("iteration", "layer")
    served = rows.sort("iteration", "layer").select("left_ns", "left_critical_rank")
    assert served.rows() == slowest.select("busy_ns", "rank").rows()
    assert set(rows["right_critical_rank"]) <= {0, 1}


# In the test's own process


def test_serving_is_the_same_to_the_token_while_it_is_recorded(served: Served, unrecorded: list[list[int]]) -> None:
    found: list[list[int]] = []
    served.take("take-10", lambda: found.extend(served.generate(PROMPTS, OUTPUTS)))
    assert found == unrecorded


def test_ids_are_those_of_the_engines_own_capturer_in_every_iteration(served: Served) -> None:
    log = log_of(served.take("take-20", lambda: served.generate(PROMPTS, OUTPUTS)))
    ids = ids_of(log)
    assert log.head.layers == tuple(range(NUM_LAYERS))
    assert len(ids) == len(served.official) > 0
    assert sum(one.shape[1] for one in ids) == ROWS
    for ours, official in zip(ids, served.official, strict=True):
        np.testing.assert_array_equal(ours, official.transpose(1, 0, 2))
    assert len(np.unique(np.concatenate([one.reshape(-1) for one in ids]))) > 4


def test_the_operation_replayed_on_recorded_routes_gives_the_served_bits(served: Served) -> None:
    log = log_of(served.take("take-30", lambda: served.generate(PROMPTS, OUTPUTS)))
    frames = iterations(log)
    assert len(frames) == len(served.calls)
    index = log.head.layers.index(WATCHED_LAYER)
    for frame, call in zip(frames, served.calls, strict=True):
        ids, weights = (torch.tensor(one[index]) for one in frame_arrays(log.head, frame, where="test"))
        assert torch.equal(replay(call, ids, weights), bits(call.output))
        assert not torch.equal(replay(call, (ids + 1) % log.head.num_experts, weights), bits(call.output))


def bits(one: torch.Tensor) -> torch.Tensor:
    return one.contiguous().view(torch.int16)


def replay(call: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    output = torch.full_like(call.hidden_states, float("nan"))
    given = (call.w13, call.w2, None, None, weights, ids, call.activation, call.isa, False)
    cpu_fused_moe(output, call.hidden_states, *given)
    return bits(output)


def test_one_request_alone_is_recorded(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take = served.take("take-40", lambda: served.generate([PROMPTS[2]], [3]))
    capture = import_serving(take, tmp_path / "capture")
    check_whole(capture, rows=20 + 2)
    assert capture.requests is not None
    assert capture.requests.select("phase", "num_rows", "num_computed", "num_prompt").rows() == [
        ("prefill", 20, 0, 20), ("decode", 1, 20, 20), ("decode", 1, 21, 20),
    ]  # fmt: skip
    verified(capsys, capture.path)


def test_an_aborted_request_ends_and_a_batch_that_emptied_fills_again(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = served.llm.llm_engine

    def serve() -> None:
        for name, prompt, number in (("kept", PROMPTS[3], 6), ("aborted", PROMPTS[5], 50)):
            engine.add_request(name, {"prompt_token_ids": list(prompt)}, greedy(number))
        for _ in range(3):
            engine.step()
        engine.abort_request(["aborted"])
        drain(engine)
        engine.add_request("later", {"prompt_token_ids": list(PROMPTS[0])}, greedy(2))
        drain(engine)

    capture = import_serving(served.take("take-50", serve), tmp_path / "capture")
    check_whole(capture, rows=(16 + 5) + (12 + 2) + (1 + 1))
    assert capture.requests is not None
    shares = capture.requests.sort("iteration").with_columns(pl.col("request").str.split("-").list.first())
    found = {
        str(name): part.select("iteration", "num_rows", "phase").rows()
        for (name,), part in shares.group_by("request", maintain_order=True)
    }
    decodes = [(number, 1, "decode") for number in range(1, 6)]
    assert found == {
        "kept": [(0, 16, "prefill"), *decodes],
        "aborted": [(0, 12, "prefill"), *decodes[:2]],
        "later": [(6, 1, "prefill"), (7, 1, "decode")],
    }
    verified(capsys, capture.path)


def drain(engine: Any) -> None:
    while engine.has_unfinished_requests():
        engine.step()


def test_recording_starts_and_stops_while_the_engine_runs(served: Served) -> None:
    def serve() -> None:
        served.generate([PROMPTS[2]], [3])

    before = sorted(served.folder.iterdir())
    serve()
    assert sorted(served.folder.iterdir()) == before
    first = start_recording(served.folder)
    serve()
    stop_recording(served.folder)
    serve()
    second = start_recording(served.folder)
    serve()
    serve()
    stop_recording(served.folder)
    serve()
    served.llm.collective_rpc("moegauge_close")
    for take, numbers in ((first, [0, 1, 2]), (second, [0, 1, 2, 3, 4, 5])):
        log = log_of(take)
        assert [frame.number for frame in iterations(log)] == numbers
        last = log.frames[-1]
        assert isinstance(last, End)
        assert (last.num_iterations, last.num_dropped) == (len(numbers), 0)
        assert last.recorder_ns > 0


@pytest.mark.parametrize(
    "fails", [("buffers", "take"), ("buffers", "write"), ("requests", "observe"), ("kernel_choice", "observe")]
)
def test_a_recorder_that_fails_leaves_serving_alone_and_marks_the_capture(
    served: Served,
    unrecorded: list[list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: tuple[str, str],
) -> None:
    part = getattr(served.recorder, fails[0])
    works: Callable[..., Any] = getattr(part, fails[1])
    calls = {"left": 3 * (NUM_LAYERS if fails[1] == "write" or fails[0] == "kernel_choice" else 1)}

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls["left"] -= 1
        if calls["left"] < 0:
            raise OSError("no more of this")
        return works(*args, **kwargs)

    monkeypatch.setattr(part, fails[1], failing)
    found: list[list[int]] = []
    name = start_recording(served.folder).name
    served.take(name, lambda: found.extend(served.generate(PROMPTS, OUTPUTS)))
    assert served.recorder.failed == "OSError: no more of this"
    assert found == unrecorded
    status = {one.rank: one for one in read_statuses(served.folder)}[0]
    assert (status.state, status.take, status.problem) == ("failed", name, "OSError: no more of this")
    assert held_open(served.folder / name) == []
    log = log_of(served.folder / name)
    assert [type(frame) for frame in log.frames][-1] is Problem
    assert not any(isinstance(frame, End) for frame in log.frames)
    capture = import_serving(served.folder / name, tmp_path / "capture")
    assert capture.record.coverage.num_iterations == 3
    assert {finding.code: finding.examples for finding in capture.record.findings} == {
        "RECORDING_CUT": ("last whole iteration 2",),
        "RECORDER_PROBLEM": ("before iteration 3: OSError: no more of this",),
    }
    verified(capsys, capture.path)
    assert list(served.folder.glob("*.not-recorded.txt")) == []


def held_open(folder: Path) -> list[str]:
    """Files of a folder that this process holds open."""
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    return [str(link.readlink()) for link in links if link.is_symlink() and str(folder) in str(link.readlink())]


def test_after_a_failure_another_take_is_whole(served: Served, unrecorded: list[list[int]], tmp_path: Path) -> None:
    found: list[list[int]] = []
    take = served.take("take-900", lambda: found.extend(served.generate(PROMPTS, OUTPUTS)))
    assert found == unrecorded
    check_whole(import_serving(take, tmp_path / "capture"), rows=ROWS)


def test_an_unknown_word_in_the_control_file_records_nothing(served: Served) -> None:
    before = sorted(served.folder.iterdir())
    write_control(served.folder, "take")
    served.generate([PROMPTS[0]], [2])
    write_control(served.folder, "off")
    assert sorted(served.folder.iterdir()) == before
