"""Kinds whose grouped GEMMs are DeepGEMM's. Its dense GEMMs have the same name and another GemmType."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import ALWAYS, COMMUNICATION, GATE_UP_THEN_DOWN, OUTSIDE, ROUTER, prefixed, role

VLLM_DEEP_GEMM_MOE_FP8 = KernelKind(
    name="vllm_deep_gemm_moe_fp8",
    backend="vllm DeepGemmExperts",
    numeric_formats=("fp8_w8a8_block",),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role("scatter_1", "permute", r"^_fwd_kernel_ep_scatter_1", "_fwd_kernel_ep_scatter_1"),
        role("scatter_2", "permute", r"^_fwd_kernel_ep_scatter_2", "_fwd_kernel_ep_scatter_2"),
        role(
            "gemm",
            "experts",
            r"deep_gemm::sm\d+_fp8(_fp4)?_gemm_\w+_impl<.*GemmType\)[125]",
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, (deep_gemm::GemmType)1>",
            "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 0u, 4096u, (deep_gemm::GemmType)1>",
        ),
        role(
            "act",
            "activation",
            r"silu_mul\w*_(fp8_)?quant",
            "_silu_mul_per_token_group_quant_fp8_colmajor",
            "void vllm::silu_mul_fp8_quant_deep_gemm_kernel<c10::BFloat16>",
            "_silu_mul_fp8_quant_deep_gemm",
        ),
        role(
            "gather",
            "topk_weight_and_reduce",
            r"^_fwd_kernel_ep_gather",
            "_fwd_kernel_ep_gather",
            covers=("unpermute",),
        ),
    ),
    core=("gemm", "act", "gemm", "gather"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=prefixed("scatter_1", "scatter_2"),
    outside=OUTSIDE,
    source="vLLM 0.32.0: fused_moe/deep_gemm_utils.py, experts/deep_gemm_moe.py; DeepGEMM's headers; GemmType from its "
    "common/types.cuh",
)

DEEP_GEMM_MEGA_MOE = KernelKind(
    name="deep_gemm_mega_moe",
    backend="DeepGEMM mega MoE",
    numeric_formats=("fp8_fp4", "fp4_fp4", "bfloat16", "nvfp4"),
    boundary=("dispatch", "experts", "activation", "topk_weight_and_reduce", "combine"),
    roles=(
        role(
            "mega",
            "experts",
            r"sm\d+_\w*mega_moe_impl",
            "void deep_gemm::sm100_fp8_fp4_mega_moe_impl<128u>",
            "void deep_gemm::sm100_bf16_mega_moe_impl<128u>",
            covers=("dispatch", "activation", "topk_weight_and_reduce", "combine"),
        ),
    ),
    core=("mega",),
    variants=ALWAYS,
    outside={
        "prepare": re.compile(r"^_prepare_megamoe_\w*inputs_kernel"),
        "router": ROUTER,
        "communication": COMMUNICATION,
    },
    source="DeepGEMM's headers as bundled with vLLM; one kernel moves the rows between ranks too, so that its time "
    "holds communication that cannot be taken out",
)

KINDS = (VLLM_DEEP_GEMM_MOE_FP8, DEEP_GEMM_MEGA_MOE)
"""Every kind of this family."""
