"""Chrome traces of torch.profiler, gzip included."""

from __future__ import annotations

import gzip

from kineto_flavours import FLAVOURS, kineto
from moegauge.adapters.traces.recognition import parse_trace


def seeds() -> list[bytes]:
    """One whole file a flavour, and one packed."""
    whole = [kineto(flavour) for flavour in FLAVOURS]
    return [*whole, gzip.compress(whole[0], mtime=0)]


def read(data: bytes) -> None:
    """Read what may be a trace."""
    trace = parse_trace(data, source="fuzz")
    assert (trace.ops.end_ns > trace.ops.start_ns).all()
