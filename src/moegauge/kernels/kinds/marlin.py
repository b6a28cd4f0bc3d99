"""The kinds whose GEMMs unpack 4-bit weights in CUDA: Marlin, and vLLM's plain wna16 kernel."""

from __future__ import annotations

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import (
    GATE_UP_THEN_DOWN,
    OUTSIDE,
    VLLM_ACT,
    VLLM_ALIGN_ROLES,
    VLLM_SUM,
    role,
    vllm_align_variants,
)

_BOUNDARY = ("permute", "experts", "activation", "topk_weight_and_reduce")
_SOURCE = "vLLM 0.25.1: symbols of its libraries; order from fused_moe/experts/marlin_moe.py of 0.32.0"

VLLM_MARLIN_MOE = KernelKind(
    name="vllm_marlin_moe",
    backend="vllm MarlinExperts",
    numeric_formats=("int4_w4a16", "int8_w8a16", "fp8_w8a16", "nvfp4_w4a16", "mxfp4_w4a16"),
    boundary=_BOUNDARY,
    roles=(
        *VLLM_ALIGN_ROLES,
        role(
            "gemm",
            "experts",
            r"marlin_moe_wna16::Marlin<",
            "void marlin_moe_wna16::Marlin<__nv_bfloat16, 256, 1, 8, 8>",
        ),
        VLLM_ACT,
        VLLM_SUM,
    ),
    core=("gemm", "act", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=False, naive=False),
    outside=OUTSIDE,
    source=_SOURCE,
)

VLLM_WNA16_CUDA_MOE = KernelKind(
    name="vllm_wna16_cuda_moe",
    backend="vllm TritonWNA16Experts, CUDA kernel",
    numeric_formats=("int4_w4a16", "int8_w8a16"),
    boundary=_BOUNDARY,
    roles=(
        *VLLM_ALIGN_ROLES,
        role("gemm", "experts", r"moe_wna16_gemm_kernel", "void moe_wna16_gemm_kernel<__nv_bfloat16, 4, 8>"),
        VLLM_ACT,
        VLLM_SUM,
    ),
    core=("gemm", "act", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=False, naive=False),
    outside=OUTSIDE,
    source=_SOURCE,
)

KINDS = (VLLM_MARLIN_MOE, VLLM_WNA16_CUDA_MOE)
"""Every kind of this family."""
