"""The kind that vLLM runs on Intel GPUs."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import COMMUNICATION, GATE_UP_THEN_DOWN, prefixed, role

VLLM_XPU_MOE = KernelKind(
    name="vllm_xpu_moe",
    backend="vllm XPUExperts",
    numeric_formats=("bfloat16", "fp8_w8a16", "int4_w4a16", "mxfp4_w4a16"),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role("count", "permute", r"RowsPerExpertCount", "vllm::moe::RowsPerExpertCount<int>"),
        role("remap", "permute", r"RemapHiddenStates", "vllm::moe::RemapHiddenStates<sycl::ext::oneapi::bfloat16>"),
        role("gemm", "experts", r"GemmCuteName", "MoE::GemmCuteName<cute::bfloat16_t>"),
        role(
            "act",
            "activation",
            r"vllm::act_and_mul\w*kernel",
            "vllm::act_and_mul_kernel<sycl::ext::oneapi::bfloat16>",
            "vllm::act_and_mul_vec_kernel<sycl::ext::oneapi::bfloat16>",
            exclusive=False,
        ),
        role(
            "gather",
            "topk_weight_and_reduce",
            r"\bMoeGather",
            "vllm::moe::MoeGather<sycl::ext::oneapi::bfloat16>",
            covers=("unpermute",),
        ),
    ),
    core=("gemm", "act", "gemm", "gather"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=prefixed("count", "remap"),
    outside={
        "router": re.compile(r"MoeTopK|MoeSoftmax|MoeSigmoid|TopKGating|grouped_topk_fused"),
        "prepare": re.compile(r"InitExpertMap"),
        "communication": COMMUNICATION,
    },
    source="vllm-xpu-kernels: csrc/moe, csrc/xpu, vllm_xpu_kernels/fused_moe_interface.py",
)

KINDS = (VLLM_XPU_MOE,)
"""Every kind of this family."""
