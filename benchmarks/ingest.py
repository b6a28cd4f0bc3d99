"""Read a Kineto trace and add up its busy union, against Holistic Trace Analysis and a bare decode of the same bytes.

    scripts/environment benchmarks
    python benchmarks/ingest.py --peer .venv-benchmarks/bin/python
    python benchmarks/ingest.py --small            a few thousand events, without the peer, for continuous integration

Traces: the bundled one of an H200, one of 1 million events as torch.profiler writes them (synthetic_trace.py), and one
of 5 million, which moegauge alone reads. Each reading is a process of its own; the rounds are interleaved.

- `moegauge`: read_kineto, then the busy union of each device.
- `HTA`: TraceAnalysis of a folder that holds the file alone, then get_temporal_breakdown, which merges the kernels.
- `msgspec`: the file's bytes decoded to typed events that keep nothing but the nine fields that matter; no trace is
  made of them. Without the garbage collector's share, which is the faster way to do it.

The busy time each finds is printed: HTA rounds every time stamp down to a whole us before it adds anything up.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from child import Measured, machine, report, rounds
from synthetic_trace import write_trace

import moegauge
from moegauge.adapters.traces.kineto import read_kineto
from moegauge.timing.intervals import occupancy

BUNDLED = Path(moegauge.__file__).parent / "bundled/h200-qwen3-live/capture/raw/rank0.trace-0.json.gz"
TARGET_SPEEDUP, TARGET_MEMORY, TARGET_DECODE = 20.0, 0.25, 3.0

HTA = """
import contextlib, io, json, logging, resource, sys, time
logging.disable(logging.CRITICAL)
from importlib.metadata import version
from hta.trace_analysis import TraceAnalysis
start = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()):
    table = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
seconds = time.perf_counter() - start
busy_us = float((table["kernel_time(us)"] - table["idle_time(us)"]).sum())
found = {"busy_ns": round(busy_us * 1000), "version": version("HolisticTraceAnalysis")}
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print()
print(json.dumps({"found": found, "seconds": seconds, "peak_bytes": peak * 1024}))
"""


def ours(path: Path) -> dict[str, Any]:
    """Read the trace; the busy union over its devices."""
    ops = read_kineto(path).ops
    devices, group = np.unique(ops.device, return_inverse=True)
    taken = occupancy(group, ops.start_ns, ops.end_ns, num_groups=len(devices))
    return {"busy_ns": int(taken.busy_ns.sum()), "num_ops": len(ops)}


def bare_decode(path: Path) -> dict[str, Any]:
    """Decode the bytes to typed events and drop them."""
    import msgspec  # noqa: PLC0415 - only the child that measures it loads it this way
    from isal import igzip  # noqa: PLC0415

    number = int | float | str | None
    args = [
        ("correlation", number, None),
        ("device", number, None),
        ("stream", number, None),
        ("external", number, None),
    ]
    kept = msgspec.defstruct("Args", args, rename={"external": "External id"}, gc=False)
    text, event = str | None, "Event"
    fields = [
        ("ph", text, None),
        ("cat", text, None),
        ("name", text, None),
        ("pid", number, None),
        ("tid", number, None),
    ]
    fields += [("ts", float | None, None), ("dur", float | None, None), ("args", kept | None, None)]
    file = msgspec.defstruct("File", [("traceEvents", list[msgspec.defstruct(event, fields, gc=False)])])  # type: ignore[misc]
    data = path.read_bytes()
    events = msgspec.json.decode(igzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=file).traceEvents
    return {"num_events": len(events)}


CHILDREN = {"moegauge": ours, "msgspec": bare_decode}


def commands(path: Path, folder: Path, peer: str | None, names: tuple[str, ...]) -> dict[str, list[str]]:
    """What to run on one trace."""
    found = {name: [sys.executable, __file__, "--child", name, str(path)] for name in names}
    if peer is not None:
        alone = folder / f"hta-{path.name.split('.')[0]}"
        alone.mkdir()
        shutil.copy(path, alone / ("rank0.json.gz" if path.suffix == ".gz" else "rank0.json"))
        found["HTA"] = [peer, "-c", HTA, str(alone)]
    return found


def show(title: str, told: dict[str, Measured]) -> None:
    """Print one trace's table and ratios."""
    mine = told["moegauge"]
    print(f"\n{title}")
    print(f"  {'':10}{'s, median':>11}{'least':>9}{'most':>9}{'peak bytes':>16}   busy ns")
    for name, one in told.items():
        spread = f"{min(one.seconds):9.3f}{max(one.seconds):9.3f}{one.median_bytes:16.0f}"
        print(f"  {name:10}{one.median_s:11.3f}{spread}   {one.found.get('busy_ns', '-')}")
    if "HTA" in told:
        hta = told["HTA"]
        print(f"  HTA {hta.found['version']} / moegauge: time {hta.median_s / mine.median_s:.1f}, ", end="")
        print(f"memory {hta.median_bytes / mine.median_bytes:.1f}")
    if "msgspec" in told:
        print(f"  moegauge / msgspec decode: time {mine.median_s / told['msgspec'].median_s:.2f}, ", end="")
        print(f"memory {mine.median_bytes / told['msgspec'].median_bytes:.2f}")


def judge(told: dict[str, Measured]) -> None:
    """Hold the ratios of the 1 million events against the targets."""
    mine, bare = told["moegauge"], told["msgspec"]
    rows = [("at most 3 x a bare decode", mine.median_s / bare.median_s <= TARGET_DECODE)]
    if "HTA" in told:
        hta = told["HTA"]
        rows += [
            ("at least 20 x faster than HTA", hta.median_s / mine.median_s >= TARGET_SPEEDUP),
            ("at most a quarter of HTA's memory", mine.median_bytes / hta.median_bytes <= TARGET_MEMORY),
        ]
    for text, met in rows:
        print(f"  target {text}: {'met' if met else 'NOT met'}")


def main() -> None:
    """Run, print, compare with the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="3000 events, one round")
    parser.add_argument("--peer", help="a Python that has HolisticTraceAnalysis (scripts/environment benchmarks)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--child", nargs=2, metavar=("NAME", "TRACE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        name, path = given.child
        report(lambda: CHILDREN[name](Path(path)))
        return
    repetitions = 1 if given.small else given.repetitions
    print(f"{machine()}, msgspec {version('msgspec')}; {repetitions} interleaved rounds")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        told = rounds(commands(BUNDLED, folder, given.peer, tuple(CHILDREN)), repetitions)
        show(f"bundled: {told['msgspec'].found['num_events']} events, {BUNDLED.stat().st_size} bytes gzip", told)
        for num, names in ((3_000 if given.small else 1_000_000, tuple(CHILDREN)), (5_000_000, ("moegauge",))):
            if given.small and num > 3_000:
                break
            path = folder / f"generated-{num}.json"
            written = write_trace(path, num)
            peer = given.peer if len(names) > 1 else None
            told = rounds(commands(path, folder, peer, names), repetitions)
            show(f"generated: {written} events, {path.stat().st_size} bytes", told)
            if len(names) > 1 and not given.small:
                judge(told)
            path.unlink()


if __name__ == "__main__":
    main()
