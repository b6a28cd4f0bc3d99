"""Kineto writes CUDA, ROCm and XPU in different words; the literal workload reads the same from each."""

from __future__ import annotations

from pathlib import Path

import pytest

from kineto_flavours import FLAVOURS, kineto
from literal_workload import BUSY_NS, columns, expected
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
