"""Traces with broken bytes, cut traces, and files that are not what their name says.

https://github.com/pytorch/pytorch/issues/136180
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from literal_bundle import EPOCH_NS, US, moegauge, write_bundle

from simulator import NAMES, TraceBuilder

BUSY_NS = 25_000


def plain_trace() -> bytes:
    """One iteration of one layer: five kernels of 5 us, 25 us together, and a python_function event."""
    trace = TraceBuilder()
    event = trace.host_scope("FUNCTION", EPOCH_NS, 90 * US)
    event["cat"] = "python_function"
    trace.host_scope("iteration I0", EPOCH_NS, 90 * US)
    for index, role in enumerate(["align_small", "gemm", "act", "gemm", "sum"]):
        correlation = trace.launch(EPOCH_NS + (1 + index) * US)
        trace.kernel(NAMES[role], EPOCH_NS + (100 + 5 * index) * US, 5 * US, correlation=correlation)
    return trace.data()


def damaged_trace() -> bytes:
    """The same with bytes 0x01 and 0x80 in the function's name."""
    return plain_trace().replace(b"FUNCTION", b"forward(\x01, \x80)")


def bundle_with(folder: Path, data: bytes, *, name: str = "serving_trace.json") -> Path:
    bundle = write_bundle(
        folder,
        steps=[{"iter": 0, "tokens": 6, "padded": 6}],
        routes=[[(0, 0, [[0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3]])]],
        traces=[None],
    )
    (bundle / name).write_bytes(data)
    return bundle


def test_broken_bytes_in_a_name_are_replaced_and_reported_and_kernels_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_with(tmp_path / "bundle", damaged_trace())
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture", "--json")
    assert shown.status == 0
    capture = shown.json["capture"]
    assert (capture["coverage"]["busy_ns"], capture["coverage"]["num_ops_in_boundary"]) == (BUSY_NS, 5)
    repaired = [finding for finding in capture["findings"] if finding["code"] == "NAMES_REPAIRED"]
    assert [(finding["num"], finding["examples"]) for finding in repaired] == [(1, ["forward(\ufffd, \ufffd)"])]


def test_a_whole_trace_reports_no_repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = bundle_with(tmp_path / "bundle", plain_trace())
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture", "--json")
    assert (shown.status, shown.json["capture"]["findings"]) == (0, [])


@pytest.mark.parametrize("percent", [1, 20, 60, 99])
def test_a_cut_trace_is_refused_with_file_and_byte_offset(
    percent: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = damaged_trace()
    cut = whole[: len(whole) * percent // 100]
    bundle = bundle_with(tmp_path / "bundle", cut)
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture")
    assert refused.status == 2
    assert "MALFORMED_FILE" in refused.err
    assert str(bundle / "serving_trace.json") in refused.err
    assert f"file ends at byte {len(cut)}" in refused.err
    assert refused.out == ""
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize("num_lost", [1, 4, 8, 9, 100])
def test_a_gzip_file_cut_anywhere_is_refused_with_file_and_byte_offset(
    num_lost: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = gzip.compress(plain_trace())[:-num_lost]
    bundle = bundle_with(tmp_path / "bundle", cut, name="serving_trace.json.gz")
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture")
    assert refused.status == 2
    assert "MALFORMED_FILE" in refused.err
    assert str(bundle / "serving_trace.json.gz") in refused.err
    assert f"after byte {len(cut)} of the file" in refused.err
    assert refused.out == ""
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("serving_trace.json.gz", plain_trace()),
        ("serving_trace.json", gzip.compress(plain_trace())),
        ("serving_trace.json.gz", gzip.compress(plain_trace())),
    ],
    ids=["plain named gz", "gzip named json", "gzip named gz"],
)
def test_content_decides_and_not_the_name(
    name: str, data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_with(tmp_path / "bundle", data, name=name)
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture", "--json")
    assert shown.status == 0
    assert shown.json["capture"]["coverage"]["busy_ns"] == BUSY_NS
