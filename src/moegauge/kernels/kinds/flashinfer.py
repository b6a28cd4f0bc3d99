"""Kinds of FlashInfer: TensorRT-LLM's generated kernels, its CUTLASS backend, and CuteDSL."""

from __future__ import annotations

import re

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.kinds.parts import ALWAYS, COMMUNICATION, GATE_UP_THEN_DOWN, OUTSIDE, prefixed, role

_TRTLLM_OUTSIDE = {
    # Chooses experts and sorts rows in one go; which launches it takes depends on rows and experts.
    "router": re.compile(r"moe::dev::routing::|routing(Main|Indices\w+)Kernel"),
    "communication": COMMUNICATION,
}
_TRTLLM_FINALIZE = role(
    "finalize",
    "topk_weight_and_reduce",
    r"moe::dev::finalize::finalize(DeepSeek)?Kernel",
    "void moe::dev::finalize::finalizeKernel<moe::dev::finalize::KernelParams<float>>",
    "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<float>>",
    "void moe::dev::finalize::finalizeDeepSeekKernel<moe::dev::finalize::KernelParams<float>>",
    covers=("unpermute",),
)
_TRTLLM_SOURCE = (
    "FlashInfer csrc/trtllm_fused_moe_runner.cu, trtllm_fused_moe_dev_kernel.cu; bmm names from public profiles"
)

FLASHINFER_TRTLLM_MOE_FP8_BLOCK = KernelKind(
    name="flashinfer_trtllm_moe_fp8_block",
    backend="FlashInfer TensorRT-LLM generated",
    numeric_formats=("fp8_w8a8_block",),
    boundary=("experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "gate_up",
            "experts",
            r"^bmm_E4m3_E4m3E4m3_.*dsFp8",
            "bmm_E4m3_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32_transOut_dsFp8_schPd4x2x2x3_bN_sm100f",
        ),
        role(
            "act",
            "activation",
            r"moe::dev::activation::activationDeepSeekKernel",
            "void moe::dev::activation::activationDeepSeekKernel<moe::dev::activation::KernelParams<float>>",
        ),
        role(
            "down",
            "experts",
            r"^bmm_Bfloat16_E4m3E4m3_.*dsFp8",
            "bmm_Bfloat16_E4m3E4m3_Fp32_t128x64x128u2_s6_et64x64_m64x64x32_transOut_dsFp8_schPd4x2x2x3_bN_sm100f",
        ),
        _TRTLLM_FINALIZE,
    ),
    core=("gate_up", "act", "down", "finalize"),
    variants=ALWAYS,
    outside=_TRTLLM_OUTSIDE,
    source=_TRTLLM_SOURCE,
)

FLASHINFER_TRTLLM_MOE = KernelKind(
    name="flashinfer_trtllm_moe",
    backend="FlashInfer TensorRT-LLM generated",
    numeric_formats=("fp8_w8a8", "nvfp4", "mxfp4_mxfp8"),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        # The first word behind bmm_ is the type of the output: the intermediate one, then BF16.
        role(
            "gate_up",
            "experts",
            r"^bmm_(E4m3|E2m1|MxE4m3|MxE2m1)_(?!.*dsFp8).*(swiGlu|geGlu)",
            "bmm_E4m3_E4m3E4m3_Fp32_t128x8x256u2_s6_et128x8_m128x8x32_transOut_schPd2x1_bN_swiGlu_dynB_sm100f",
            "bmm_E2m1_E2m1E2m1_Fp32_t128x16x256_s6_et128x16_m128x16x64_transOut_schPd2x1_bN_swiGlu_dynB_sm100f",
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256_s6_et128x16_m128x16x32_transOut_schPd2x1_bN_swiGlu_sm100f",
            covers=("permute", "activation"),
        ),
        role(
            "down",
            "experts",
            r"^bmm_Bfloat16_(?!.*dsFp8).*_bN_",
            "bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x256u2_s6_et128x8_m128x8x32_transOut_schPd2x1_bN_dynB_sm100f",
            "bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x256_s6_et128x16_m128x16x64_transOut_schPd2x1_bN_dynB_sm100f",
        ),
        _TRTLLM_FINALIZE,
    ),
    core=("gate_up", "down", "finalize"),
    variants=ALWAYS,
    outside=_TRTLLM_OUTSIDE,
    source=_TRTLLM_SOURCE + "; one type of output for both GEMMs would make them one name",
)

