"""Kinds whose grouped GEMMs are vLLM's Triton kernels."""

from __future__ import annotations

import re
from dataclasses import replace

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import (
    ALWAYS,
    COMMUNICATION,
    GATE_UP_THEN_DOWN,
    OUTSIDE,
    VLLM_ACT,
    VLLM_ALIGN_ROLES,
    VLLM_FP8_QUANT,
    VLLM_SUM,
    role,
    vllm_align_variants,
)

_GEMM = role("gemm", "experts", r"^fused_moe_kernel(?!_gptq_awq)", "fused_moe_kernel")
_BOUNDARY = ("permute", "experts", "activation", "topk_weight_and_reduce")

VLLM_TRITON_MOE = KernelKind(
    name="vllm_triton_moe",
    backend="vllm TritonExperts",
    numeric_formats=("bfloat16",),
    boundary=_BOUNDARY,
    roles=(*VLLM_ALIGN_ROLES, _GEMM, VLLM_ACT, VLLM_SUM),
    core=("gemm", "act", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=True),
    outside={"router": re.compile(r"topkGating|grouped_topk_fused_kernel|moeTopK"), "combine": COMMUNICATION},
    follows=("finalize", re.compile(r"^memcpy32_post$|^Memcpy DtoD|direct_copy_kernel|copy_kernel")),
    source="vLLM 0.25.1: the captures of Qwen3-MoE and Laguna shapes on an H200 in the package and in evidence/; "
    "small-batch conditions from its source",
    confirmed=True,
)

VLLM_TRITON_MOE_FP8 = KernelKind(
    name="vllm_triton_moe_fp8",
    backend="vllm TritonExperts",
    numeric_formats=("fp8_w8a8",),
    boundary=_BOUNDARY,
    roles=(*VLLM_ALIGN_ROLES, _GEMM, VLLM_ACT, VLLM_FP8_QUANT, VLLM_SUM),
    core=("gemm", "act", "quant", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=False),
    outside=OUTSIDE,
    source="vLLM 0.25.1: symbols of its libraries; order from fused_moe/experts/triton_moe.py of 0.32.0; scales by "
    "token, or static by tensor",
)

_BLOCK_QUANT = role(
    "quant",
    "prepare",
    r"^(void )?per_token_group_quant_8bit_kernel",
    "void per_token_group_quant_8bit_kernel<c10::BFloat16>",
    exclusive=False,
)

VLLM_TRITON_MOE_FP8_BLOCK = KernelKind(
    name="vllm_triton_moe_fp8_block",
    backend="vllm TritonExperts",
    numeric_formats=("fp8_w8a8_block",),
    boundary=("prepare", *_BOUNDARY),
    roles=(
        *VLLM_ALIGN_ROLES,
        _GEMM,
        _BLOCK_QUANT,
        role(
            "act_quant",
            "activation",
            r"vllm::silu_and_mul_per_block_quant_kernel",
            "void vllm::silu_and_mul_per_block_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn, true, 128>",
            exclusive=False,
        ),
        VLLM_SUM,
    ),
    core=("gemm", "act_quant", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=tuple(replace(one, prefix=("quant", *one.prefix)) for one in vllm_align_variants(confirmed=False)),
    outside=OUTSIDE,
    follows=VLLM_TRITON_MOE.follows,
    source="vLLM 0.25.1: its source and the kernel names in its compiled library",
)

VLLM_TRITON_MOE_INT8 = KernelKind(
    name="vllm_triton_moe_int8",
    backend="vllm TritonExperts",
    numeric_formats=("int8_w8a8",),
    boundary=_BOUNDARY,
    roles=(
        *VLLM_ALIGN_ROLES,
        _GEMM,
        VLLM_ACT,
        role("quant", "activation", r"^_per_token_quant_int8", "_per_token_quant_int8", exclusive=False),
        VLLM_SUM,
    ),
    core=("gemm", "act", "quant", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=False),
    outside=OUTSIDE,
    source="vLLM 0.32.0: fused_moe/experts/triton_moe.py, quantization/utils/int8_utils.py",
)

VLLM_TRITON_MOE_WNA16 = KernelKind(
    name="vllm_triton_moe_wna16",
    backend="vllm TritonWNA16Experts",
    numeric_formats=("int4_w4a16", "int8_w8a16"),
    boundary=_BOUNDARY,
    roles=(
        *VLLM_ALIGN_ROLES,
        role("gemm", "experts", r"^fused_moe_kernel_gptq_awq", "fused_moe_kernel_gptq_awq"),
        VLLM_ACT,
        VLLM_SUM,
    ),
    core=("gemm", "act", "gemm", "sum"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=vllm_align_variants(confirmed=False, naive=False),
    outside=OUTSIDE,
    source="vLLM 0.32.0: fused_moe/fused_moe.py and experts/triton_moe.py; grouped scales, so always aligned",
)

VLLM_TRITON_MOE_BATCHED = KernelKind(
    name="vllm_triton_moe_batched",
    backend="vllm BatchedTritonExperts",
    numeric_formats=("bfloat16",),
    boundary=("experts", "activation"),
    roles=(
        role("gemm", "experts", r"^batched_triton_kernel", "batched_triton_kernel"),
        VLLM_ACT,
    ),
    core=("gemm", "act", "gemm"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=ALWAYS,
    outside=OUTSIDE,
    source="vLLM 0.32.0: fused_moe/experts/fused_batched_moe.py; the dispatch sorts the rows, the combine weights them",
)

KINDS = (
    VLLM_TRITON_MOE,
    VLLM_TRITON_MOE_FP8,
    VLLM_TRITON_MOE_FP8_BLOCK,
    VLLM_TRITON_MOE_INT8,
    VLLM_TRITON_MOE_WNA16,
    VLLM_TRITON_MOE_BATCHED,
)
"""Every kind of this family."""
