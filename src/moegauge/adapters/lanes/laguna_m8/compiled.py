"""What the CUDA compiler makes of the kernels: counts of instructions in PTX and SASS. Needs Triton and no GPU.

    python -m moegauge.adapters.lanes.laguna_m8.compiled --out FOLDER

Each kernel is compiled for one architecture with the options of its launcher, and once more with contraction allowed,
as a negative control. PTX, SASS and ``counts.json`` are written. Ends with status 1 where a kernel has a fused
multiply-add, a flush to zero, a BF16 conversion or another number of products and sums than its sequence has.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from moegauge.adapters.lanes.laguna_m8.builds import BUILDS, Build, source

PTX_COUNTED = {
    "fma": r"\bfma\.",
    "product": r"\bmul(?:\.rn)?\.f32\b",
    "sum": r"\badd(?:\.rn)?\.f32\b",
    "flush_to_zero": r"\.ftz\b",
    "bf16_conversion": r"\bcvt\.[a-z0-9.]*bf16",
}
SASS_COUNTED = {
    "fma": r"\bFFMA\b",
    "product": r"\bFMUL\b",
    "sum": r"\bFADD\b",
    "flush_to_zero": r"\.FTZ\b",
    "bf16_conversion": r"\bF2FP\b|\bF2F\b|\bH(?:ADD|MUL|FMA)2\.BF16",
    "load": r"\bLDG\b",
    "spill": r"\bSTL\b|\bLDL\b",
}


def counted(text: str, patterns: dict[str, str]) -> dict[str, int]:
    """How often each pattern stands in a listing."""
    return {name: len(re.findall(pattern, text)) for name, pattern in patterns.items()}


def problems(build: Build, ptx: dict[str, int], sass: dict[str, int]) -> list[str]:
    """What is not as it has to be; empty where everything is."""
    each = build.tile.block // (32 * build.tile.num_warps)
    found: list[str] = []
    for name, counts in (("PTX", ptx), ("SASS", sass)):
        present = [what for what in ("fma", "flush_to_zero", "bf16_conversion") if counts[what]]
        found.extend(f"{name}: {counts[what]} of {what}" for what in present)
        for what, wanted in (("product", build.products * each), ("sum", build.sums * each)):
            if counts[what] != wanted:
                found.append(f"{name}: {counts[what]} of {what}, {wanted} in the sequence")
    if sass["spill"]:
        found.append(f"SASS: {sass['spill']} spills")
    return found


def compiled(build: Build, architecture: int, *, contraction: bool) -> tuple[str, str]:
    """PTX and SASS of a kernel."""
    kernel = triton.compile(
        source(build),
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": build.tile.num_warps, "enable_fp_fusion": contraction},
    )
    return str(kernel.asm["ptx"]), disassembled(kernel.asm["cubin"])


def disassembled(cubin: bytes) -> str:
    """SASS by the nvdisasm that Triton brings."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-c", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def loads_before_first_sum(sass: str) -> int:
    """Global loads issued before the first FP32 sum."""
    head = re.split(r"\bFADD\b", sass, maxsplit=1)[0]
    return len(re.findall(r"\bLDG\b", head))


def main() -> int:
    """Compile, count, write, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", type=int, default=90)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    failed = False
    for name, build in BUILDS.items():
        for contraction in (False, True):
            ptx, sass = compiled(build, given.architecture, contraction=contraction)
            counts = counted(ptx, PTX_COUNTED), counted(sass, SASS_COUNTED)
            wrong = problems(build, *counts)
            if contraction:
                # The control: a count that cannot see contraction would be worth nothing.
                # Only the sum over slots has a product that feeds a sum.
                seen = counts[1]["fma"] > 0 or build.products == 1
                wrong = [] if seen else ["contraction was allowed, and no fused multiply-add was counted"]
            else:
                (given.out / f"{name}.ptx").write_text(ptx)
                (given.out / f"{name}.sass").write_text(sass)
            failed |= bool(wrong)
            report[f"{name}, contraction {'allowed' if contraction else 'off'}"] = {
                "tile": f"{build.tile.block}x{build.tile.num_warps}",
                "ptx": counts[0],
                "sass": counts[1],
                "loads_before_first_sum": loads_before_first_sum(sass),
                "load_widths": dict(Counter(re.findall(r"\bLDG\.E(?:\.\w+)*", sass))),
                "problems": wrong,
            }
    text = json.dumps({"triton": triton.__version__, "architecture": given.architecture, "kernels": report}, indent=1)
    (given.out / "counts.json").write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
