"""A fixture: the stand-in of vLLM, in the place of the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from fake_vllm import LOADED, PACKAGES, Vllm, forget


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    torch = import_module("torch")
    stand_in = Vllm()
    for module in stand_in.modules():
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    forget(LOADED)
    made = import_module("moegauge.adapters.runners.vllm_triton_moe")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getCompiledVersion", lambda: 13000, raising=False)
    in_blocks = import_module("moegauge.adapters.runners.vllm_triton_moe_fp8_block")
    on_host, blocks_on_host = made.MoeWeights, in_blocks.BlockFp8Weights
    monkeypatch.setattr(made, "MoeWeights", lambda model, device: on_host(model, "cpu"))
    monkeypatch.setattr(in_blocks, "BlockFp8Weights", lambda model, device: blocks_on_host(model, "cpu"))
    monkeypatch.setattr(made.cuda, "model_name", lambda: "Simulated GPU")
    monkeypatch.setattr(made.cuda, "last_level_cache_bytes", lambda: 1)
    yield stand_in
    forget(LOADED)
