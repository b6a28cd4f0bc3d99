"""One small workload, literal: two iterations of two layers, with an overlap, a foreign stream and a graph launch.

Every format of recordings writes it in its own way; all have to read as the same columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moegauge.kernels.trace import OpKind, Trace

BASE = 1_714_176_000_123_456_789
"""ns; a double near it steps by 256 ns."""

OPS = [
    # name, stream, start, end, correlation
    ("gemm", 7, 10_000, 14_000, 1),
    ("act", 7, 13_500, 15_000, 2),  # begins before the kernel it depends on has ended
    ("gemm", 7, 16_000, 20_001, 3),
    ("act", 7, 20_001, 21_000, 4),
    ("Memcpy DtoD", 20, 12_000, 17_000, 5),
    ("gemm", 7, 110_000, 113_000, 6),
    ("act", 7, 112_000, 114_500, 6),
    ("gemm", 7, 116_000, 119_000, 6),
    ("act", 7, 119_500, 120_007, 6),
]
CALLS = [("launch", 1_100, 1), ("launch", 1_200, 2), ("launch", 1_300, 3), ("launch", 1_400, 4), ("copy", 1_250, 5),
         ("graph", 101_000, 6)]  # fmt: skip
RANGES = [("iteration I0", 1_000, 9_000), ("iteration I1", 100_000, 109_000)]

BUSY_NS = 19_007
"""10000..21000 without a hole, 110000..114500, 116000..119000 and 119500..120007."""


def columns(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    """What a trace says, in a form without its own numbering; times from BASE."""
    ops, calls, names = trace.ops, trace.launches, trace.names
    called = [
        (names[name], start - BASE, correlation)
        for name, start, correlation in zip(
            *(c.tolist() for c in (calls.name, calls.start_ns, calls.correlation)), strict=True
        )
    ]
    rows = zip(
        *(c.tolist() for c in (ops.kind, ops.device, ops.stream, ops.start_ns, ops.end_ns, ops.name, ops.launch)),
        strict=True,
    )
    scopes = trace.host_scopes
    return {
        "ops": sorted(
            (OpKind(kind).name, device, stream, start - BASE, end - BASE, names[name], called[at] if at >= 0 else None)
            for kind, device, stream, start, end, name, at in rows
        ),
        "calls": sorted(called),
        "ranges": sorted(
            (names[name], start - BASE, end - BASE)
            for name, start, end in zip(
                *(c.tolist() for c in (scopes.name, scopes.start_ns, scopes.end_ns)), strict=True
            )
        ),
        "dtypes": sorted({str(column.dtype) for column in (ops.start_ns, ops.end_ns, calls.start_ns, scopes.start_ns)}),
        "processes": sorted(np.unique(np.concatenate([calls.process, scopes.place])).tolist()),
    }


def expected(names: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    """What every format has to say; ``names`` gives its words for launch, copy and graph."""
    called = {c: (names[name], start, c) for name, start, c in CALLS}
    return {
        "ops": sorted(
            ("MEMCPY" if "Memcpy" in name else "KERNEL", 0, stream, start, end, name, called[c])
            for name, stream, start, end, c in OPS
        ),
        "calls": sorted(called.values()),
        "ranges": sorted(RANGES),
        "dtypes": ["int64"],  # type: ignore[list-item]
        "processes": [0],  # type: ignore[list-item]
    }
