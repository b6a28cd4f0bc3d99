"""A stand-in for what the runners of Triton experts use of vLLM, on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

FOUND = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}
"""What it takes by itself."""
HEURISTIC = FOUND | {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64}
"""What its heuristic gives."""

NVML = ("nvmlInit", "nvmlShutdown", "nvmlSystemGetCudaDriverVersion_v2")
RUNNERS = "moegauge.adapters.runners"
LOADED = (
    "moegauge.adapters.devices.cuda",
    f"{RUNNERS}.vllm_triton_moe",
    f"{RUNNERS}.vllm_triton_moe_fp8_block",
    f"{RUNNERS}.triton_choice",
    f"{RUNNERS}.triton_trials",
)
"""What is loaded with the stand-in, and must not outlive a test."""
LAYERS = "vllm.model_executor.layers"
PACKAGES = (
    "vllm.model_executor",
    LAYERS,
    f"{LAYERS}.fused_moe.experts",
    f"{LAYERS}.quantization",
    f"{LAYERS}.quantization.utils",
)


class Vllm:
    """What the runners use of vLLM: one setting for the process, read while a kernel is launched.

    Attributes:
        setting: what override_config has set. launched: the configuration of each launch.
        fails: raised by the next launches, by BLOCK_SIZE_M.
        power_of_two_scales: what it says of DeepGEMM's scales, or raises. quantises: whether activations are quantised.
        asked: what each lookup of a configuration was made by.
    """

    def __init__(self) -> None:
        self.setting: dict[str, int] | None = None
        self.launched: list[dict[str, int]] = []
        self.fails: dict[int, Exception] = {}
        self.power_of_two_scales: object = False
        self.quantises = True
        self.asked: list[tuple[object, ...]] = []

    @contextmanager
    def override_config(self, config: dict[str, int] | None) -> Iterator[None]:
        before, self.setting = self.setting, config
        yield
        self.setting = before

    def optimal(self, *problem: object, block_shape: object = None) -> dict[str, int]:
        self.asked.append((*problem, block_shape))
        return self.setting or FOUND

    def heuristic(self, *problem: object) -> dict[str, int]:
        self.asked.append(problem)
        return HEURISTIC

    def experts(self, _: object, quant: Any) -> Any:
        apply = self._plain if quant.w1_scale is None else lambda **given: self._in_blocks(quant, **given)

        def launch(**given: Any) -> None:
            self.launched.append(self.setting or FOUND)
            failure = self.fails.get(self.launched[-1]["BLOCK_SIZE_M"])
            if failure is not None:
                raise failure
            given["output"].copy_(apply(**given))

        return SimpleNamespace(apply=launch)

    def _plain(self, **given: Any) -> Any:
        from moegauge.adapters.runners.moe_forward import moe_forward  # noqa: PLC0415 - torch is loaded by these tests only

        ids, weights = given["topk_ids"].long(), given["topk_weights"]
        return moe_forward(given["hidden_states"], given["w1"], given["w2"], ids, weights)

    def _in_blocks(self, quant: Any, **given: Any) -> Any:
        """The kernels of the FP8 path, slot by slot: both products in float32, their results in bfloat16."""
        import torch  # noqa: PLC0415 - torch is loaded by these tests only

        def matrix(words: Any, scale: Any, expert: int) -> Any:
            blocks = words[expert].float().clone()
            for row in range(scale.shape[1]):
                for column in range(scale.shape[2]):
                    part = blocks[128 * row : 128 * (row + 1), 128 * column : 128 * (column + 1)]
                    part *= scale[expert, row, column]
            return blocks

        out = torch.zeros(given["output"].shape)
        for row, ids in enumerate(given["topk_ids"].tolist()):
            hidden = given["hidden_states"][row].float() * given["a1q_scale"][row].repeat_interleave(128)
            for slot, expert in enumerate(ids):
                both = (matrix(given["w1"], quant.w1_scale, expert) @ hidden).bfloat16().float()
                gate, up = both.chunk(2)
                inner = gate * torch.sigmoid(gate) * up
                words, scale = self.quantise(inner[None], per_act_token_quant=False, block_shape=None)
                inner = words[0].float() * scale[0].repeat_interleave(128)
                down = matrix(given["w2"], quant.w2_scale, expert) @ inner * given["topk_weights"][row, slot]
                out[row] += down.bfloat16().float()
        return out.bfloat16()

    def quantise(self, hidden: Any, *_: object, per_act_token_quant: bool, block_shape: object) -> tuple[Any, Any]:
        """(e4m3 words, a scale for each 128) of each row."""
        import torch  # noqa: PLC0415 - torch is loaded by these tests only

        if not self.quantises:
            return hidden, torch.ones(len(hidden), hidden.shape[1] // 128)
        parts = [row.float().split(128) for row in hidden]
        scale = torch.tensor([[float(part.abs().max()) / 448.0 for part in row] for row in parts])
        words = [
            torch.cat([part / s for part, s in zip(row, own, strict=True)])
            for row, own in zip(parts, scale, strict=True)
        ]
        return torch.stack(words).to(torch.float8_e4m3fn), scale

    def uses_power_of_two_scales(self) -> object:
        if isinstance(self.power_of_two_scales, Exception):
            raise self.power_of_two_scales
        return self.power_of_two_scales

    def modules(self) -> Iterator[ModuleType]:
        unquantized = SimpleNamespace(config_name=lambda dtype: None, w1_scale=None)
        base = f"{LAYERS}.fused_moe"
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
                "fp8_w8a8_moe_quant_config": lambda **given: SimpleNamespace(
                    config_name=lambda dtype: "fp8_w8a8", **given
                ),
            },
            f"{base}.experts.triton_moe": {"TritonExperts": self.experts},
            f"{base}.fused_moe": {
                "try_get_optimal_moe_config": self.optimal,
                "get_default_config": self.heuristic,
                "get_config_file_name": lambda e, n, *_: f"E={e},N={n},device_name=Simulated_GPU.json",
            },
            f"{base}.utils": {"moe_kernel_quantize_input": self.quantise},
            f"{LAYERS}.quantization.utils.fp8_utils": {"is_deep_gemm_e8m0_used": self.uses_power_of_two_scales},
        }  # fmt: skip
        for name, content in contents.items():
            module = ModuleType(name)
            vars(module).update(content)
            yield module


def forget(names: tuple[str, ...]) -> None:
    """Let the next import of some modules load them anew."""
    for name in names:
        package, _, last = name.rpartition(".")
        sys.modules.pop(name, None)
        vars(import_module(package)).pop(last, None)
