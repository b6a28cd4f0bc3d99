"""An engine process: serves a workload several times, and tells the recorder in its workers when. Run by jobs.

``python -m moegauge.adapters.vllm.offline RUN.json RUNS.jsonl``: reads an EngineRun, appends a TimedRun for each run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moegauge.adapters.routes.bundle import OFFICIAL_NAME
from moegauge.adapters.vllm.models import write_checkpoint, write_config
from moegauge.adapters.vllm.settings import write_control
from moegauge.evidence.digest import record_digest
from moegauge.evidence.store import read_bytes
from moegauge.records.schema import decode_record
from moegauge.records.serving_run import ABSENT, PAUSED, RECORDING, EngineRun, ServedRequest, TimedRun

SAYS = "moegauge: "
"""What this process says of its progress begins so, and is one line of ``<done> <total> <what>``."""


UNKEPT = 100000
"""Number of the first take that is recorded only to be timed."""


def main() -> None:
    """Serve what the first argument says and write what it took to the second."""
    run_path, result_path, process = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    run = decode_record(read_bytes(run_path), EngineRun, where=str(run_path))
    lines = read_bytes(Path(run.workload)).splitlines()
    requests = [msgspec.json.decode(line, type=ServedRequest) for line in lines if line]
    recording = None if run.recording is None else Path(run.recording)
    if recording is not None:
        recording.mkdir(parents=True, exist_ok=True)
        write_control(recording, "off")
    _say("starting the engine", 0, 1)
    engine = _engine(run)
    plan = _plan(run)
    for number, one in enumerate(plan):
        _say("warming up" if one.warm_up else "serving", number, len(plan))
        if recording is not None and one.recorder == RECORDING:
            write_control(recording, one.take or f"take-{UNKEPT + number} unprofiled")
        start = time.perf_counter_ns()
        outputs = _serve(engine, requests)
        wall_ns = time.perf_counter_ns() - start
        if recording is not None:
            engine.collective_rpc("moegauge_close")
            write_control(recording, "off")
        if not one.warm_up:
            digest = record_digest([list(output.outputs[0].token_ids) for output in outputs])
            timed = TimedRun(
                process=process, recorder=one.recorder, take=one.take, wall_ns=wall_ns, outputs_digest=digest
            )
            with result_path.open("ab") as file:
                file.write(msgspec.json.encode(timed) + b"\n")
        if one.take is not None and recording is not None and run.export_routes:
            _export_routes(recording / one.take, requests, outputs)
    _say("serving", len(plan), len(plan))


@dataclass(frozen=True)
class _Planned:
    """One run: what the recorder does in it, and the take it becomes."""

    recorder: str
    take: str | None = None
    warm_up: bool = False


def _plan(run: EngineRun) -> list[_Planned]:
    """Warm-up of each kind, then timed runs (paused and recording, each first in every other turn), then takes."""
    kinds = [ABSENT] if run.recording is None else [PAUSED, RECORDING]
    warm_up = [_Planned(kind, warm_up=True) for _ in range(run.num_warm_up) for kind in kinds]
    timed = [_Planned(kind) for turn in range(run.num_timed) for kind in (kinds if turn % 2 == 0 else kinds[::-1])]
    return warm_up + timed + [_Planned(RECORDING, take) for take in run.takes]


def _engine(run: EngineRun) -> Any:
    from vllm import LLM  # noqa: PLC0415 - slow, and the model is written first

    if run.built_in is not None:
        if run.checkpoint:
            write_checkpoint(run.built_in, Path(run.model), seed=run.seed)
        else:
            write_config(run.built_in, Path(run.model))
    return LLM(model=run.model, **run.arguments)


def _serve(engine: Any, requests: Sequence[ServedRequest]) -> list[Any]:
    from vllm import SamplingParams  # noqa: PLC0415

    prompts = [{"prompt_token_ids": list(request.prompt_token_ids)} for request in requests]
    sampling = [
        SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True, detokenize=False)
        for request in requests
    ]
    return list(engine.generate(prompts, sampling, use_tqdm=False))


def _export_routes(folder: Path, requests: Sequence[ServedRequest], outputs: Sequence[Any]) -> None:
    """The engine's own export of routed experts, in the form of docs/formats/bundle.md."""
    routes = {f"r{number}": one.outputs[0].routed_experts for number, one in enumerate(outputs)}
    if any(route is None for route in routes.values()):
        return
    np.savez_compressed(
        folder / OFFICIAL_NAME,
        prompt_len=np.array([len(request.prompt_token_ids) for request in requests]),
        out_len=np.array([len(one.outputs[0].token_ids) for one in outputs]),
        **routes,
    )


def _say(what: str, done: int, total: int) -> None:
    sys.stdout.write(f"{SAYS}{done} {total} {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
