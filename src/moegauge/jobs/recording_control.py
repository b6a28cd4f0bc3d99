"""moegauge capture start | stop: tell the recorders of a running engine what to do."""

from __future__ import annotations

import re
from pathlib import Path

from moegauge import errors
from moegauge.adapters.vllm.settings import write_control

_TAKE = re.compile(r"^take-([0-9]{1,6})\Z")


def start_recording(folder: Path) -> Path:
    """Begin a take that does not exist yet; returns its folder.

    Raises:
        MisuseError: no such folder.
    """
    _check(folder)
    taken = [int(match[1]) for path in folder.iterdir() if (match := _TAKE.match(path.name))]
    name = f"take-{max(taken, default=-1) + 1}"
    write_control(folder, name)
    return folder / name


def stop_recording(folder: Path) -> None:
    """Record nothing from the next iteration on.

    Raises:
        MisuseError: no such folder.
    """
    _check(folder)
    write_control(folder, "off")


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise errors.MisuseError(
            where=str(folder),
            expected="the folder that MOEGAUGE_CAPTURE names for a running vLLM",
            found="no folder",
            remedy="Start vLLM with MOEGAUGE_CAPTURE set; its workers make the folder.",
        )