FLASHINFER_CUTLASS_MOE = KernelKind(
    name="flashinfer_cutlass_moe",
    backend="FlashInfer CUTLASS",
    numeric_formats=("bfloat16", "fp8_w8a8", "nvfp4"),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "expand",
            "permute",
            r"(tensorrt_llm::.*|cutlass_kernels::)expandInputRowsKernel",
            "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel<__nv_bfloat16, __nv_bfloat16, false>",
        ),
        role(
            "strides",
            "experts",
            r"computeStridesTmaWarpSpecializedKernel",
            "void tensorrt_llm::kernels::cutlass_kernels::computeStridesTmaWarpSpecializedKernel<__nv_bfloat16>",
        ),
        role(
            "gemm",
            "experts",
            r"cutlass::device_kernel<.*GemmUniversal.*(MoEProblem|GroupProblemShape)",
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<long>>>",
        ),
        role(
            "act",
            "activation",
            r"cutlass_kernels::do(Gated)?ActivationKernel",
            "void tensorrt_llm::kernels::cutlass_kernels::doGatedActivationKernel<__nv_bfloat16, __nv_bfloat16>",
            "void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16, __nv_bfloat16>",
        ),
        role(
            "finalize",
            "topk_weight_and_reduce",
            r"cutlass_kernels::finalizeMoeRouting(NoFilling)?Kernel",
            "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16, __nv_bfloat16>",
            "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingNoFillingKernel<__nv_bfloat16>",
            covers=("unpermute",),
        ),
    ),
    core=("gemm", "act", "gemm", "finalize"),
    told_apart=GATE_UP_THEN_DOWN,
    variants=prefixed("expand", "strides"),
    outside=OUTSIDE
    | {"prepare": re.compile(r"fusedBuildExpertMaps|(block|global|merge)ExpertPrefixSum|computeFP8DequantScale")},
    source="FlashInfer csrc/fused_moe/cutlass_backend; one or three kernels sort the rows, by their number",
)

FLASHINFER_CUTEDSL_MOE = KernelKind(
    name="flashinfer_cutedsl_moe",
    backend="FlashInfer CuteDSL",
    numeric_formats=("nvfp4",),
    boundary=("experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(
        role(
            "gate_up",
            "experts",
            r"blockscaled_contiguous_(gather_)?grouped_gemm_swiglu_fusion",
            "kernel_cutlass_kernel_blockscaled_contiguous_grouped_gemm_swiglu_fusion",
            covers=("activation",),
        ),
        role(
            "down",
            "experts",
            r"blockscaled_contiguous_grouped_gemm_finalize_fusion",
            "kernel_cutlass_kernel_blockscaled_contiguous_grouped_gemm_finalize_fusion",
            covers=("unpermute", "topk_weight_and_reduce"),
        ),
    ),
    core=("gate_up", "down"),
    variants=ALWAYS,
    outside=OUTSIDE | {"prepare": re.compile(r"moe(Sort|Permute|OutputMemset)\w*Kernel|moePermuteKernel")},
    source="FlashInfer flashinfer/fused_moe/cute_dsl",
)

KINDS = (FLASHINFER_TRTLLM_MOE_FP8_BLOCK, FLASHINFER_TRTLLM_MOE, FLASHINFER_CUTLASS_MOE, FLASHINFER_CUTEDSL_MOE)
"""Every kind of this family."""
