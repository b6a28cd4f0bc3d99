"""FP8 weights in blocks: how they are quantised, what the reference computes, and the runner held against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from fake_vllm import FOUND, Vllm
from moegauge import errors
from moegauge.adapters.runners.fp8_block import BlockFp8Weights, quantised_blocks, quantised_groups
from moegauge.adapters.runners.registry import make_runner
from moegauge.adapters.runners.work import ModelSpec, RunCondition, Work, bytes_between_uses
from moegauge.evidence.digest import record_digest
from moegauge.kernels.registry import kernel_kind, numeric_format_in
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode

NAME = "vllm_triton_moe_fp8_block"
COLD = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="warm")


def model(*, hidden: int = 256, intermediate: int = 128, sets: int = 1) -> ModelSpec:
    return ModelSpec(
        shape=ModelShape(hidden_size=hidden, intermediate_size=intermediate, num_experts=4, top_k=2),
        num_local_experts=4,
        numeric_format="fp8_w8a8_block",
        layers=(0, 1),
        num_weight_sets=sets,
        seed=0,
    )


def work(ids: Sequence[Sequence[int]] = ((0, 1), (2, 3), (1, 3), (3, 0))) -> Work:
    array = np.array(ids, dtype=np.int32)
    return Work(iteration=0, layer=1, rank=0, topk_ids=array, topk_weights=None, expert_map=None)


# quantisation; e4m3 has three bits behind the point: 448 and 416 are words, 430 lies between them, nearer to 416


def test_the_largest_value_of_a_block_becomes_448_and_the_others_the_nearest_word() -> None:
    matrix = torch.zeros(1, 256, 128)
    matrix[0, 0, :4] = torch.tensor([896.0, 860.0, -832.0, 1.0])  # scale 2
    matrix[0, 128, 0] = 0.448  # scale 0.001
    words, scale = quantised_blocks(matrix)
    assert words.dtype == torch.float8_e4m3fn
    assert words[0, 0, :4].float().tolist() == [448.0, 416.0, -416.0, 0.5]
    assert words[0, 128, 0].float().item() == 448.0
    assert scale.shape == (1, 2, 1)
    assert scale.flatten().tolist() == pytest.approx([2.0, 0.001])


def test_a_block_of_zeros_stays_zero() -> None:
    words, scale = quantised_blocks(torch.zeros(1, 128, 128))
    assert words.float().abs().max().item() == 0.0
    assert torch.isfinite(scale).all()


def test_activations_are_quantised_for_each_row_and_each_128_columns() -> None:
    row = torch.zeros(2, 256, dtype=torch.float64)
    row[0, 0], row[0, 1], row[0, 128] = 448.0, 430.0, 4.3
    row[1, 0] = -44.8
    found = quantised_groups(row)
    assert found.dtype == torch.float64
    assert found[0, [0, 1, 128]].tolist() == pytest.approx([448.0, 416.0, 4.3])
    assert found[1, 0].item() == pytest.approx(-44.8)


# weights


def test_weights_are_kept_in_one_byte_with_a_scale_a_block() -> None:
    weights = BlockFp8Weights(model(sets=2), "cpu")
    assert {tensor.dtype for tensor in (*weights.w13, *weights.w2)} == {torch.float8_e4m3fn}
    assert [tuple(one.shape) for one in weights.scales_of(1)] == [(4, 2, 2), (4, 2, 1)]
    assert weights.scales_of(0)[0] is not weights.scales_of(1)[0]
    assert weights.hidden(3).dtype == torch.bfloat16


@pytest.mark.parametrize("sizes", [{"hidden": 192}, {"intermediate": 64}])
def test_sizes_that_blocks_do_not_divide_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(errors.MisuseError, match="multiple of 128"):
        BlockFp8Weights(model(**sizes), "cpu")


def test_the_bytes_that_a_pass_touches_are_those_of_one_byte_weights() -> None:
    # Four experts of three matrices of 128 x 256.
    assert bytes_between_uses(model(), [work()]) == 4 * 3 * 128 * 256


def test_the_reference_is_the_product_of_dequantised_weights_and_quantised_activations() -> None:
    weights, one = BlockFp8Weights(model(), "cpu"), work([(2, 0)])
    scale13, scale2 = weights.scales_of(0)
    hidden = quantised_groups(weights.drawn(1, 5).double())[0].numpy()
    expected = np.zeros(256)
    for expert in (2, 0):
        w13 = weights.w13[0][expert].double().numpy() * np.kron(scale13[expert].double().numpy(), np.ones((128, 128)))
        w2 = weights.w2[0][expert].double().numpy() * np.kron(scale2[expert].double().numpy(), np.ones((128, 128)))
        gate, up = np.split(w13 @ hidden, 2)
        inner = quantised_groups(torch.from_numpy(gate / (1 + np.exp(-gate)) * up)[None])[0].numpy()
        expected += 0.5 * (w2 @ inner)
    assert np.allclose(weights.reference(one, 5)[0].numpy(), expected, rtol=1e-12)


# the runner, with a stand-in of vLLM on the host


def test_what_vllm_computes_passes_well_within_the_bound(vllm: Vllm) -> None:
    checked = make_runner(NAME, model()).check(work(), draw=3)
    assert checked.passed
    assert 1e-3 < checked.relative_error < 2.5e-2
    assert checked.bound == 3e-2


def test_a_kernel_that_leaves_its_activations_unquantised_fails(vllm: Vllm) -> None:
    runner = make_runner(NAME, model())
    vllm.quantises = False
    assert not runner.check(work()).passed


@pytest.mark.parametrize("which", ["w1_scale", "w2_scale"])
def test_a_kernel_that_takes_one_block_with_another_scale_fails(vllm: Vllm, which: str) -> None:
    runner = make_runner(NAME, model())
    before = vllm._in_blocks
    broken = {"w1_scale": runner.weights.scales_of(0)[0], "w2_scale": runner.weights.scales_of(0)[1]}
    broken[which] = broken[which].clone()
    broken[which][3, 0, 0] *= 2.0

    class Broken:
        w1_scale, w2_scale = broken["w1_scale"], broken["w2_scale"]

    vllm._in_blocks = lambda quant, **given: before(Broken, **given)
    assert not runner.check(work()).passed


def test_each_layer_runs_with_the_scales_of_its_own_set(vllm: Vllm) -> None:
    runner = make_runner(NAME, model(sets=2))
    first = Work(iteration=0, layer=0, rank=0, topk_ids=work().topk_ids, topk_weights=None, expert_map=None)
    assert runner.check(first).passed
    assert runner.check(work()).passed


def test_a_row_says_how_weights_and_activations_were_quantised(vllm: Vllm) -> None:
    facts = make_runner(NAME, model()).facts(COLD, [work()])
    assert facts["weights"] == (
        "random-normal seed 0, 1 sets, float8_e4m3fn in blocks of 128 x 128 with float32 scales"
    )
    assert facts["activations"] == "random-normal seed 0, quantised by token and group of 128"


def test_a_configuration_is_looked_up_by_the_format_and_the_blocks(vllm: Vllm) -> None:
    runner = make_runner(NAME, model())
    assert runner.kernel_config_digest(work()) == record_digest(FOUND)
    assert vllm.asked == [((4, 256, 256), (4, 256, 128), 2, "fp8_w8a8", 4, [128, 128])]


@pytest.mark.parametrize(
    ("answer", "found"),
    [(True, "power-of-two scales"), (AssertionError(), "a DeepGEMM that cannot be loaded")],
)
def test_other_scales_are_refused_since_other_kernels_run_with_them(vllm: Vllm, answer: object, found: str) -> None:
    vllm.power_of_two_scales = answer
    with pytest.raises(errors.MisuseError, match=rf"{found}(.|\n)*VLLM_USE_DEEP_GEMM=0"):
        make_runner(NAME, model())


# the kind


def test_a_capture_in_bfloat16_is_run_in_the_format_of_the_kind() -> None:
    assert numeric_format_in(NAME, "bfloat16") == "fp8_w8a8_block"
    assert numeric_format_in("vllm_triton_moe", "bfloat16") == "bfloat16"
    assert numeric_format_in("torch_moe", "float32") == "float32"


def test_the_kind_begins_with_the_quantisation_and_no_trace_has_confirmed_it() -> None:
    kind = kernel_kind(NAME)
    assert kind.boundary[0] == "prepare"
    assert [variant.prefix[0] for variant in kind.variants] == ["quant"] * 5
    assert not any(variant.confirmed_by_trace for variant in kind.variants)
