"""Inputs written from literal rows: bundles, kernel kinds and replays that hold what a case says and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moegauge.cli.main import run
from moegauge.kernels.registry import KernelKind, Role, Variant
from simulator import TraceBuilder

US = 1_000
"""ns of a microsecond; cases give times in us."""

EPOCH_NS = 1_714_176_000_123_456_000
"""Where a literal trace's time 0 lies."""

NUM_PASSES = 7
"""Passes of an isolated measurement; enough for an interval."""

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Outcome:
    """What a user sees of one call: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as JSON."""
        return json.loads(self.out)


def moegauge(capsys: pytest.CaptureFixture[str], *tokens: object) -> Outcome:
    """Run the command line."""
    capsys.readouterr()
    status = run([str(token) for token in tokens])
    captured = capsys.readouterr()
    return Outcome(status, captured.out, captured.err)


def literal_kind(name: str, core: Sequence[str]) -> KernelKind:
    """A kind whose invocations are exactly these kernels, by name, without a prefix."""
    roles = tuple(
        Role(name=one, stage="experts", pattern=re.compile(f"^{re.escape(one)}$"), exclusive=True)
        for one in dict.fromkeys(core)
    )
    variant = Variant(name="only", prefix=(), condition="always", applies=lambda shape: True, confirmed_by_trace=True)
    return KernelKind(
        name=name,
        backend="declared by the test",
        numeric_formats=("bfloat16",),
        boundary=("experts",),
        roles=roles,
        core=tuple(core),
        variants=(variant,),
        confirmed=True,
    )


def write_bundle(
    folder: Path,
    *,
    steps: list[dict[str, Any]],
    routes: Sequence[Sequence[tuple[int, int, Rows]] | None],
    traces: Sequence[TraceBuilder | bytes | None],
    num_experts: int = 8,
    top_k: int = 2,
    ids_type: type[np.integer[Any]] = np.int32,
    **meta: object,
) -> Path:
    """Write a bundle.

    Args:
        folder: to make. steps: of meta.json. meta: other fields of it.
        routes: for each rank (iteration, layer, rows of ids), or None for no file.
        traces: for each rank its serving trace, or None for no file.
        num_experts, top_k: of the model. ids_type: integer type of the ids in the file.
    """
    folder.mkdir(parents=True)
    config = {
        "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": num_experts, "num_experts_per_tok": top_k,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    world_size = len(traces)
    sizes = {"ranks": world_size} if world_size > 1 else {}
    (folder / "meta.json").write_text(json.dumps({"config": config, "steps": steps} | sizes | meta))
    for rank, (table, trace) in enumerate(zip(routes, traces, strict=True)):
        prefix = f"rank{rank}." if world_size > 1 else ""
        if table is not None:
            np.savez(folder / f"{prefix}routing.npz", **routing_arrays(table, top_k=top_k, ids_type=ids_type))
        if trace is not None:
            data = trace if isinstance(trace, bytes) else trace.data()
            (folder / f"{prefix}serving_trace.json").write_bytes(data)
    return folder


def routing_arrays(
    table: Sequence[tuple[int, int, Rows]], *, top_k: int, ids_type: type[np.integer[Any]] = np.int32
) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of routing.npz from literal rows."""
    ids = [row for _, _, rows in table for row in rows]
    return {
        "meta": np.array([(i, layer, len(rows)) for i, layer, rows in table], dtype=np.int32).reshape(-1, 3),
        "ids": np.array(ids, dtype=ids_type) if ids else np.zeros((0, top_k), dtype=ids_type),
    }


def import_passes(
    capsys: pytest.CaptureFixture[str],
    capture: Path,
    replay: Callable[[int], Iterable[TraceBuilder]],
    *,
    name: str = "replay",
) -> Path:
    """Import seven passes of an isolated measurement beside the capture; returns the database.

    Args:
        replay: from a pass's time offset in ns to its traces, one a rank.
        name: of the trace files, different for each call.
    """
    db = capture.parent / "profile.db"
    for number in range(NUM_PASSES):
        paths = []
        for rank, trace in enumerate(replay(number * 10**10)):
            paths.append(capture.parent / f"{name}-{number}-rank{rank}.json")
            paths[-1].write_bytes(trace.data())
        done = moegauge(capsys, "profile", "import", capture, *paths, "--db", db)
        assert done.status == 0, done.err
    return db


def replay_of(
    invocations: Iterable[tuple[int, int, Sequence[tuple[str, int]]]],
    *,
    offset_ns: int = 0,
    rank: int = 0,
    ranks: int = 1,
) -> TraceBuilder:
    """An eager replay of literal invocations: (iteration, layer, kernels with their ns), one after the other."""
    trace = TraceBuilder(pid=900 + rank, device=rank, rank=rank, world_size=ranks)
    now = EPOCH_NS + 10**9 + offset_ns
    for iteration, layer, kernels in invocations:
        begin = now
        trace.host_scope(f"exact L{layer} I{iteration}", begin, 9)
        for name, length in kernels:
            trace.kernel(name, now, length, correlation=trace.launch(begin + 1))
            now += length
        now += 10_000
    return trace
