"""The Triton kernels in the interpreter, what CUDA makes of them, and the checks before every launch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from moegauge.lanes.laguna_m8.contract import ContractBroken
from moegauge.lanes.laguna_m8.sequence import TOP_K

pytest.importorskip("triton", reason="the kernels are Triton")

from moegauge.adapters.lanes.laguna_m8 import launch
from moegauge.adapters.lanes.laguna_m8.builds import BUILDS, Tile
from moegauge.adapters.lanes.laguna_m8.compiled import (
    PTX_COUNTED,
    SASS_COUNTED,
    compiled,
    counted,
    loads_before_first_sum,
    problems,
)

EDGES = ("signed-zero", "nan", "infinity", "sum-fma", "weight-edges")
PACKAGE = "moegauge.adapters.lanes.laguna_m8"


def interpreted(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module under the interpreter, which has to be chosen before Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", *(("-c", module) if " " in module else ("-m", module)), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_every_kernel_gives_the_oracles_words_in_the_interpreter(tmp_path: Path) -> None:
    out = tmp_path / "words.json"
    done = interpreted(
        f"{PACKAGE}.exactness", "--device", "cpu", "--block", "1024", "--out", str(out), "--families", *EDGES
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(out.read_text())
    assert report["num_fixtures"] == 8
    found = {name: (one["num_words"], one["num_different"]) for name, one in report["kernels"].items()}
    assert found == dict.fromkeys(
        (
            "moe_gather by map routed",
            "moe_gather routed",
            "moe_gather and scale_add final",
            "gather_finalize final",
            "gather_finalize_diagnostic routed",
            "gather_finalize_diagnostic scaled",
            "gather_finalize_diagnostic final",
        ),
        (8 * 8 * 3072, 0),
    )


LEFT_OUT = """
import torch
from moegauge.adapters.lanes.laguna_m8 import launch
from moegauge.adapters.lanes.laguna_m8.builds import Tile
rows = torch.full((80, 3072), float("inf"), dtype=torch.bfloat16)
rows[7] = 3.0
weights = torch.zeros(8, 10)
weights[:, 4] = 2.0
route_map = torch.full((8, 10), -1, dtype=torch.int32)
route_map[:, 4] = 7
routed = torch.empty(8, 3072, dtype=torch.bfloat16)
launch.moe_gather(routed, rows, weights, route_map, tile=Tile(1024, 4))
print(routed.unique().tolist())
"""


def test_a_slot_of_minus_one_adds_nothing_not_even_a_nan() -> None:
    """Zero weight times an infinite row would be a NaN."""
    done = interpreted(LEFT_OUT)
    assert (done.stdout, done.stderr) == ("[6.0]\n", "")


NAIVE = """
import numpy as np, torch
from moegauge.adapters.lanes.laguna_m8 import naive
from moegauge.lanes.laguna_m8.corpus import fixture_spec
from moegauge.lanes.laguna_m8.sequence import gather_finalize
fixture = fixture_spec("all-local").build()
bf16 = lambda words: torch.from_numpy(words.copy()).view(torch.bfloat16)
out = torch.empty(8, 3072, dtype=torch.bfloat16)
naive.gather_finalize[(8, 3)](
    out, bf16(fixture.rows), torch.from_numpy(fixture.weights.view(np.float32).copy()), bf16(fixture.shared),
    hidden=3072, top_k=10, block=1024,
)
words = gather_finalize(fixture.rows, fixture.weights, fixture.shared)["final"].words
print((out.view(torch.uint16).numpy() != words).any())
"""


def test_the_naive_candidate_is_killed_in_the_interpreter() -> None:
    done = interpreted(NAIVE)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.fixture(scope="module", params=sorted(BUILDS))
def built(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    ptx, sass = compiled(BUILDS[request.param], 90, contraction=False)
    return request.param, ptx, sass


def test_cuda_code_has_the_operations_of_the_sequence_and_no_other(built: tuple[str, str, str]) -> None:
    name, ptx, sass = built
    assert problems(BUILDS[name], counted(ptx, PTX_COUNTED), counted(sass, SASS_COUNTED)) == []


def test_contraction_would_be_counted() -> None:
    build = BUILDS["gather_finalize"]
    ptx, sass = compiled(build, 90, contraction=True)
    found = problems(build, counted(ptx, PTX_COUNTED), counted(sass, SASS_COUNTED))
    each = TOP_K * build.tile.block // (32 * build.tile.num_warps)  # columns of a thread, ten products each
    assert f"PTX: {each} of fma" in found
    assert f"SASS: {each} of fma" in found


def test_the_candidate_issues_every_load_before_it_adds() -> None:
    _, sass = compiled(BUILDS["gather_finalize"], 90, contraction=False)
    assert loads_before_first_sum(sass) == counted(sass, SASS_COUNTED)["load"] == 10 + 10 + 1


def tensors() -> dict[str, torch.Tensor]:
    """The candidate's four, on the host."""
    return {
        "out": torch.zeros(8, 3072, dtype=torch.bfloat16),
        "rows": torch.zeros(80, 3072, dtype=torch.bfloat16),
        "weights": torch.zeros(8, 10),
        "shared": torch.zeros(8, 3072, dtype=torch.bfloat16),
    }


@pytest.mark.parametrize(
    ("name", "tensor", "predicate"),
    [
        ("rows", torch.zeros(80, 3072), "rows-dtype"),
        ("rows", torch.zeros(8, 10, 3072, dtype=torch.bfloat16), "rows-shape"),
        ("rows", torch.zeros(3072, 80, dtype=torch.bfloat16).t(), "rows-contiguous"),
        ("weights", torch.zeros(8, 10, dtype=torch.bfloat16), "weights-dtype"),
        ("weights", torch.zeros(81)[1:].view(8, 10), "weights-aligned"),
        ("shared", torch.zeros(7, 3072, dtype=torch.bfloat16), "shared-shape"),
        ("shared", torch.zeros(8 * 3072 + 1, dtype=torch.bfloat16)[1:].view(8, 3072), "shared-aligned"),
        ("shared", torch.zeros(8, 3072, dtype=torch.bfloat16, device="meta"), "shared-aligned"),
        ("out", torch.zeros(8, 3072, dtype=torch.float16), "out-dtype"),
    ],
)
def test_a_wrong_tensor_is_refused_before_a_launch(
    name: str, tensor: torch.Tensor, predicate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "kernels", None)  # a launch would be an AttributeError
    given: dict[str, Any] = tensors() | {name: tensor}
    with pytest.raises(ContractBroken) as broken:
        launch.gather_finalize(**given)
    assert broken.value.predicate == predicate


def test_an_output_that_lies_over_an_input_is_refused_before_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "kernels", None)
    given: dict[str, Any] = tensors()
    with pytest.raises(ContractBroken) as broken:
        launch.gather_finalize(**given | {"out": given["rows"][8:16]})
    assert broken.value.predicate == "no-overlap"
    with pytest.raises(ContractBroken) as broken:
        launch.scale_add(given["shared"], given["shared"], given["out"], tile=Tile(256, 1))
    assert broken.value.predicate == "no-overlap"
