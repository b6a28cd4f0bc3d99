"""Files of tuned configurations: what is read of them, and that the vLLM runner runs with what they say."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from moegauge import errors
from moegauge.adapters.runners.kernel_config import KernelConfig, read_kernel_config
from moegauge.adapters.runners.registry import make_runner
from moegauge.adapters.runners.work import ModelSpec, RunCondition, Work
from moegauge.evidence.digest import record_digest
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode

SMALL = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
LARGE = SMALL | {"BLOCK_SIZE_M": 128, "GROUP_SIZE_M": 16, "num_warps": 8}
FOUND = SMALL | {"BLOCK_SIZE_N": 32}
"""What the stand-in of vLLM takes by itself."""
HEURISTIC = SMALL | {"BLOCK_SIZE_K": 64}
"""What its heuristic gives."""


def written(folder: Path, content: object) -> Path:
    path = folder / "tuned.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# the file


def test_the_digest_is_that_of_the_files_bytes_and_the_version_of_triton_is_no_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, {"triton_version": "3.4.0", "16": SMALL, "4096": LARGE})
    config = read_kernel_config(path)
    assert config.by_rows == {16: SMALL, 4096: LARGE}
    assert config.digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize(("rows", "block"), [(1, 128), (20, 128), (21, 16), (24, 16), (28, 16), (29, 64), (9999, 64)])
def test_the_nearest_number_of_rows_is_taken_and_the_earlier_one_of_two_as_near(
    tmp_path: Path, rows: int, block: int
) -> None:
    # 20 is as near to 16 as to 24, and 28 to 24 and 32; the file has 16 before 24 before 32.
    entries = {"16": SMALL | {"BLOCK_SIZE_M": 128}, "24": SMALL, "32": SMALL | {"BLOCK_SIZE_M": 64}}
    assert read_kernel_config(written(tmp_path, entries)).of_rows(rows)["BLOCK_SIZE_M"] == block


def test_of_two_as_near_the_order_of_the_file_decides_and_not_the_size(tmp_path: Path) -> None:
    entries = {"24": SMALL, "16": LARGE}
    assert read_kernel_config(written(tmp_path, entries)).of_rows(20) == SMALL


def test_what_is_taken_can_be_changed_without_changing_the_next(tmp_path: Path) -> None:
    config = read_kernel_config(written(tmp_path, {"16": SMALL}))
    config.of_rows(16).clear()
    assert config.of_rows(16) == SMALL


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "Expecting property name"),
        ([SMALL], "a JSON list"),
        ({}, "no configuration"),
        ({"triton_version": "3.4.0"}, "no configuration"),
        ({"many": SMALL}, "the key 'many'"),
        ({"-1": SMALL}, "the key '-1'"),
        ({"016": SMALL}, "the key '016'"),
        ({"16": 4}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": "4"}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": True}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL | {"num_warps": 4.0}}, "something else than whole numbers by name for 16 rows"),
        ({"16": SMALL, "32": {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1}}, "no BLOCK_SIZE_N, BLOCK_SIZE_K for 32 rows"),
    ],
)
def test_a_file_of_something_else_is_malformed(tmp_path: Path, content: object, found: str) -> None:
    with pytest.raises(errors.MalformedFile, match=found):
        read_kernel_config(written(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFile, match=r"nowhere\.json"):
        read_kernel_config(tmp_path / "nowhere.json")


@pytest.mark.parametrize("name", ["torch_moe", "vllm_cpu_moe"])
def test_a_runner_whose_kernel_has_no_configurations_refuses_them(name: str) -> None:
    with pytest.raises(errors.MisuseError, match="--kernel-config"):
        make_runner(name, MODEL, KernelConfig({16: SMALL}, "sha256:00"))


# the runner, with a stand-in of vLLM on the host

MODEL = ModelSpec(
    shape=ModelShape(hidden_size=16, intermediate_size=8, num_experts=4, top_k=2),
    num_local_experts=4,
    numeric_format="float32",
    layers=(0,),
    num_weight_sets=1,
    seed=0,
)


NVML = ("nvmlInit", "nvmlShutdown", "nvmlSystemGetCudaDriverVersion_v2")
LOADED = (
    "moegauge.adapters.devices.cuda",
    "moegauge.adapters.runners.vllm_triton_moe",
    "moegauge.adapters.runners.triton_choice",
    "moegauge.adapters.runners.triton_trials",
)
"""What is loaded with the stand-in, and must not outlive a test."""


class Vllm:
    """What the runner uses of vLLM: one setting for the process, read while a kernel is launched.

    Attributes:
        setting: what override_config has set. launched: the configuration of each launch.
    """

    def __init__(self) -> None:
        self.setting: dict[str, int] | None = None
        self.launched: list[dict[str, int]] = []

    @contextmanager
    def override_config(self, config: dict[str, int] | None) -> Iterator[None]:
        before, self.setting = self.setting, config
        yield
        self.setting = before

    def optimal(self, *shapes_and_rows: object, block_shape: object = None) -> dict[str, int]:
        return self.setting or FOUND

    def experts(self, *configs: object) -> Any:
        from moegauge.adapters.runners.moe_forward import moe_forward  # noqa: PLC0415 - torch is loaded by these tests only

        def apply(**given: Any) -> None:
            self.launched.append(self.optimal())
            ids, weights = given["topk_ids"].long(), given["topk_weights"]
            given["output"].copy_(moe_forward(given["hidden_states"], given["w1"], given["w2"], ids, weights))

        return SimpleNamespace(apply=apply)

    def modules(self) -> Iterator[ModuleType]:
        unquantized = SimpleNamespace(config_name=lambda dtype: None)
        base = "vllm.model_executor.layers.fused_moe"
        contents: dict[str, dict[str, Any]] = {
            "pynvml": dict.fromkeys(NVML, lambda: 13000),
            "vllm": {"__version__": "0.25.1"},
            base: {"override_config": self.override_config},
            f"{base}.activation": {"MoEActivation": SimpleNamespace(SILU="silu")},
            f"{base}.config": {
                "FUSED_MOE_UNQUANTIZED_CONFIG": unquantized,
                "FusedMoEConfig": SimpleNamespace,
                "FusedMoEParallelConfig": SimpleNamespace(make_no_parallel=lambda: None),
                "RoutingMethodType": SimpleNamespace(Renormalize=0),
            },
            f"{base}.experts.triton_moe": {"TritonExperts": self.experts},
            f"{base}.fused_moe": {
                "try_get_optimal_moe_config": self.optimal,
                "get_default_config": lambda *problem: HEURISTIC,
                "get_config_file_name": lambda experts, width, *_: f"E={experts},N={width},device_name=Simulated_GPU.json",
            },
        }  # fmt: skip
        for name, content in contents.items():
            module = ModuleType(name)
            vars(module).update(content)
            yield module


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    torch = pytest.importorskip("torch")
    stand_in = Vllm()
    for module in stand_in.modules():
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for package in (
        "vllm.model_executor",
        "vllm.model_executor.layers",
        "vllm.model_executor.layers.fused_moe.experts",
    ):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    forget(LOADED)
    made = import_module("moegauge.adapters.runners.vllm_triton_moe")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getCompiledVersion", lambda: 13000, raising=False)
    on_host = made.MoeWeights
    monkeypatch.setattr(made, "MoeWeights", lambda model, device: on_host(model, "cpu"))
    monkeypatch.setattr(made.cuda, "model_name", lambda: "Simulated GPU")
    monkeypatch.setattr(made.cuda, "last_level_cache_bytes", lambda: 1)
    yield stand_in
    forget(LOADED)


def forget(names: tuple[str, ...]) -> None:
    """Let the next import of some modules load them anew."""
    for name in names:
        package, _, last = name.rpartition(".")
        sys.modules.pop(name, None)
        vars(import_module(package)).pop(last, None)


def work(rows: int) -> Work:
    ids = np.array([[0, 1], [2, 3]] * (rows // 2), dtype=np.int32)
    return Work(iteration=0, layer=0, rank=0, topk_ids=ids, topk_weights=None, expert_map=None)


GIVEN = KernelConfig({4: SMALL, 64: LARGE}, "sha256:" + "1" * 64)
WARM = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="warm")


def test_each_call_is_launched_with_the_configuration_of_its_rows_and_nothing_stays_set(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL, GIVEN)
    assert all(runner.check(work(rows)).passed for rows in (4, 64, 6))
    assert vllm.launched == [SMALL, LARGE, SMALL]
    assert vllm.setting is None


def test_without_a_file_vllm_takes_what_it_finds_whatever_another_call_left_set(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL)
    vllm.setting = LARGE
    assert runner.check(work(4)).passed
    assert vllm.launched == [FOUND]
    assert runner.kernel_config_digest(work(4)) == record_digest(FOUND)


def test_rows_record_the_digest_of_the_file_and_of_the_configuration_that_was_taken(vllm: Vllm) -> None:
    runner = make_runner("vllm_triton_moe", MODEL, GIVEN)
    assert runner.facts(WARM, [work(4)])["kernel_config"] == "sha256:" + "1" * 64
    assert runner.kernel_config_digest(work(4)) == record_digest(SMALL)
    assert runner.kernel_config_digest(work(64)) == record_digest(LARGE)
    assert "kernel_config" not in make_runner("vllm_triton_moe", MODEL).facts(WARM, [work(4)])
