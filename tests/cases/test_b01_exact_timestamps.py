"""Time stamps too long for a double are read as they are written.

https://github.com/pytorch/kineto/pull/919
https://github.com/AMD-AGI/TraceLens/pull/904
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from literal_bundle import literal_kind, moegauge, write_bundle

from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.registry import KINDS
from moegauge.timing.intervals import occupancy

# The decimal text stands here as a profiler writes it: at this size a double steps by a quarter of a microsecond.
TRACE = """{"traceEvents": [
 {"ph": "X", "cat": "gpu_user_annotation", "name": "iteration I0", "pid": 0, "tid": 7, "ts": BASE456.000,
  "dur": 10.000, "args": {}},
 {"ph": "X", "cat": "kernel", "name": "up", "pid": 0, "tid": 7, "ts": BASE456.789, "dur": 1.100,
  "args": {"device": 0, "stream": 7}},
 {"ph": "X", "cat": "kernel", "name": "down", "pid": 0, "tid": 7, "ts": BASE457.889, "dur": 1.100,
  "args": {"device": 0, "stream": 7}}
]}"""


@pytest.mark.parametrize("base", ["1714176000123", "17141760", "1"])
def test_neighbouring_kernels_touch_whatever_the_base(base: str) -> None:
    ops = parse_kineto(TRACE.replace("BASE", base).encode(), source="trace.json").ops
    taken = occupancy(np.zeros(2, dtype=np.int64), ops.start_ns, ops.end_ns, num_groups=1)
    assert taken.busy_ns.tolist() == [2200]
    assert taken.sum_ns.tolist() == [2200]  # equal to the union: overlap is 0
    assert taken.gap_ns.tolist() == [0]
    assert (ops.end_ns - ops.start_ns).tolist() == [1100, 1100]
    assert int(ops.start_ns[1] - ops.end_ns[0]) == 0


def test_the_absolute_time_is_kept_to_the_nanosecond() -> None:
    ops = parse_kineto(TRACE.replace("BASE", "1714176000123").encode(), source="trace.json").ops
    assert ops.start_ns.tolist() == [1_714_176_000_123_456_789, 1_714_176_000_123_457_889]


def test_the_capture_holds_2200_ns_without_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "pair", literal_kind("pair", ["up", "down"]))
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [[3, 7]])]],
        traces=[TRACE.replace("BASE", "1714176000123").encode()],
    )
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", "pair", "--out", tmp_path / "c", "--json")
    assert shown.status == 0
    coverage = shown.json["capture"]["coverage"]
    assert (coverage["busy_ns"], coverage["span_ns"]) == (2200, 2200)
    row = pl.read_parquet(tmp_path / "c" / "invocations.parquet").row(0, named=True)
    assert (row["busy_ns"], row["span_ns"], row["gap_ns"]) == (2200, 2200, 0)
