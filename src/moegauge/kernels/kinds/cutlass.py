"""Kinds whose grouped GEMMs are vLLM's CUTLASS kernels. Their rows are sorted by a varying number of cub kernels."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import GATE_UP_THEN_DOWN, OUTSIDE, VLLM_ACT, VLLM_FP8_QUANT, prefixed, role

_GROUPED = role(
    "gemm",
    "experts",
    r"cutlass::device_kernel<.*(GroupProblemShape|cutlass_3x_group_gemm)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>",
    "void cutlass::device_kernel<(anonymous namespace)::cutlass_3x_group_gemm<cutlass::float_e4m3_t>>",
)
_W4A8 = role(
    "gemm",
    "experts",
    r"W4A8GroupedGemmKernel",
    "void cutlass::device_kernel<vllm::cutlass_w4a8_moe::W4A8GroupedGemmKernel<cute::tuple<int>>>",
)
_STARTS = role(
    "starts",
    "experts",
    r"^(void )?(__|__mxfp4_)?get_group_gemm_starts",
    "void get_group_gemm_starts<cutlass::float_e4m3_t, cutlass::bfloat16_t, float>",
    "void __get_group_gemm_starts<float>",
)
_OFFSETS = role("offsets", "permute", r"computeExpertFirstTokenOffsetKernel", "computeExpertFirstTokenOffsetKernel")
_EXPAND = role("expand", "permute", r"expandInputRowsKernel", "void expandInputRowsKernel<__nv_fp8_e4m3, true>")
_SIZES = role(
    "sizes",
    "permute",
    r"compute_problem_sizes",
    "void compute_problem_sizes_from_expert_offsets<true>",
    "void compute_problem_sizes<true>",
)
_FINALIZE = role(
    "finalize",
    "topk_weight_and_reduce",
    r"finalizeMoeRoutingKernel",
    "void finalizeMoeRoutingKernel<__nv_bfloat16, __nv_bfloat16, true>",
    covers=("unpermute",),
)
_SORTED_OUTSIDE = OUTSIDE | {"prepare": re.compile(r"preprocessTopkIdKernel|DeviceRadixSort")}
_BOUNDARY = ("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce")
_SOURCE = "vLLM 0.25.1: symbols of its libraries; order from fused_moe/experts/cutlass_moe.py of 0.32.0"

VLLM_CUTLASS_MOE_FP8 = KernelKind(
    name="vllm_cutlass_moe_fp8",
    backend="vllm CutlassExpertsFp8",
    numeric_formats=("fp8_w8a8",),
    boundary=_BOUNDARY,
    roles=(_OFFSETS, _EXPAND, _SIZES, _STARTS, _GROUPED, VLLM_ACT, VLLM_FP8_QUANT, _FINALIZE),
    core=("starts", "gemm", "act", "quant", "starts", "gemm", "finalize"),
    told_apart=GATE_UP_THEN_DOWN | {"starts": ("of gate and up", "of down")},
    variants=prefixed("offsets", "expand", "sizes"),
    outside=_SORTED_OUTSIDE,
    source=_SOURCE,
)

VLLM_CUTLASS_MOE_W4A8 = KernelKind(
    name="vllm_cutlass_moe_w4a8",
    backend="vllm CutlassExpertsW4A8Fp8",
    numeric_formats=("int4_w4a8",),
    boundary=_BOUNDARY,
    roles=(_OFFSETS, _EXPAND, _SIZES, _STARTS, _W4A8, VLLM_ACT, VLLM_FP8_QUANT, _FINALIZE),
    core=("starts", "gemm", "act", "quant", "starts", "gemm", "finalize"),
    told_apart=GATE_UP_THEN_DOWN | {"starts": ("of gate and up", "of down")},
    variants=prefixed("offsets", "expand", "sizes"),
    outside=_SORTED_OUTSIDE,
    source=_SOURCE,
)

VLLM_CUTLASS_MOE_NVFP4 = KernelKind(
    name="vllm_cutlass_moe_nvfp4",
    backend="vllm CutlassExpertsFp4",
    numeric_formats=("nvfp4",),
    boundary=("permute", "experts", "activation", "unpermute"),
    roles=(
        role("shuffle", "permute", r"shuffleInputRowsKernel", "void shuffleInputRowsKernel<__nv_bfloat16>"),
        role("unshuffle", "unpermute", r"shuffleInputRowsKernel", "void shuffleInputRowsKernel<__nv_bfloat16>"),
        role(
            "quant",
            "permute",
            r"vllm::cvt_fp16_to_fp4<",
            "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, true, false, true>",
            exclusive=False,
        ),
        _STARTS,
        _GROUPED,
        role(
            "act",
            "activation",
            r"vllm::silu_mul_cvt_fp16_to_fp4|vllm::cvt_fp16_to_fp4<\w+, \w+, true",
            "void vllm::silu_mul_cvt_fp16_to_fp4<__nv_bfloat16, false>",
            "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false, true, true>",
            exclusive=False,
        ),
    ),
    core=("starts", "gemm", "act", "starts", "gemm", "unshuffle"),
    told_apart=GATE_UP_THEN_DOWN | {"starts": ("of gate and up", "of down")},
    variants=prefixed("shuffle", "quant"),
    outside=OUTSIDE | {"prepare": re.compile(r"compute_(problem_sizes|expert_(blockscale_)?offsets|arg_sorts)")},
    source=_SOURCE + "; the weighted sum behind the last shuffle is plain PyTorch and lies outside",
)

KINDS = (VLLM_CUTLASS_MOE_FP8, VLLM_CUTLASS_MOE_W4A8, VLLM_CUTLASS_MOE_NVFP4)
"""Every kind of this family."""
