"""The kind that runs OpenAI's triton_kernels (gpt-oss)."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import COMMUNICATION, prefixed, role

TRITON_KERNELS_MOE = KernelKind(
    name="triton_kernels_moe",
    backend="vllm OAITritonExperts",
    numeric_formats=("mxfp4", "bfloat16"),
    boundary=("experts", "activation", "topk_weight_and_reduce"),
    roles=(
        role(
            "gate_up",
            "experts",
            r"^_(p_)?matmul_ogs.*swiglu",
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu",
            "_p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x64x1_swiglu",
            covers=("activation",),
        ),
        role(
            "down",
            "experts",
            r"^_(p_)?matmul_ogs(?!.*swiglu)",
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1",
            "_p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x64x1",
        ),
        role(
            "reduce",
            "topk_weight_and_reduce",
            r"^_reduce_grouped|^_masked_topk_sum_kernel|^_finalize_matmul",
            "_reduce_grouped",
            "_masked_topk_sum_kernel",
            "_finalize_matmul",
        ),
    ),
    core=("gate_up", "down", "reduce"),
    variants=prefixed(),
    outside={
        # One launch chooses experts and sorts rows, so that the two stages cannot be told apart.
        "router": re.compile(r"^_topk_forward|^_(combined_)?routing_|^_sum_bitmatrix|^_expt_data|^_compute_writeback"),
        "communication": COMMUNICATION,
    },
    source="triton_kernels as bundled with vLLM 0.25.1 and gpt_oss_triton_kernels_moe.py of 0.32.0; compiled names "
    "carry layouts and formats",
)

KINDS = (TRITON_KERNELS_MOE,)
"""Every kind of this family."""
