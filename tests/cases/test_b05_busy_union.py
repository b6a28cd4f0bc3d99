"""Concurrent streams of one device are united, never added; devices are never merged.

https://github.com/GindaChen/nsys-ai/issues/574
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, literal_kind, moegauge, write_bundle

from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.registry import KINDS
from moegauge.timing.intervals import busy_union, occupancy
from simulator import TraceBuilder

# device, stream, start and end in us; not in order of start
CONCURRENT = [(0, 9, 90, 130), (1, 7, 0, 40), (0, 7, 0, 100), (0, 9, 20, 80)]


def test_streams_of_a_device_are_united_and_devices_stay_apart() -> None:
    trace = TraceBuilder()
    for device, stream, start, end in CONCURRENT:
        trace.device = device
        trace.kernel("k", EPOCH_NS + start * US, (end - start) * US, stream=stream)
    ops = parse_kineto(trace.data(), source="trace.json").ops
    taken = occupancy(ops.device, ops.start_ns, ops.end_ns, num_groups=2)
    assert taken.busy_ns.tolist() == [130_000, 40_000]
    assert taken.sum_ns.tolist() == [200_000, 40_000]


def test_every_input_order_gives_the_same_union() -> None:
    for order in permutations(CONCURRENT):
        device, _, start, end = np.array(order, dtype=np.int64).T
        assert occupancy(device, start * US, end * US, num_groups=2).busy_ns.tolist() == [130_000, 40_000]


@pytest.mark.parametrize(
    ("intervals", "union"),
    [
        ([(0, 60), (50, 100)], 100),  # a PDL pair: the second starts before the first ends
        ([(0, 10), (10, 20)], 20),  # touching
        ([(0, 10), (0, 10)], 10),  # twice the same
        ([(0, 100), (10, 20), (30, 40), (90, 120)], 120),  # nested, then beyond
        ([(0, 10), (30, 40)], 20),  # a gap counts for nothing
    ],
)
def test_the_union_of_literal_intervals(intervals: list[tuple[int, int]], union: int) -> None:
    for order in permutations(intervals):
        start, end = np.array(order, dtype=np.int64).T
        assert busy_union(start, end) == union


def test_a_pdl_pair_is_100_us_in_the_capture_whatever_the_order_of_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "pdl_pair", literal_kind("pdl_pair", ["producer", "consumer"]))
    trace = TraceBuilder()
    trace.device_scope("iteration I0", EPOCH_NS, 1000 * US)
    for layer in range(3):
        begin = EPOCH_NS + layer * 200 * US
        trace.kernel("producer", begin, 60 * US)
        trace.kernel("consumer", begin + 50 * US, 50 * US)
    trace.events = trace.events[4:] + trace.events[3::-1]
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, layer, [[0, 1]]) for layer in range(3)]],
        traces=[trace],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", "pdl_pair", "--out", capture, "--json")
    assert shown.json["capture"]["coverage"]["busy_ns"] == 300_000
    rows = pl.read_parquet(capture / "invocations.parquet")
    assert rows["busy_ns"].to_list() == [100_000, 100_000, 100_000]
    assert rows["gap_ns"].to_list() == [0, 0, 0]
