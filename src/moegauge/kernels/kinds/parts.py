"""What several families of kinds are put together from."""

from __future__ import annotations

import re

from moegauge.kernels.kind import InvocationShape, Role, Variant

COMMUNICATION = re.compile(r"^nccl|\bdeep_ep::|moeA2A(Dispatch|Combine|Prepare)Kernel")
"""Kernels that move rows between ranks, of every backend: NCCL, DeepEP, FlashInfer. Never inside a boundary."""

ROUTER = re.compile(r"topkGating|grouped_topk_fused|moeTopK|moe_fused_gate|^_topk_forward")
"""Kernels that choose the experts, where a backend has them apart."""

OUTSIDE = {"router": ROUTER, "communication": COMMUNICATION}
"""Known stages of a MoE layer that no boundary holds, of every backend."""

ALWAYS = (Variant(name="always", prefix=(), condition="always", applies=lambda shape: True, confirmed_by_trace=False),)
"""Of a kind whose core is the whole sequence."""

GATE_UP_THEN_DOWN = {"gemm": ("gate and up", "down")}
"""One name for both grouped GEMMs: the first of an invocation is gate and up, the second is down."""


def role(
    name: str, stage: str, pattern: str, *names: str, exclusive: bool = True, covers: tuple[str, ...] = ()
) -> Role:
    """A role whose pattern is given as text; ``names``: kernel names as they stand in the source."""
    return Role(name=name, stage=stage, pattern=re.compile(pattern), exclusive=exclusive, covers=covers, names=names)


def prefixed(*prefix: str) -> tuple[Variant, ...]:
    """The one variant of a kind whose core always stands behind the same kernels."""
    return (
        Variant(name="always", prefix=prefix, condition="always", applies=lambda shape: True, confirmed_by_trace=False),
    )


def _small_batch(shape: InvocationShape) -> bool:
    return shape.executed_rows * shape.top_k < 1024 and shape.num_experts <= 64


def _naive(shape: InvocationShape) -> bool:
    return not shape.has_expert_map and shape.executed_rows * shape.top_k * 4 <= shape.num_experts


VLLM_ALIGN_ROLES = (
    role(
        "align",
        "permute",
        r"moe_align_block_size_kernel",
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*)",
    ),
    role(
        "align_small",
        "permute",
        r"moe_align_block_size_small_batch_expert_kernel",
        "void vllm::moe::moe_align_block_size_small_batch_expert_kernel<int, 256>(int const*, int*)",
    ),
    role(
        "sort",
        "permute",
        r"count_and_sort_expert_tokens_kernel",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>(int const*, int*, int*)",
    ),
    role(
        "fill",
        "permute",
        r"FillFunctor<int>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >",
        exclusive=False,
    ),
    role(
        "map_compare",
        "permute",
        r"unrolled_elementwise_kernel",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Tensor&)>",
        exclusive=False,
    ),
    role(
        "map_index",
        "permute",
        r"index_elementwise_kernel",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<>>",
        exclusive=False,
    ),
)
"""Kernels with which vLLM assigns rows to blocks of experts, ahead of Triton and Marlin GEMMs."""


def vllm_align_variants(*, confirmed: bool, naive: bool = True) -> tuple[Variant, ...]:
    """The ways in which vLLM assigns rows to blocks of experts.

    Args:
        confirmed: real traces have shown those that they show for vllm_triton_moe.
        naive: the GEMM can run without an alignment.
    """
    found = (
        Variant(
            name="naive_block_assignment",
            prefix=("fill",),
            condition="no expert_map and executed rows x top_k x 4 <= num_experts",
            applies=_naive,
            confirmed_by_trace=confirmed,
        ),
        Variant(
            name="small_batch_expert_map",
            prefix=("align_small", "map_compare", "map_index"),
            condition="expert_map, executed rows x top_k < 1024 and num_experts <= 64",
            applies=lambda shape: shape.has_expert_map and _small_batch(shape),
            confirmed_by_trace=False,
        ),
        Variant(
            name="small_batch",
            prefix=("align_small",),
            condition="executed rows x top_k < 1024 and num_experts <= 64",
            applies=_small_batch,
            confirmed_by_trace=False,
        ),
        Variant(
            name="align_sort_expert_map",
            prefix=("align", "sort", "map_compare", "map_index"),
            condition="expert_map",
            applies=lambda shape: shape.has_expert_map,
            confirmed_by_trace=confirmed,
        ),
        Variant(
            name="align_sort",
            prefix=("align", "sort"),
            condition="otherwise",
            applies=lambda shape: True,
            confirmed_by_trace=confirmed,
        ),
    )
    return found if naive else found[1:]


VLLM_SUM = role(
    "sum",
    "topk_weight_and_reduce",
    r"vllm::moe::moe_sum",
    "void vllm::moe::moe_sum_vec_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*)",
    "void vllm::moe::moe_sum_vec_dynamic_kernel<c10::BFloat16>(c10::BFloat16*)",
    "void vllm::moe::moe_sum_scalar_kernel<c10::BFloat16>(c10::BFloat16*)",
)

VLLM_ACT = role(
    "act",
    "activation",
    r"vllm::act_and_mul_kernel",
    "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162>(c10::BFloat16*)",
    "void vllm::act_and_mul_kernel_with_param<c10::BFloat16>(c10::BFloat16*)",
    exclusive=False,
)

VLLM_FP8_QUANT = role(
    "quant",
    "activation",
    r"scaled_fp8_quant_kernel_strided",
    "void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>",
    "void vllm::scaled_fp8_quant_kernel_strided_group_shape<c10::BFloat16, c10::Float8_e4m3fn>",
    exclusive=False,
)
"""Quantization of the activation's output to FP8; the same kernels serve dense layers."""
