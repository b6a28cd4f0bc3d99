"""What Intel's offline compiler makes of the SPIR-V on Xe2: counts of instructions, with contraction as control.

    python -m moegauge.adapters.lanes.laguna_m8.xe2 --ocloc "ocloc" --modules FOLDER --out FILE

Needs ocloc with its graphics compiler (Debian: intel-ocloc and libigc2 of a recent release) and the modules that
``xpu_offline`` wrote. Nothing is executed. The control is the candidate's module without ContractionOff: it has to
show multiply-adds, else the count of none would be worth nothing.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from moegauge.adapters.lanes.laguna_m8 import spirv
from moegauge.adapters.lanes.laguna_m8.builds import BUILDS, Build

DEVICE = "bmg-g31"

COUNTED = {
    "mad": r"^(?:\([^)]*\))?\s*mad\b.*:f\b",
    "product": r"^(?:\([^)]*\))?\s*mul\b.*:f\b",
    "sum": r"^(?:\([^)]*\))?\s*add\b.*:f\b",
    "bf16": r"^(?:\([^)]*\))?\s*\w+\b.*:bf\b",
}
DENORMALS = re.compile(r"\bor \(.*cr0\.0.*(0x[0-9A-F]+):ud")
RETAINED = 0x4C0
"""Bits of cr0 that keep subnormals: half, single and double precision."""


def assembly(ocloc: list[str], module: bytes) -> str:
    """Xe2 assembly of a SPIR-V module."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "module.spv"
        given.write_bytes(module)
        command = [*ocloc, "compile", "-file", str(given), "-spirv_input", "-device", DEVICE, "-out_dir", folder]
        environment = os.environ | {"IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        found = [one for one in Path(folder).glob("*.asm") if "_entry_" in one.name]
        if done.returncode or len(found) != 1:
            raise RuntimeError(f"ocloc: status {done.returncode}, {len(found)} listings: {done.stdout[-400:]}")
        return found[0].read_text()


def counted(text: str) -> dict[str, int]:
    """How often each of COUNTED stands in a listing, and the denormal bits that it sets."""
    counts = {name: len(re.findall(pattern, text, re.MULTILINE)) for name, pattern in COUNTED.items()}
    set_ = DENORMALS.search(text)
    return counts | {"denormals_retained": int(set_ is not None and int(set_[1], 16) & RETAINED == RETAINED)}


def problems(build: Build, counts: dict[str, int]) -> list[str]:
    """What is not as the sequence has it."""
    each = build.tile.block // (spirv.SUBGROUP * build.tile.num_warps)
    wanted = {
        "mad": 0,
        "product": build.products * each,
        "sum": build.sums * each,
        "bf16": 0,
        "denormals_retained": 1,
    }
    return [f"{what}: {counts[what]}, {number} expected" for what, number in wanted.items() if counts[what] != number]


def main() -> int:
    """Compile, count, write, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ocloc", required=True, help="command of ocloc, with options before its verb")
    parser.add_argument("--modules", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    ocloc = shlex.split(given.ocloc)
    kernels: dict[str, Any] = {}
    for name, build in BUILDS.items():
        counts = counted(assembly(ocloc, (given.modules / f"{name}.spv").read_bytes()))
        kernels[name] = counts | {"problems": problems(build, counts)}
    text = spirv.listing((given.modules / "gather_finalize.spv").read_bytes())
    control = counted(assembly(ocloc, spirv.assembled(re.sub(r".*ContractionOff.*\n", "", text))))
    report = {
        "label": "compiled to Xe2 instructions; never executed on Xe2",
        "device": DEVICE,
        "kernels": kernels,
        "control without ContractionOff": control,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 1 if control["mad"] == 0 or any(one["problems"] for one in kernels.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
