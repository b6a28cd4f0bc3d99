"""The kernels compiled for Intel XPU without one: instructions counted, and SPIR-V run on a processor over the corpus.

    scripts/xpu-offline [OUT]

What it shows: compiled to SPIR-V for Xe2; the SPIR-V is bit-exact on Intel's OpenCL runtime for processors. What it
cannot show: it was never executed on Xe2. Ends with status 1 where a count or a word is not what it has to be, or
where the naive candidate survives.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import triton
from numpy.typing import NDArray

from moegauge.adapters.lanes.laguna_m8 import naive, spirv
from moegauge.adapters.lanes.laguna_m8.builds import BUILDS, Build
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.fixture import FixtureSpec
from moegauge.lanes.laguna_m8.sequence import (
    FINAL,
    HIDDEN_SIZE,
    NUM_ROWS,
    NUM_TOKENS,
    ROUTED,
    SCALED,
    TOP_K,
    gather_finalize,
    words_of,
)

LABEL = "compiled for Xe2; SPIR-V bit-exact on a processor; never executed on Xe2"
NAIVE = "naive gather_finalize"
POISON = 0x7FA5
BOUNDARY_OF = {"routed": ROUTED, "scaled": SCALED, "out": FINAL}
Words = NDArray[Any]

KERNELS = {
    **BUILDS,
    NAIVE: replace(
        BUILDS["gather_finalize"],
        function=naive.gather_finalize,
        signature={"out": "*bf16", "rows": "*bf16", "weights": "*fp32", "shared": "*bf16"},
    ),
}


class Processor:
    """An OpenCL device of the processor, and one program for each kernel."""

    def __init__(self) -> None:
        devices = [one for platform in cl.get_platforms() for one in platform.get_devices()]
        found = [one for one in devices if one.type & cl.device_type.CPU]
        if not found:
            raise SystemExit("no OpenCL runtime for processors was found; scripts/xpu-offline installs one")
        self.device = found[0]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)

    def kernel(self, build: Build, module: bytes) -> Any:
        """The kernel of a module."""
        return cl.Kernel(cl.Program(self.context, module).build(), build.function.__name__)

    def run(self, build: Build, kernel: Any, arrays: dict[str, Words]) -> None:
        """Launch on arrays by argument name; outputs are written back."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        names = [name for name, kind in build.signature.items() if kind.startswith("*")]
        buffers = {name: cl.Buffer(self.context, flags, hostbuf=arrays[name]) for name in names}
        group = spirv.SUBGROUP * build.tile.num_warps
        ordered = [buffers[name] for name in build.function.arg_names if name in buffers]
        kernel(self.queue, (NUM_TOKENS * group, HIDDEN_SIZE // build.tile.block), (group, 1), *ordered)
        for name in names:
            cl.enqueue_copy(self.queue, arrays[name], buffers[name])
        self.queue.finish()


def check_counts(name: str, build: Build, counts: dict[str, int]) -> list[str]:
    """What a module has that it must not, or not as often as its sequence."""
    each = build.tile.block // (spirv.SUBGROUP * build.tile.num_warps)
    wanted = {"ContractionOff": 1, "product": build.products * each, "sum": build.sums * each}
    wanted |= dict.fromkeys(("fma", "bf16_conversion", "dot_or_matrix", "flush_to_zero"), 0)
    if name == NAIVE:
        wanted = {"ContractionOff": 1}
    return [f"{what}: {counts[what]}, {number} expected" for what, number in wanted.items() if counts[what] != number]


def run_corpus(
    processor: Processor, modules: dict[str, bytes], specs: Iterable[FixtureSpec]
) -> dict[str, dict[str, Any]]:
    """Words unlike the oracle's, by kernel."""
    kernels = {name: processor.kernel(KERNELS[name], module) for name, module in modules.items()}
    counts: dict[str, dict[str, Any]] = {
        name: {"num_words": 0, "num_different": 0, "first": None, "fixtures": []} for name in kernels
    }
    canonical = np.arange(NUM_ROWS, dtype=np.int32).reshape(NUM_TOKENS, TOP_K)
    for spec in specs:
        fixture = spec.build()
        oracle = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
        for name, kernel in kernels.items():
            arrays: dict[str, Words] = {"rows": fixture.rows, "weights": fixture.weights, "shared": fixture.shared}
            arrays = {key: np.array(array) for key, array in arrays.items()} | {"route_map": canonical.copy()}
            arrays |= {key: np.full((NUM_TOKENS, HIDDEN_SIZE), POISON, dtype=np.uint16) for key in BOUNDARY_OF}
            if name == "scale_add":
                arrays["routed"] = oracle[ROUTED].copy()
            before = {key: arrays[key].copy() for key in ("rows", "weights", "shared")}
            processor.run(KERNELS[name], kernel, arrays)
            _compare(counts[name], spec.name, KERNELS[name], arrays, oracle)
            if any((before[key] != arrays[key]).any() for key in before):
                raise RuntimeError(f"{name} changed its input on {spec.name}")
    return counts


def _compare(count: dict[str, Any], fixture: str, build: Build, arrays: dict[str, Words], oracle: Any) -> None:
    for name, boundary in BOUNDARY_OF.items():
        if name not in build.signature or (name == "routed" and "rows" not in build.signature):
            continue
        different = np.argwhere(arrays[name] != oracle[boundary])
        count["num_words"] += arrays[name].size
        count["num_different"] += len(different)
        if len(different):
            count["fixtures"].append(fixture)
            index = tuple(int(one) for one in different[0])
            words = f"0x{oracle[boundary][index]:04X} expected, 0x{arrays[name][index]:04X} found"
            count["first"] = count["first"] or f"{fixture} {boundary} {list(index)}: {words}"


def main() -> int:
    """Compile, count, run, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--families", nargs="*", help="families of fixtures; all without it")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    specs = [one for one in corpus() if given.families is None or one.family in given.families]
    texts = {name: spirv.listing(_kept(given.out, name, spirv.compiled(build))) for name, build in KERNELS.items()}
    counts = {name: spirv.counted(text) for name, text in texts.items()}
    problems = {name: check_counts(name, KERNELS[name], counts[name]) for name in KERNELS}
    processor = Processor()
    words = run_corpus(processor, {name: spirv.portable(text) for name, text in texts.items()}, specs)
    survived = words[NAIVE]["num_different"] == 0
    inexact = [name for name, count in words.items() if name != NAIVE and count["num_different"]]
    for count in words.values():
        count["num_fixtures_that_differ"] = len(set(count.pop("fixtures")))
    report = {
        "label": LABEL,
        "triton": triton.__version__,
        "runtime": f"{processor.device.platform.version}, {processor.device.driver_version}",
        "num_fixtures": len(specs),
        "spirv": counts,
        "problems": {name: found for name, found in problems.items() if found},
        "words": words,
    }
    text = json.dumps(report, indent=1) + "\n"
    (given.out / "report.json").write_text(text)
    sys.stdout.write(text)
    if survived:
        sys.stderr.write("the naive candidate survived: the run shows nothing\n")
    return 1 if survived or inexact or any(problems.values()) or not specs else 0


def _kept(out: Path, name: str, binary: bytes) -> bytes:
    (out / f"{name.replace(' ', '-')}.spv").write_bytes(binary)
    return binary


if __name__ == "__main__":
    sys.exit(main())
