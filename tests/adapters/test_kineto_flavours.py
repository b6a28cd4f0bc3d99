"""Kineto writes CUDA, ROCm and XPU in different words; the literal workload reads the same from each."""

from __future__ import annotations

from pathlib import Path

import pytest

from kineto_flavours import FLAVOURS, kineto
from literal_workload import BUSY_NS, CALLS, columns, expected
from moegauge import errors
from moegauge.adapters.traces.recognition import parse_trace, read_trace
from moegauge.adapters.traces.slim import write_slim
from moegauge.kernels.trace import Trace
from moegauge.timing.intervals import busy_union


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_literal_workload_reads_the_same_from_each_flavour(flavour: str) -> None:
    trace = parse_trace(kineto(flavour), source=flavour)
    assert columns(trace) == expected(FLAVOURS[flavour][2])
    assert busy_union(trace.ops.start_ns, trace.ops.end_ns) == BUSY_NS


def kernels_with_calls(trace: Trace) -> list[object]:
    return [row for row in columns(trace)["ops"] if row[0] == "KERNEL" and row[-1] is not None]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_slim_trace_keeps_the_launch_of_every_kernel(tmp_path: Path, flavour: str) -> None:
    (tmp_path / "whole.json").write_bytes(kineto(flavour))
    write_slim(tmp_path / "whole.json", tmp_path / "slim.json.gz")
    slim = kernels_with_calls(read_trace(tmp_path / "slim.json.gz"))
    assert len(slim) == 8
    assert slim == kernels_with_calls(read_trace(tmp_path / "whole.json"))


@pytest.mark.parametrize("time", [b"9999999999999999.999", b"-9999999999999999.999", b"9e300", b"9223372036854775.808"])
def test_a_time_beyond_64_bits_is_put_aside_and_counted(time: bytes) -> None:
    data = kineto("cuda")
    first = b'"cat":"kernel","name":"gemm","pid":700,"tid":701,"ts":'
    at = data.index(first) + len(first)
    trace = parse_trace(data[:at] + time + data[data.index(b",", at) :], source="far")
    assert len(trace.ops) == 8
    assert [(finding.code, finding.num) for finding in trace.findings] == [("INVALID_TIMESTAMPS", 1)]


def test_a_call_at_a_time_beyond_64_bits_is_no_call() -> None:
    data = kineto("cuda").replace(b'"ts":1714176000123457.889,"dur":0.005', b'"ts":9999999999999999.999,"dur":0.005')
    trace = parse_trace(data, source="far")
    assert len(trace.launches) == len(CALLS) - 1


@pytest.mark.parametrize("data", [b"\x7fELF", b"PK\x03\x04", b"[]", b"Kernel,Time", b" " * 5_000 + b"{}"])
def test_what_no_reader_knows_is_refused_with_the_bytes_seen(data: bytes) -> None:
    with pytest.raises(errors.MalformedFile) as caught:
        parse_trace(data, source="unknown")
    assert caught.value.found == f"{len(data)} bytes that begin with {data[:8]!r}"
