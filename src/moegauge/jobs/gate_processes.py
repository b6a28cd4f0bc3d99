"""Starting the processes of a lane: the one without device libraries, and the runner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.jobs.gate_runner import MODULE
from moegauge.jobs.stage0_process import Stage0Answer
from moegauge.records.lane import Phase
from moegauge.records.packet import Surroundings
from moegauge.records.registration import Registration

INHERITED = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TMPDIR", "CUDA_HOME", "ONEAPI_ROOT")
"""What the runner's environment takes over from the one a packet is made in."""

FIXED = {
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
}
"""What it always has: no file appears in a source, and nothing depends on a hash seed."""


def runner_environment(registration: Registration, environment: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a runner."""
    inherited = {name: environment[name] for name in INHERITED if name in environment}
    if "PYTHONPATH" in inherited:  # the runner works in the lane folder, where a relative path leads elsewhere
        parts = [str(Path(part).resolve()) for part in inherited["PYTHONPATH"].split(os.pathsep) if part]
        inherited["PYTHONPATH"] = os.pathsep.join(parts)
    return inherited | FIXED | registration.code.environment


def stage0_answer(registration: Registration, root: Path, what: str) -> Stage0Answer:
    """Run a lane's host half in a process that cannot import a device library.

    Args:
        registration: whose code. root: the lane folder. what: ``checks`` or ``fixtures``.

    Raises:
        Incomplete: the process did not come to its end.
    """
    done = subprocess.run(  # noqa: S603 - this interpreter and our own module
        [sys.executable, "-m", "moegauge.jobs.stage0_process", what, str(root)],
        input=msgspec.json.encode(registration),
        capture_output=True,
        check=False,
        env={**os.environ, **FIXED},
    )
    try:
        return msgspec.json.decode(done.stdout, type=Stage0Answer)
    except msgspec.MsgspecError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise errors.Incomplete(
            where=registration.code.lane,
            expected=f"an answer of the process that computes {what}",
            found=said[-1] if said else f"status {done.returncode} and no answer",
            remedy="Correct the lane's code; nothing was written.",
        ) from error


def runner_surroundings(
    registration: Registration, folder: Path, phase: Phase, device: str, *, options: Sequence[str] = ()
) -> Surroundings:
    """Surroundings of a runner, read by the runner itself. Touches no device.

    Raises:
        Incomplete: it could not read them.
    """
    words = [sys.executable, "-m", MODULE, "surroundings", phase, device, *options]
    environment = runner_environment(registration, os.environ)
    done = subprocess.run(  # noqa: S603 - this interpreter and our own module
        words, cwd=folder, env=environment, capture_output=True, check=False
    )
    try:
        return msgspec.json.decode(done.stdout, type=Surroundings)
    except msgspec.MsgspecError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise errors.Incomplete(
            where=f"device {device}",
            expected="its identity and surroundings",
            found=said[-1] if said else f"status {done.returncode} and no answer",
            remedy="Correct what the runner names; no packet was written and no device was touched.",
        ) from error


def run_device(surroundings: Surroundings, folder: Path) -> str:
    """Run a phase on one device, with exactly the packet's arguments and environment; say how the process ended."""
    process = subprocess.Popen(  # noqa: S603 - the packet's own words
        surroundings.argv, cwd=folder, env=surroundings.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode < 0:
        return f"killed by {signal.Signals(-process.returncode).name}"
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if process.returncode and lines else ""
