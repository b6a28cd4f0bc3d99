"""One vLLM engine with a Laguna model, served in this process: tokens, logits, and what its layers did. Run as a child.

``python -m moegauge.adapters.vllm.laguna_served MODEL RESULT.npz RESULT.json``: MODEL is a folder with config.json, and
with weights on the host; on a device they are drawn. What is on is said by the environment.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from moegauge.adapters.vllm.random_weights import draw_weights

PROMPT_LENGTHS = (8, 3, 5, 7, 2, 6, 4, 9)
"""Eight sequences: their first step is a prompt of 44 rows, and then each gives one token a step."""
MAX_TOKENS = (12, 12, 12, 12, 12, 12, 9, 6)
"""Eight rows a step until the last ends, then seven, then six."""
EIGHT = (3, 1, 4, 1, 5, 9, 2, 6)
"""A prompt of eight rows, which is not a decode step."""


def route_on_host() -> None:
    """Give Laguna's layers one expert group: vLLM 0.32.0 has sigmoid routing on the host for grouped experts alone."""
    from vllm.model_executor.models import laguna  # noqa: PLC0415 - on the host alone

    original = laguna.FusedMoEFactory

    @functools.wraps(original)
    def grouped(**given: Any) -> Any:
        return original(**given | {"use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1})

    laguna.FusedMoEFactory = grouped


def engine(model: Path, **more: Any) -> Any:
    """An eager engine in this process."""
    from vllm import LLM  # noqa: PLC0415 - slow
    from vllm.platforms import current_platform  # noqa: PLC0415

    arguments: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "enforce_eager": True,
        "seed": 0,
        "max_model_len": 256,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    if current_platform.is_cpu():
        route_on_host()
    else:
        arguments |= {"load_format": "dummy", "moe_backend": "triton", "gpu_memory_utilization": 0.5}
    made = LLM(model=str(model), **arguments | more)
    if not current_platform.is_cpu():
        draw_weights(worker_of(made).model_runner.model, seed=0)
    return made


def worker_of(llm: Any) -> Any:
    """The worker of an engine in this process."""
    found: list[Any] = []
    llm.collective_rpc(found.append)
    return found[0]


def serve(llm: Any) -> tuple[list[list[int]], list[torch.Tensor]]:
    """Greedy tokens of every sequence and the logits of every step."""
    from vllm import SamplingParams  # noqa: PLC0415

    model = worker_of(llm).model_runner.model
    logits: list[torch.Tensor] = []
    compute = model.compute_logits

    def watched(*args: Any, **kwargs: Any) -> Any:
        found = compute(*args, **kwargs)
        logits.append(found.detach().cpu().clone())
        return found

    model.compute_logits = watched
    vocabulary = int(llm.llm_engine.vllm_config.model_config.get_vocab_size())
    random = np.random.default_rng(0)
    prompts = [random.integers(3, vocabulary, length).tolist() for length in PROMPT_LENGTHS]
    try:
        tokens = []
        for group, limits in (([list(EIGHT)], (4,)), (prompts, MAX_TOKENS)):
            sampling = [
                SamplingParams(temperature=0.0, max_tokens=limit, ignore_eos=True, detokenize=False) for limit in limits
            ]
            given = [{"prompt_token_ids": one} for one in group]
            tokens += [list(one.outputs[0].token_ids) for one in llm.generate(given, sampling, use_tqdm=False)]
    finally:
        del model.compute_logits
    return tokens, logits


def against_oracle(worker: Any) -> Counter[str]:
    """Hold the output of each treated call against the host oracle from now on; the counts, still growing."""
    from moegauge.adapters.vllm.laguna_m8 import LagunaM8Runner  # noqa: PLC0415 - needs a selector
    from moegauge.lanes.laguna_m8.sequence import FINAL, gather_finalize  # noqa: PLC0415

    counted: Counter[str] = Counter()
    for runner in worker.model_runner.model.modules():
        if not isinstance(runner, LagunaM8Runner) or runner.lane is None:
            continue
        lane = runner.lane

        def combined(
            routed: Any, shared: Any, out: Any, *, seen: list[Any], original: Any = lane.combined
        ) -> torch.Tensor:
            found: torch.Tensor = original(routed, shared, out)
            rows, weights = seen.pop()
            expected = gather_finalize(_words(rows), _bits(weights), _words(shared))[FINAL].words
            counted["calls"] += 1
            counted["words"] += expected.size
            counted["different"] += int((expected != _words(found)).sum())
            return found

        def routed(
            rows: Any, weights: Any, shared: Any, out: Any, *, seen: list[Any], original: Any = lane.routed
        ) -> Any:
            seen.append((rows.clone(), weights.clone()))
            return original(rows, weights, shared, out)

        seen: list[Any] = []
        lane.combined = functools.partial(combined, seen=seen)  # type: ignore[method-assign]
        lane.routed = functools.partial(routed, seen=seen)  # type: ignore[method-assign]
    return counted


def _words(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().view(torch.uint16).numpy()


def _bits(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().view(torch.int32).numpy().view(np.uint32)


def device_launches(llm: Any) -> dict[str, int]:
    """Kernels of the lane that the device ran while everything was served once more, by name; empty on the host."""
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    with profile(activities=[ProfilerActivity.CUDA]) as taken:
        serve(llm)
    names = ("moe_gather", "scale_add", "gather_finalize")
    found = Counter(event.name for event in taken.events() if event.name in names)
    return dict(found)


def main() -> None:
    """Serve twice: once for tokens and logits, once under a profiler where there is one."""
    model, arrays, report = (Path(one) for one in sys.argv[1:4])
    import vllm  # noqa: PLC0415
    from vllm.model_executor.custom_op import op_registry_oot  # noqa: PLC0415
    from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415

    llm = engine(model)
    worker = worker_of(llm)
    treated = hasattr(worker, "moegauge_lane_counts")
    counted = against_oracle(worker) if treated else Counter()
    tokens, logits = serve(llm)
    found: dict[str, Any] = {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "host",
        "tokens": tokens,
        "num_rows_of_steps": [int(one.shape[0]) for one in logits],
        "runners": sorted({type(one).__name__ for one in _runners(worker)}),
        "replaced_layers": sorted(op_registry_oot),
        "plugin_patched_worker": hasattr(Worker.load_model, "moegauge"),
        "layers": worker.moegauge_lane_counts() if treated else {},
        "oracle": dict(counted),
    }
    words = [one.contiguous().view(torch.int16 if one.dtype == torch.bfloat16 else torch.int32) for one in logits]
    np.savez(arrays, *[one.numpy() for one in words])
    found["device_launches"] = device_launches(llm)
    report.write_text(json.dumps(found, indent=1) + "\n")
    llm.llm_engine.engine_core.shutdown()


def _runners(worker: Any) -> list[Any]:
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner  # noqa: PLC0415

    return [one for one in worker.model_runner.model.modules() if isinstance(one, MoERunner)]


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    main()
