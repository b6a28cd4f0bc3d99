"""The kind that vLLM runs on the host processor."""

from __future__ import annotations

from moegauge.kernels.kind import KernelKind, Variant
from moegauge.kernels.kinds.parts import role

VLLM_CPU_MOE = KernelKind(
    name="vllm_cpu_moe",
    backend="vllm CPUUnquantizedExperts",
    numeric_formats=("bfloat16", "float32"),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "operation",
            "experts",
            r"^cpu_fused_moe$",
            "cpu_fused_moe",
            covers=("permute", "activation", "unpermute", "topk_weight_and_reduce"),
        ),
    ),
    core=("operation",),
    variants=(
        Variant(
            name="one_operation",
            prefix=(),
            condition="always",
            applies=lambda shape: True,
            confirmed_by_trace=True,
        ),
    ),
    source="vllm-cpu 0.32.0: one host operation holds every stage; its caller times it on the host's clock",
    host_operation="cpu_fused_moe",
    confirmed=True,
)

KINDS = (VLLM_CPU_MOE,)
"""Every kind of this family."""
