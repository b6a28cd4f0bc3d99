"""vLLM's own Triton experts with FP8 weights in blocks of 128 x 128 on CUDA, called without an engine.

Boundary: prepare (the hidden states are quantised by token and group of 128) to topk_weight_and_reduce. The activation
is quantised in the kernel that computes it, which vLLM 0.25.1 does where DeepGEMM's power-of-two scales are off.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config
from vllm.model_executor.layers.fused_moe.utils import moe_kernel_quantize_input
from vllm.model_executor.layers.quantization.utils.fp8_utils import is_deep_gemm_e8m0_used

from moegauge import errors
from moegauge.adapters.runners.fp8_block import BLOCK, BlockFp8Weights
from moegauge.adapters.runners.kernel_config import KernelConfig
from moegauge.adapters.runners.torch_moe import MoeWeights
from moegauge.adapters.runners.vllm_triton_moe import VllmTritonMoeRunner
from moegauge.adapters.runners.work import ModelSpec


class VllmTritonMoeFp8BlockRunner(VllmTritonMoeRunner):
    """Runs ``TritonExperts.apply`` behind the quantisation of its hidden states, as the engine does without ranks.

    Raises:
        MisuseError: as :class:`VllmTritonMoeRunner`; or vLLM is set to scales that are powers of two, with which it
            runs other kernels.
    """

    name = "vllm_triton_moe_fp8_block"
    kernel_kind = "vllm_triton_moe_fp8_block"
    block_shape = (BLOCK, BLOCK)

    def __init__(self, model: ModelSpec, kernel_config: KernelConfig | None = None) -> None:
        found = _other_scales()
        if found is not None:
            raise errors.MisuseError(
                where=f"runner {self.name}",
                expected="float32 scales",
                found=found,
                remedy="Set VLLM_USE_DEEP_GEMM=0; TritonExperts needs no DeepGEMM.",
            )
        super().__init__(model, kernel_config)

    def drawn_weights(self, model: ModelSpec) -> MoeWeights:
        """Weights in blocks, with their scales."""
        self.blocks = BlockFp8Weights(model, "cuda")
        return self.blocks

    def formats(self) -> list[Any]:
        """One description a set, since it holds the scales."""
        scales = [self.blocks.scales_of(index) for index in range(self.blocks.model.num_weight_sets)]
        blocks = [BLOCK, BLOCK]
        return [fp8_w8a8_moe_quant_config(w1_scale=one, w2_scale=other, block_shape=blocks) for one, other in scales]

    def as_taken(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Quantised by token and group, with a scale for each."""
        words, scales = moe_kernel_quantize_input(
            hidden_states, None, torch.float8_e4m3fn, per_act_token_quant=False, block_shape=[BLOCK, BLOCK]
        )
        return words, scales


def _other_scales() -> str | None:
    """Why the scales would be others than float32, as vLLM itself asks before each activation; None where they are."""
    try:
        used = is_deep_gemm_e8m0_used()
    except AssertionError as error:  # what DeepGEMM says where there is no CUDA toolkit to compile with
        return f"a DeepGEMM that cannot be loaded {error}".rstrip()
    return "vLLM set to the power-of-two scales of DeepGEMM, with which it runs other kernels" if used else None
