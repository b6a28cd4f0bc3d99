"""Kinds whose grouped GEMMs are vLLM's Triton kernels."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import (
    COMMUNICATION,
    GATE_UP_THEN_DOWN,
    VLLM_ACT,
    VLLM_ALIGN_ROLES,
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
    source="vLLM 0.25.1: traces of Qwen3-MoE and Laguna shapes on an H200; small-batch conditions from its source",
    confirmed=True,
)

KINDS = (VLLM_TRITON_MOE,)
"""Every kind of this family."""
