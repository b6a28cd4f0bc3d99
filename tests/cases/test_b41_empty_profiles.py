"""A profile without the subject's kernels is an error, never a time of 0 and never a ratio.

https://github.com/deepseek-ai/DeepGEMM/pull/426
https://github.com/intel/torch-xpu-ops/issues/3985
"""

from __future__ import annotations

from pathlib import Path

import pytest
from literal_bundle import EPOCH_NS, US, import_passes, literal_kind, moegauge, replay_of, write_bundle

from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.registry import KINDS
from moegauge.ladder.judgement import relative_interval
from simulator import NAMES, Recording, TraceBuilder


def launches_only(annotation: str) -> bytes:
    """Three launch calls inside the annotation, no device row at all."""
    trace = TraceBuilder()
    trace.host_scope(annotation, EPOCH_NS, 90 * US)
    for index in range(3):
        trace.launch(EPOCH_NS + (1 + index) * US)
    return trace.data()


def other_kernels(annotation: str) -> bytes:
    """Kernels, but none of the registered kind."""
    trace = TraceBuilder()
    trace.host_scope(annotation, EPOCH_NS, 90 * US)
    for index, name in enumerate([NAMES["norm"], "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"]):
        correlation = trace.launch(EPOCH_NS + (1 + index) * US)
        trace.kernel(name, EPOCH_NS + (100 + 10 * index) * US, 5 * US, correlation=correlation)
    return trace.data()


def xpu_copies_only(annotation: str) -> bytes:
    """What an XPU session without kernel rows leaves: copies, with a SYCL queue in place of a stream."""
    trace = TraceBuilder()
    trace.host_scope(annotation, EPOCH_NS, 90 * US)
    correlation = trace.launch(EPOCH_NS + US, name="urEnqueueUSMMemcpy")
    trace.events[-1]["cat"] = "xpu_runtime"
    copy = trace.kernel("Memcpy M2D", EPOCH_NS + 100 * US, 5 * US, correlation=correlation, cat="gpu_memcpy")
    copy["args"] = {"device": 0, "correlation": correlation, "sycl queue": 64, "l0 queue": "0x1"}
    return trace.data()


PROFILES = pytest.mark.parametrize(
    ("profile", "said"),
    [
        (launches_only, "no kernel records (3 launch calls, 0 rows without usable time stamps)"),
        (other_kernels, "no kernel matched {}; seen: ['nvjet_tst_64x8_64x16_4x1_v_bz_TNT', 'void vllm"),
        (xpu_copies_only, "no kernel matched {}; seen: ['Memcpy M2D']"),
    ],
    ids=["launch rows only", "other kernels", "XPU copies only"],
)


@PROFILES
@pytest.mark.parametrize("named", [False, True], ids=["kind taken from the trace", "kind given"])
def test_a_serving_trace_without_the_subject_is_refused(
    profile, said: str, named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [[0, 1]])]],
        traces=[profile("iteration I0")],
    )
    kind = ["--kind", "vllm_triton_moe"] if named else []
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, *kind, "--out", tmp_path / "capture")
    assert (refused.status, refused.out) == (2, "")
    assert "INCOMPLETE" in refused.err
    assert said.format("vllm_triton_moe" if named else "any of them") in refused.err
    assert not (tmp_path / "capture").exists()


@PROFILES
def test_a_replay_trace_without_the_subject_is_refused(
    profile, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "capture"
    bundle = Recording().write(tmp_path / "bundle")
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--out", capture).status == 0
    replay = tmp_path / "replay.json"
    replay.write_bytes(profile("exact L0 I0"))
    refused = moegauge(capsys, "profile", "import", capture, replay, "--db", tmp_path / "profile.db")
    assert (refused.status, refused.out) == (2, "")
    assert said.format("vllm_triton_moe") in refused.err
    assert not (tmp_path / "profile.db").exists()


def test_an_xpu_row_stands_on_its_sycl_queue() -> None:
    ops = parse_kineto(xpu_copies_only("iteration I0"), source="trace.json").ops
    assert (ops.device.tolist(), ops.stream.tolist()) == ([0], [64])


def test_relative_to_a_left_side_of_0_is_undefined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = literal_kind("one_a_layer", ["fused_moe"])
    monkeypatch.setitem(KINDS, kind.name, kind)
    trace = TraceBuilder()
    for iteration in (0, 1):
        trace.device_scope(f"iteration I{iteration}", EPOCH_NS + iteration * 1000 * US, 500 * US)
    trace.kernel("fused_moe", EPOCH_NS + 1100 * US, 50 * US)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 0, "rank_tokens": [0]}, {"iter": 1, "tokens": 1, "rank_tokens": [1]}],
        routes=[[(1, 0, [[0, 1]])]],
        traces=[trace],
    )
    capture = tmp_path / "capture"
    assert moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", kind.name, "--out", capture).status == 0
    work = [(1, 0, [("fused_moe", 50 * US)])]
    db = import_passes(capsys, capture, lambda offset: [replay_of(work, offset_ns=offset)])
    select = ("--select", "iteration=0,layer=0")
    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", *select, "--json")
    assert answer.status == 2
    selected = answer.json["rungs"][0]["selected"]
    assert (selected["status"], selected["reason"]["code"]) == ("UNAVAILABLE", "LEFT_IS_ZERO")
    assert "the relative difference is undefined" in selected["reason"]["sentence"]
    assert (selected["left_ns"], selected["relative_ratio"], selected["interval_ratio"]) == (0, None, None)
    assert "NaN" not in answer.out
    assert "Infinity" not in answer.out


def test_an_interval_relative_to_0_is_none() -> None:
    assert relative_interval(0, []) is None
