"""Databases of Nsight Systems and rocprofv3."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nsys_database
import rocpd_database
from moegauge.adapters.traces.recognition import parse_trace


def seeds() -> list[bytes]:
    """One whole database of each profiler."""
    with tempfile.TemporaryDirectory() as folder:
        nsys = nsys_database.nsys_database(Path(folder) / "nsys", nsys_database.workload())
        rocpd = rocpd_database.workload(Path(folder) / "rocpd").close()
        return [nsys.read_bytes(), rocpd.read_bytes()]


def read(data: bytes) -> None:
    """Read what may be a database."""
    trace = parse_trace(data, source="fuzz")
    assert (trace.ops.end_ns > trace.ops.start_ns).all()
