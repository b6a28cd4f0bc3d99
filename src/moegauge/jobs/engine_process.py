"""An engine in a process of its own: its environment, its progress, and how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec

from moegauge import errors
from moegauge.adapters.vllm.offline import SAYS
from moegauge.adapters.vllm.plugin import CAPTURE, RANDOM_WEIGHTS
from moegauge.adapters.vllm.settings import PROFILE
from moegauge.evidence.store import write_record
from moegauge.jobs.progress import Progress
from moegauge.records.serving_run import EngineRun, TimedRun

_LOG_LINES = 15


def run_engine(
    run: EngineRun, recording: Path, process: int, *, on_host: bool, tp_size: int, profile: str, progress: Progress
) -> tuple[list[TimedRun], str | None]:
    """Run one engine process to its end.

    Args:
        run: what it shall do. recording: where its files go. process: number of the process.
        on_host: vLLM for the host processor. tp_size: ranks. profile: iterations to profile on a device.
        progress: told what the process says.

    Returns:
        The runs it finished, and how it failed (None: it did not).
    """
    write_record(recording / f"run-{process}.json", run)
    results = recording / f"runs-{process}.jsonl"
    log = recording / f"engine-{process}.log"
    arguments = [str(recording / f"run-{process}.json"), str(results), str(process)]
    with log.open("wb") as errors_to:
        child = subprocess.Popen(  # noqa: S603 - this interpreter, this package
            [sys.executable, "-m", "moegauge.adapters.vllm.offline", *arguments],
            env=_environment(run, on_host=on_host, tp_size=tp_size, profile=profile),
            stdout=subprocess.PIPE,
            stderr=errors_to,
            text=True,
        )
        try:
            for line in child.stdout or ():
                _pass_on(line, errors_to, progress)
            code = child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
    runs = results.read_bytes().splitlines() if results.is_file() else []
    return [msgspec.json.decode(line, type=TimedRun) for line in runs], _failure(code, log)


def _failure(code: int, log: Path) -> str | None:
    if code == 0:
        return None
    tail = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return "\n".join([f"engine process ended with {how}; the end of {log}:", *tail])


def _pass_on(line: str, log: IO[bytes], progress: Progress) -> None:
    """A line of the engine's process: progress, or something for its log."""
    if line.startswith(SAYS):
        done, total, what = line.removeprefix(SAYS).strip().split(" ", 2)
        progress(what, int(done), int(total))
    else:
        log.write(line.encode())


def _environment(run: EngineRun, *, on_host: bool, tp_size: int, profile: str) -> dict[str, str]:
    """Environment of the process; what the caller has set stays, but for what makes the recording."""
    own = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    if tp_size == 1:
        own["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    elif on_host:
        own["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(_core_sets(tp_size))
    else:
        own |= {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "NCCL_NVLS_ENABLE": "0"}
    own |= {"VLLM_CPU_KVCACHE_SPACE": "1"} if on_host else {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
    forced = {PROFILE: profile}
    if run.recording is not None:
        forced[CAPTURE] = run.recording
    if run.built_in is not None and not run.checkpoint:
        forced[RANDOM_WEIGHTS] = str(run.seed)
    inherited = {name: value for name, value in os.environ.items() if name not in {CAPTURE, RANDOM_WEIGHTS}}
    return own | inherited | forced


def _core_sets(num: int) -> list[str]:
    """The process's cores in equal parts, as vLLM reads them."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < num:
        raise errors.MisuseError(
            where="--tp",
            expected=f"at most {len(cores)} ranks, a core each",
            found=str(num),
            remedy="Record on a machine with more cores.",
        )
    share = len(cores) // num
    return [",".join(str(core) for core in cores[rank * share : (rank + 1) * share]) for rank in range(num)]
