"""The recorder names a kernel kind only where the class and what it computes with are those of the kind."""

from __future__ import annotations

import pytest

from moegauge.adapters.vllm.kinds import KINDS, QUANTISED_KINDS, kernel_kind
from moegauge.kernels.registry import kernel_kind as registered


def experts(name: str, **properties: object) -> object:
    return type(name, (), properties)()


FP8 = "torch.float8_e4m3fn"


@pytest.mark.parametrize(
    ("name", "properties", "kind"),
    [
        ("TritonExperts", {}, "vllm_triton_moe"),
        ("TritonExperts", {"quant_dtype": None, "weight_quant_dtype": None, "block_shape": None}, "vllm_triton_moe"),
        (
            "TritonExperts",
            {"quant_dtype": FP8, "weight_quant_dtype": FP8, "block_shape": [128, 128]},
            "vllm_triton_moe_fp8_block",
        ),
        ("TritonExperts", {"quant_dtype": FP8, "weight_quant_dtype": FP8, "block_shape": None}, None),
        ("TritonExperts", {"quant_dtype": FP8, "weight_quant_dtype": FP8, "block_shape": [64, 128]}, None),
        ("TritonExperts", {"quant_dtype": None, "weight_quant_dtype": "int4", "block_shape": [0, 128]}, None),
        ("CutlassExpertsFp8", {"quant_dtype": FP8, "weight_quant_dtype": FP8, "block_shape": [128, 128]}, None),
        ("CPUUnquantizedExperts", {}, "vllm_cpu_moe"),
        ("SomeoneElsesExperts", {}, None),
    ],
)
def test_a_kind_is_named_by_class_and_quantisation_together(
    name: str, properties: dict[str, object], kind: str | None
) -> None:
    assert kernel_kind(experts(name, **properties)) == kind


def test_every_named_kind_is_registered() -> None:
    named = {*KINDS.values(), *QUANTISED_KINDS.values()}
    assert {registered(name).name for name in named} == named
