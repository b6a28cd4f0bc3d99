"""Write a Kineto trace of a given number of events, laid out and mixed as torch.profiler writes an eager run.

    python benchmarks/synthetic_trace.py --events 1000000 --out trace.json

A launch is six events: two host operators, the launch call, the kernel, and the two ends of the arrow between them.
An iteration is an annotation on the host and one on the device around 48 layers of five kernels. Times are ns from a
fixed seed, written as us with three decimals. Kernels run one after the other, some of them beside another stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

KERNELS = (
    "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*, int*, int*, int, int, int, int)",
    "fused_moe_kernel",
    "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162, float2>(c10::BFloat16*, c10::BFloat16 const*, int)",
    "fused_moe_kernel",
    "void vllm::moe::moe_sum_vec_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, int)",
)
OPERATORS = (
    "_moe_C::moe_align_block_size",
    "vllm::moe_forward",
    "_C::silu_and_mul",
    "vllm::moe_forward",
    "_moe_C::moe_sum",
)
LAYERS = 48
EVENTS_A_LAUNCH = 6
BASE_NS = 5_167_248_422_325_964
PID, TID = 4559, 4559

HEAD = (
    '{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {{\n      "id": 0, "name": "Simulated GPU"\n    }}\n  ],\n'
    '  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {world_size}}},\n'
    '  "displayTimeUnit": "ms",\n  "traceEvents": [\n'
)
EVENT = (
    '  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
    '    "ts": {ts}, "dur": {dur},\n    "args": {{\n      {args}\n    }}\n  }}'
)
ARROW = (
    '  {{\n    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts},\n'
    '    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
)
KERNEL_ARGS = (
    '"External id": {id},\n      "queued": 0, "device": 0, "context": 1,\n      "stream": {stream},\n'
    '      "correlation": {id},\n'
    '      "registers per thread": 48,\n      "shared memory": 4768,\n      "blocks per SM": 0.484848,\n'
    '      "warps per SM": 1.939394,\n      "grid": [64, 1, 1],\n      "block": [128, 1, 1],\n'
    '      "est. achieved occupancy %": 3'
)


def us(ns: int) -> str:
    """Decimal microseconds, as Kineto writes them."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def launch_events(number: int, host_ns: int, start_ns: int, dur_ns: int, stream: int) -> list[str]:
    """The six events of one launch."""
    which, host, external = number % len(KERNELS), {"pid": PID, "tid": TID}, f'"External id": {number}'
    operator = (
        f'{external},"Record function id": 0, "Concrete Inputs": ["", "", "64"], '
        f'"Input type": ["c10::BFloat16", "", "Scalar"], "Ev Idx": {number}'
    )
    call = f'{external}, "cbid": 211, "correlation": {number}'
    at = {"id": number, "ts": us(host_ns + 1200)}
    return [
        EVENT.format(cat="cpu_op", name="aten::empty", ts=us(host_ns), dur="1.250", args=operator, **host),
        EVENT.format(cat="cpu_op", name=OPERATORS[which], ts=us(host_ns + 300), dur="9.104", args=operator, **host),
        EVENT.format(
            cat="cuda_runtime", name="cudaLaunchKernel", ts=us(host_ns + 1200), dur="4.021", args=call, **host
        ),
        ARROW.format(ph="s", end="", **at, **host),
        EVENT.format(
            cat="kernel",
            name=KERNELS[which],
            pid=0,
            tid=stream,
            ts=us(start_ns),
            dur=us(dur_ns),
            args=KERNEL_ARGS.format(id=number, stream=stream),
        ),
        ARROW.format(ph="f", end=', "bp": "e"', pid=0, tid=stream, id=number, ts=us(start_ns)),
    ]


def events(num_events: int, seed: int) -> Iterator[str]:
    """The texts of the events, a multiple of six and two annotations an iteration, at least num_events."""
    generator = np.random.Generator(np.random.PCG64(seed))
    per_iteration = LAYERS * len(KERNELS)
    written, number, now = 0, 0, BASE_NS
    while written < num_events:
        durations = generator.integers(1_500, 60_000, size=per_iteration).tolist()
        gaps = generator.integers(-3_000, 4_000, size=per_iteration).tolist()
        begin, lines = now, []
        for position, (dur, gap) in enumerate(zip(durations, gaps, strict=True)):
            number += 1
            start = max(now + gap, begin + 40_000)
            lines += launch_events(number, start - 30_000, start, dur, 7 if position % 9 else 20)
            now = start + dur
        iteration = number // per_iteration - 1
        for cat, pid, tid in (("user_annotation", PID, TID), ("gpu_user_annotation", 0, 7)):
            name, length = f"iteration I{iteration}", us(now - begin)
            lines.append(
                EVENT.format(
                    cat=cat, name=name, pid=pid, tid=tid, ts=us(begin), dur=length, args=f'"External id": {1 << 40}'
                )
            )
        now += 50_000
        written += len(lines)
        yield from lines


def write_trace(path: Path, num_events: int, *, seed: int = 1, rank: int = 0, world_size: int = 1) -> int:
    """Write the trace; returns the number of its events."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD.format(rank=rank, world_size=world_size))
        for text in events(num_events, seed):
            file.write(",\n" + text if written else text)
            written += 1
        file.write('\n  ],\n  "traceName": "trace.json"\n}\n')
    return written


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    print(f"{write_trace(given.out, given.events, seed=given.seed)} events, {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
