"""Times of synchronous host calls, read on the host's monotonic clock, as a trace.

Each call is one operation on device 0, stream 0. The annotations around it are what the recorder saw: which layer it
called, and in which iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moegauge.kernels.registry import host_operation
from moegauge.kernels.trace import NONE, InvalidOps, Launches, OpKind, Ops, Scopes, Trace
from moegauge.records.recording import Head, IterationFrame


def host_clock_trace(head: Head, frames: Sequence[IterationFrame], *, source: str) -> Trace:
    """A trace of the calls that frames of one rank hold.

    Args:
        head: of the rank. frames: its iterations. source: for messages.
    """
    names = [host_operation(head.kernel_kind or "") or head.experts_class]
    calls: list[tuple[int, int]] = []
    scopes: list[tuple[int, int, int]] = []
    for frame in frames:
        scopes.append((frame.start_ns, frame.end_ns, _add(names, f"iteration I{frame.number}")))
        for index, (start, end) in zip(frame.timed_layers, frame.intervals_ns or (), strict=True):
            calls.append((start, end))
            scopes.append((start, end, _add(names, f"moe L{head.layers[index]} I{frame.number}")))
    times = np.array(calls, dtype=np.int64).reshape(-1, 2)
    places = np.array(scopes, dtype=np.int64).reshape(-1, 3)
    zeros, empty = np.zeros(len(times), dtype=np.int64), np.empty(0, dtype=np.int64)
    nowhere = Scopes(place=empty, start_ns=empty, end_ns=empty, name=empty)
    here = np.zeros(len(places), dtype=np.int64)
    return Trace(
        source=source,
        rank=head.rank,
        world_size=head.world_size,
        facts={},
        names=names,
        ops=Ops(
            kind=np.full(len(times), int(OpKind.KERNEL), dtype=np.int64),
            device=zeros,
            stream=zeros,
            start_ns=times[:, 0],
            end_ns=times[:, 1],
            name=zeros,
            launch=np.full(len(times), NONE, dtype=np.int64),
        ),
        invalid=InvalidOps(name=empty, launch=empty, raw=()),
        launches=Launches(process=empty, start_ns=empty, name=empty, correlation=empty, owner=empty),
        host_scopes=nowhere,
        device_scopes=Scopes(place=here, start_ns=places[:, 0], end_ns=places[:, 1], name=places[:, 2]),
        streams=[(0, 0)],
        findings=(),
    )


def _add(names: list[str], name: str) -> int:
    names.append(name)
    return len(names) - 1
