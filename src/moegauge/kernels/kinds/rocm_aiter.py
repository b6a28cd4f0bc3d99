"""Kinds of AMD's aiter: the whole feed-forward network in one kernel, or two stages of grouped GEMM."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import ALWAYS, GATE_UP_THEN_DOWN, OUTSIDE, role

# The number of sorting kernels follows from rows and experts.
_OUTSIDE = OUTSIDE | {"prepare": re.compile(r"MoeSorting|moe_sort|quant_moe_sort|scaled_quant_kernel")}

AITER_MOE_1STAGE = KernelKind(
    name="aiter_moe_1stage",
    backend="aiter, one stage",
    numeric_formats=("bfloat16", "fp8_w8a8", "fp8_w8a8_block", "int8_w8a8"),
    boundary=("experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "fmoe",
            "experts",
            r"\bfmoe_(?!stage)\w*g1u[01]",
            "aiter::fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256",
            "aiter::fmoe_bf16_pertokenFp8_g1u1_silu_1tg_ps_32x512",
            "aiter::fmoe_bf16_noquant_g1u1_gelu_1tg_32x512",
            covers=("activation", "unpermute", "topk_weight_and_reduce"),
        ),
    ),
    core=("fmoe",),
    variants=ALWAYS,
    outside=_OUTSIDE,
    source="aiter: csrc, hsa, aiter/fused_moe.py; names with sizes from its pull requests and issues",
)

AITER_MOE_2STAGE = KernelKind(
    name="aiter_moe_2stage",
    backend="aiter, two stages (Composable Kernel)",
    numeric_formats=("bfloat16", "fp8_w8a8", "mxfp4"),
    boundary=("experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "gemm",
            "experts",
            r"\bck::kernel_moe_(mx)?gemm",
            "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<float>>",
            "void ck::kernel_moe_gemm_2lds<ck::GridwiseMoeGemm<float>>",
            "void ck::kernel_moe_mxgemm_2lds<ck::GridwiseMoeGemmMX<float>>",
            covers=("activation", "unpermute", "topk_weight_and_reduce"),
        ),
    ),
    core=("gemm", "gemm"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=ALWAYS,
    outside=_OUTSIDE,
    source="aiter: csrc/ck_gemm_moe_2stages_codegen; the first GEMM holds the activation, "
    "the second adds into the output; a quantization between the two keeps an invocation from closing",
)

KINDS = (AITER_MOE_1STAGE, AITER_MOE_2STAGE)
"""Every kind of this family."""
