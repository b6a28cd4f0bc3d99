"""A vLLM engine in the test's own process, with the recorder attached and what its experts saw kept beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moegauge.adapters.vllm.models import write_checkpoint
from moegauge.adapters.vllm.plugin import CAPTURE
from moegauge.adapters.vllm.settings import write_control

WATCHED_LAYER = 2
"""The layer whose inputs and outputs are kept."""
ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip

Prompt = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of the watched layer's operation: what went in, and what came out."""

    hidden_states: torch.Tensor
    output: torch.Tensor
    w13: torch.Tensor
    w2: torch.Tensor
    activation: str
    isa: str


@dataclass
class Served:
    """The engine.

    Attributes:
        llm: vLLM's own. folder: what MOEGAUGE_CAPTURE names. recorder: the one attached to its worker.
        official: ids of each step from vLLM's own RoutedExpertsCapturer, [tokens, layers, top_k].
        calls: of the watched layer, one a step.
    """

    llm: Any
    folder: Path
    recorder: Any
    official: list[NDArray[Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def generate(self, prompts: Sequence[Prompt], max_tokens: Sequence[int]) -> list[list[int]]:
        """Greedy tokens of each prompt."""
        given = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs = self.llm.generate(given, [greedy(number) for number in max_tokens], use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in outputs]

    def take(self, name: str, serve: Callable[[], object]) -> Path:
        """Record one take of what ``serve`` serves, and end it; its folder."""
        self.official.clear()
        self.calls.clear()
        write_control(self.folder, name)
        try:
            serve()
            self.llm.collective_rpc("moegauge_close")
        finally:
            write_control(self.folder, "off")
        return self.folder / name


def greedy(max_tokens: int) -> Any:
    """Sampling that leaves nothing to chance, and exactly so many tokens."""
    from vllm import SamplingParams  # noqa: PLC0415 - after the environment is set

    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)


def start_engine(folder: Path) -> Served:
    """Start the engine with the recorder in it, off; the caller restores the environment."""
    os.environ.update(ENGINE_ENVIRONMENT | {CAPTURE: str(folder / "recording")})
    from vllm import LLM  # noqa: PLC0415 - after the environment is set

    (folder / "recording").mkdir()
    write_control(folder / "recording", "off")
    write_checkpoint("tiny-qwen3-moe", folder / "model", seed=0)
    llm = LLM(
        model=str(folder / "model"), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, seed=0,
        max_model_len=256, max_num_seqs=4, max_num_batched_tokens=32, enable_prefix_caching=False,
        async_scheduling=False,
    )  # fmt: skip
    workers: list[Any] = []
    llm.collective_rpc(workers.append)
    served = Served(llm, folder / "recording", workers[0].moegauge_recorder)
    _watch_routes(served)
    _watch_layer(served)
    return served


def stop_engine(served: Served) -> None:
    """Free the engine and its model's folder."""
    model = served.folder.parent / "model"
    served.llm.llm_engine.engine_core.shutdown()
    shutil.rmtree(model)


def _watch_routes(served: Served) -> None:
    """Bind vLLM's own capturer of routed experts, which its option allows with another model runner alone."""
    from vllm.model_executor.layers.fused_moe.routed_experts_capturer import (  # noqa: PLC0415
        RoutedExpertsCapturer,
        bind_routed_experts_capturer,
    )

    runner = served.recorder.runner
    config = runner.vllm_config
    capturer = RoutedExpertsCapturer(config.scheduler_config.max_num_batched_tokens, config)
    bind_routed_experts_capturer(runner.model, capturer)
    execute = runner.execute_model

    def watched(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        result = execute(scheduled, *args, **kwargs)
        tokens = scheduled.total_num_scheduled_tokens
        if tokens:
            served.official.append(capturer.snapshot_routing_data(tokens).numpy().astype(np.int32))
        return result

    runner.execute_model = watched


def _watch_layer(served: Served) -> None:
    layer = next(one for one in served.recorder.layers if one.number == WATCHED_LAYER)
    experts, apply = layer.experts, layer.experts.apply

    def watched(*args: Any, **kwargs: Any) -> Any:
        hidden_states = kwargs["hidden_states"].clone()
        result = apply(*args, **kwargs)
        parts = (kwargs["output"].clone(), kwargs["w1"].data, kwargs["w2"].data, kwargs["activation"].value)
        served.calls.append(Call(hidden_states, *parts, experts.isa))
        return result

    experts.apply = watched
