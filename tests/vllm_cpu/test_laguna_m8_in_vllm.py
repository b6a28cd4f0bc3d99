"""Lane laguna_m8 in real vLLM engines on the host: what is served, when the lane acts, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from moegauge.adapters.vllm.expert_rows import unweighted_rows
from moegauge.adapters.vllm.laguna_identity import (
    CANDIDATE,
    ENGINES,
    INCUMBENT,
    NO_PLUGIN,
    OFF,
    checks,
    environment_of,
    report_of,
    serve_all,
)
from moegauge.adapters.vllm.models import write_checkpoint
from moegauge.lanes.laguna_m8.contract import CONTRACTS

CALLS = [
    ["decode", 1, "incumbent", 3], ["decode", 6, "incumbent", 3], ["decode", 7, "incumbent", 3],
    ["decode", 8, "treatment", 5], ["prefill", 8, "incumbent", 1], ["prefill", 44, "incumbent", 1],
]  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("engines")
    return report_of("tiny-laguna-3072", serve_all("tiny-laguna-3072", folder), folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("laguna") / "model"
    write_checkpoint("tiny-laguna-3072", folder, seed=0)
    return folder


def child(what: str, model: Path) -> dict[str, Any]:
    """What the child found, with the selector on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MOEGAUGE_", "VLLM_"))}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("laguna_child.py")), what, str(model)],
        env=environment | environment_of(CANDIDATE, "cpu"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert len(lines) == 1, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("found "))
    return found


@pytest.fixture(scope="module")
def layer(model: Path) -> dict[str, Any]:
    return child("layer", model)


def test_with_the_selector_off_every_word_is_that_of_an_engine_without_the_plugin(report: dict[str, Any]) -> None:
    one = report["comparisons"]["off against no plugin"]
    assert (one["same_steps"], one["same_tokens"], one["num_different"]) == (True, True, 0)
    assert one["num_words"] == (4 + 8 * 6 + 7 * 3 + 6 * 3) * 512


def test_with_the_selector_off_no_class_is_replaced_and_nothing_is_patched(report: dict[str, Any]) -> None:
    for engine in (NO_PLUGIN, OFF):
        one = report["engines"][engine]
        assert (one["runners"], one["plugin_patched_worker"], one["layers"]) == (["MoERunner"], False, {})
        assert "MoERunner" not in one["replaced_layers"]


def test_one_launch_serves_the_words_of_the_two(report: dict[str, Any]) -> None:
    one = report["comparisons"]["candidate against incumbent"]
    assert (one["same_steps"], one["same_tokens"], one["num_different"]) == (True, True, 0)
    assert one["num_words"] == 46592


def test_stock_vllm_is_a_third_path_so_the_lane_did_act(report: dict[str, Any]) -> None:
    assert report["comparisons"]["lane against stock"]["num_different"] > 0


@pytest.mark.parametrize(
    ("engine", "launches"),
    [(CANDIDATE, {"gather_finalize": 5}), (INCUMBENT, {"moe_gather": 5, "scale_add": 5})],
)
def test_decode_steps_of_eight_rows_are_treated_in_each_layer_and_no_others(
    report: dict[str, Any], engine: str, launches: dict[str, int]
) -> None:
    layers = report["engines"][engine]["layers"]
    assert list(layers) == ["model.layers.1.mlp.experts", "model.layers.2.mlp.experts"]
    for one in layers.values():
        assert one == {"calls": CALLS, "launches": launches, "shared_reads": 5}


@pytest.mark.parametrize("engine", [CANDIDATE, INCUMBENT])
def test_every_treated_output_is_the_oracles(report: dict[str, Any], engine: str) -> None:
    assert report["engines"][engine]["oracle"] == {"calls": 10, "words": 10 * 8 * 3072, "different": 0}


def test_all_checks_hold_and_no_endpoint_is_authorized(report: dict[str, Any]) -> None:
    assert report["passed"]
    assert report["endpoint_authorized"] is False
    assert set(report["engines"]) == set(ENGINES)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"layers": {}}, "candidate: every decode step of 8 rows was treated, and no other"),
        ({"layers": {"a": {"calls": CALLS, "launches": {"gather_finalize": 4}, "shared_reads": 5}}},
         "candidate: launches of a layer at a treated step"),
        ({"layers": {"a": {"calls": CALLS, "launches": {"gather_finalize": 5}, "shared_reads": 10}}},
         "candidate: the shared output was read once a treated call"),
        ({"oracle": {"calls": 10, "different": 1}}, "candidate: every treated output is the oracle's"),
    ],
)  # fmt: skip
def test_a_check_that_does_not_hold_is_said(report: dict[str, Any], change: dict[str, Any], check: str) -> None:
    engines = {name: one | {"device": "host"} for name, one in report["engines"].items()}
    engines[CANDIDATE] = engines[CANDIDATE] | change
    held = checks(engines, {})
    assert held[check] is False


