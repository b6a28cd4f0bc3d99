"""A cache state that was claimed and not achieved: the bytes between two uses of a weight decide, not the word.

https://github.com/flashinfer-ai/flashinfer/issues/4468
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, literal_kind, moegauge, replay_of, write_bundle

from fake_runner import FakeRunner
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import (
    ModelSpec,
    ProfiledTimes,
    RunCondition,
    Work,
    bytes_between_uses,
    check_cache_claim,
)
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.jobs import profile_run
from moegauge.kernels.registry import KINDS
from moegauge.kernels.scopes import ScopeTags
from moegauge.records.identity import ModelShape
from simulator import Recording, TraceBuilder

L2_BYTES = 50_000_000
COPY_BYTES = 3_996_000
"""4 MB, as near as the three matrices of an expert come: 3 x 666 x 1000 bfloat16."""

SHAPE = ModelShape(hidden_size=1000, intermediate_size=666, num_experts=1, top_k=1)


def touched(*, calls: int, copies: int) -> int:
    """Bytes between two uses of a copy, for an iteration of so many calls that take so many copies in turn."""
    model = ModelSpec(
        shape=SHAPE, num_local_experts=1, numeric_format="bfloat16", layers=tuple(range(calls)), num_weight_sets=copies,
        seed=0,
    )  # fmt: skip
    return bytes_between_uses(model, [work(layer) for layer in range(calls)])


def work(layer: int, ids: Sequence[Sequence[int]] = ((0,),), iteration: int = 0) -> Work:
    return Work(
        iteration=iteration, layer=layer, rank=0, topk_ids=np.array(ids, dtype=np.int32), topk_weights=None,
        expert_map=None,
    )  # fmt: skip


def test_five_calls_of_thirteen_copies_touch_20_mb_and_13_calls_52_mb() -> None:
    assert touched(calls=1, copies=13) == COPY_BYTES
    assert touched(calls=5, copies=13) == 19_980_000
    assert touched(calls=13, copies=13) == 51_948_000


def test_a_call_that_rotates_nothing_touches_one_copy() -> None:
    assert touched(calls=13, copies=1) == COPY_BYTES


@pytest.mark.parametrize("state", ["cold", "rotated", "in_order"])
def test_20_mb_in_a_cache_of_50_mb_is_warm_whatever_it_is_called(state: str) -> None:
    with pytest.raises(errors.MisuseError) as refused:
        check_cache_claim(state, touched_bytes=touched(calls=5, copies=13), cache_bytes=L2_BYTES)
    assert refused.value.where == f"--cache-state {state}"
    assert refused.value.expected == "more bytes touched between two uses than the last-level cache holds (50000000)"
    assert refused.value.found == "19980000 bytes: in truth that is warm"


@pytest.mark.parametrize("state", ["cold", "rotated", "in_order"])
@pytest.mark.parametrize(("num_bytes", "achieved"), [(50_000_000, False), (50_000_001, True), (51_948_000, True)])
def test_only_more_bytes_than_the_cache_holds_push_everything_out(state: str, num_bytes: int, achieved: bool) -> None:
    if achieved:
        check_cache_claim(state, touched_bytes=num_bytes, cache_bytes=L2_BYTES)
    else:
        with pytest.raises(errors.MisuseError):
            check_cache_claim(state, touched_bytes=num_bytes, cache_bytes=L2_BYTES)


def test_warm_may_be_said_of_any_bytes_and_nothing_else_of_a_cache_of_unknown_size() -> None:
    check_cache_claim("warm", touched_bytes=COPY_BYTES, cache_bytes=L2_BYTES)
    check_cache_claim("warm", touched_bytes=COPY_BYTES, cache_bytes=None)
    with pytest.raises(errors.MisuseError, match="cache holds \\(None\\)"):
        check_cache_claim("rotated", touched_bytes=51_948_000, cache_bytes=None)


def test_only_experts_that_a_token_uses_are_touched_and_the_smallest_iteration_counts() -> None:
    shape = ModelShape(hidden_size=1000, intermediate_size=666, num_experts=8, top_k=2)
    model = ModelSpec(
        shape=shape, num_local_experts=8, numeric_format="bfloat16", layers=(0, 1), num_weight_sets=2, seed=0
    )
    large = [work(layer, [[0, 1], [2, 3]]) for layer in (0, 1)]
    small = [work(layer, [[0, 1], [1, -1]], iteration=1) for layer in (0, 1)]
    assert bytes_between_uses(model, large) == 2 * 4 * COPY_BYTES
    assert bytes_between_uses(model, [*large, *small]) == 2 * 2 * COPY_BYTES


# The same through the command line: refused, or said to be warm and then held against serving

KIND = literal_kind("one_kernel", ["moe_kernel"])
FLUSH = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<double>>"


class Flushing(FakeRunner):
    """Runs a kernel of 10 us, after a flush of 30 us where the cache shall be cold; five calls an iteration."""

    num_flushes = 0

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        flush_bytes = 4 * L2_BYTES
        num_bytes = flush_bytes if condition.cache_state == "cold" else touched(calls=5, copies=13)
        check_cache_claim(condition.cache_state, touched_bytes=num_bytes, cache_bytes=L2_BYTES)
        return {"cache_state": condition.cache_state}

    def run_pass(self, works: Sequence[Work], condition: RunCondition) -> ProfiledTimes:
        trace = TraceBuilder()
        now = EPOCH_NS
        for one in works:
            if condition.cache_state == "cold":
                trace.kernel(FLUSH, now, 30 * US, correlation=trace.launch(now - 5))
                self.num_flushes += 1
                now += 30 * US
            trace.host_scope(f"measured L{one.layer} I{one.iteration}", now, 9)
            trace.kernel("moe_kernel", now, 10 * US, correlation=trace.launch(now + 1))
            now += 10 * US
        tags = ScopeTags(frozenset(), frozenset({"measured"}))
        return ProfiledTimes(parse_kineto(trace.data(), source="fake pass"), tags, event_ns=1)


@pytest.fixture
def capture(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """One iteration of five layers of one kernel; serving is recorded to have found the weights cold."""
    monkeypatch.setitem(KINDS, KIND.name, KIND)
    monkeypatch.setitem(profile_run.RUNNERS, "flushing", (KIND.name, KIND.backend, "flushing", "Flushing", False))
    layers = range(5)
    trace = replay_of([(0, layer, [("moe_kernel", 10 * US)]) for layer in layers])
    for event in trace.events:
        event["name"] = event["name"].replace("exact L", "moe L")
    trace.host_scope("iteration I0", EPOCH_NS + 10**9, 10**6)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1, "graph": False}],
        routes=[[(0, layer, [[layer, layer + 1]]) for layer in layers]],
        traces=[trace],
        conditions={"cache_state": "cold"},
    )
    done = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", tmp_path / "capture")
    assert done.status == 0, done.err
    return tmp_path / "capture"


def measured(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, state: str
) -> tuple[Outcome, Flushing]:
    runner = Flushing(Recording(), kernel_kind=KIND.name, backend=KIND.backend)
    monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: runner)
    db = capture.parent / "profile.db"
    ways = ("--runner", "flushing", "--cache-state", state, "--passes", 7, "--json")
    return moegauge(capsys, "profile", "run", "--capture", capture, "--db", db, *ways), runner


@pytest.mark.parametrize("state", ["rotated", "in_order"])
def test_a_state_that_was_not_achieved_is_refused_and_nothing_is_measured(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    outcome, _ = measured(capture, capsys, monkeypatch, state)
    assert outcome.status == 2
    assert outcome.json["error"]["found"] == "19980000 bytes: in truth that is warm"
    assert not (capture.parent / "profile.db").exists()


def test_warm_rows_say_so_and_differ_from_what_serving_found(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, runner = measured(capture, capsys, monkeypatch, "warm")
    assert (outcome.status, outcome.json["num_measured"], runner.num_flushes) == (0, 35, 0)
    listed = moegauge(capsys, "profile", "list", capture.parent / "profile.db", "--json").json
    assert [row["key"]["setting"]["conditions"]["cache_state"]["value"] for row in listed] == ["warm"] * 5
    answer = aligned(capture, capsys)
    assert answer.status == 2
    rung = answer.json["rungs"][0]
    assert (rung["status"], rung["reason"]["code"]) == ("INCONCLUSIVE", "CONDITION_DIFFERS")
    assert "cache_state differs between the sides" in rung["reason"]["sentence"]


def test_the_time_of_a_flush_is_not_in_the_time_of_the_kernel(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, runner = measured(capture, capsys, monkeypatch, "cold")
    assert (outcome.status, outcome.json["num_measured"], runner.num_flushes) == (0, 35, 35)
    with open_profile_db(capture.parent / "profile.db") as database:
        samples = database.samples()
    assert samples["busy_ns"].to_list() == [10_000] * 35
    assert samples["span_ns"].to_list() == [10_000] * 35
    assert samples["num_kernels"].to_list() == [1] * 35
    pair: dict[str, Any] = aligned(capture, capsys).json["rungs"][1]["capture_wide"]
    assert (pair["status"], pair["left_ns"], pair["right_ns"]) == ("MATCH", 50_000, 50_000)


def aligned(capture: Path, capsys: pytest.CaptureFixture[str]) -> Outcome:
    out = capture.parent / "report"
    return moegauge(capsys, "align", capture, "--db", capture.parent / "profile.db", "--out", out, "--json")