@pytest.mark.parametrize(
    ("case", "predicate"),
    [
        ("dbo", "no-dbo"), ("scale", "scale"), ("transform", "no-transform"), ("all-reduce", "all-reduce"),
        ("tensor parallel", "tp"), ("weighted", "unweighted-rows"), ("no kernel", "kernel"),
        ("no place to say so", "combined-output"), ("selector of another platform", "platform"),
        ("more arguments", "combined-output"),
    ],
)  # fmt: skip
def test_a_broken_predicate_is_named_before_anything_of_the_layer_runs(
    layer: dict[str, Any], case: str, predicate: str
) -> None:
    assert layer[case] == {"predicate": predicate, "ran": [], "launched": {}}


@pytest.mark.parametrize("case", ["nothing", "nothing again"])
def test_the_same_layer_is_treated_where_nothing_is_broken(layer: dict[str, Any], case: str) -> None:
    assert layer[case] == {"predicate": None, "ran": ["shared", "rows"], "launched": {"gather_finalize": 1}}


@pytest.mark.parametrize("case", ["seven tokens", "a prompt of eight", "no metadata", "adapters"])
def test_a_call_outside_the_scope_keeps_the_incumbent(layer: dict[str, Any], case: str) -> None:
    assert layer[case] == {"predicate": None, "ran": ["shared"], "launched": {}}


def test_a_layer_that_no_target_model_claimed_keeps_the_incumbent(layer: dict[str, Any]) -> None:
    assert layer["a draft's layer"] == {"gather_finalize": 2}


@pytest.mark.parametrize(("what", "predicate"), [("graph", "eager"), ("lora", "no-lora")])
def test_an_engine_that_could_treat_nothing_does_not_start(model: Path, what: str, predicate: str) -> None:
    assert child(what, model)["where"] == f"vLLM's settings, predicate {predicate}"


def test_another_out_of_tree_runner_is_named(model: Path) -> None:
    found = child("clash", model)
    assert found["expected"] == "no other class in place of MoERunner"
    assert found["found"] == "__main__.OtherRunner"


def test_rows_are_those_of_each_route_before_its_weight() -> None:
    """Against float64, through vLLM's own operation and an experts object of its own."""
    from vllm._custom_ops import cpu_fused_moe, cpu_prepack_moe_weight  # noqa: PLC0415

    random = torch.Generator().manual_seed(0)
    w13, w2 = (
        torch.randn(*shape, generator=random).mul(shape[-1] ** -0.5).bfloat16() for shape in ((4, 64, 96), (4, 96, 32))
    )

    class X86CPUUnquantizedExperts:
        def moe_problem_size(self, hidden: torch.Tensor, *_: Any) -> tuple[int, ...]:
            return 4, hidden.shape[0], 64, 96, 1

        def workspace_shapes(self, *_: Any) -> tuple[tuple[int, ...], ...]:
            return (0,), (0,), (0,)

        def apply(self, **given: Any) -> None:
            cpu_fused_moe(
                given["output"], given["hidden_states"], given["w1"], given["w2"], None, None, given["topk_weights"],
                given["topk_ids"], "silu", "vec", given["apply_router_weight_on_input"],
            )  # fmt: skip

    class Layer:
        global_num_experts, activation, expert_map = 4, "silu", None
        w13_weight, w2_weight = cpu_prepack_moe_weight(w13, "vec"), cpu_prepack_moe_weight(w2, "vec")

        class quant_method:  # noqa: N801
            class moe_kernel:  # noqa: N801
                fused_experts = X86CPUUnquantizedExperts()

    hidden = torch.randn(2, 96, generator=random).bfloat16()
    ids = torch.tensor([[2, 0, 3], [1, 3, 2]], dtype=torch.int32)
    rows = unweighted_rows(Layer, hidden, ids)
    assert rows.shape == (6, 96)
    for number, expert in enumerate(ids.flatten().tolist()):
        gate, up = (w13[expert].double() @ hidden[number // 3].double()).chunk(2)
        expected = w2[expert].double() @ (torch.nn.functional.silu(gate) * up)
        assert (rows[number].double() - expected).norm() < 0.02 * expected.norm()


def test_the_host_has_a_selector_of_its_own() -> None:
    assert environment_of(CANDIDATE, "cpu")[CONTRACTS["cpu"].selector] == "1"
    assert CONTRACTS["cpu"].selector not in environment_of(OFF, "cpu")
    assert CONTRACTS["cuda"].selector != CONTRACTS["cpu"].selector
