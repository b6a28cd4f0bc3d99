"""moegauge capture start | stop: tell the recorders of a running engine what to do."""

from __future__ import annotations

import re
from pathlib import Path

from moegauge import errors
from moegauge.adapters.vllm.settings import CONTROL_NAME, read_statuses, write_control
from moegauge.evidence.store import read_bytes

_TAKE = re.compile(r"^take-([0-9]{1,6})\Z")


def start_recording(folder: Path) -> Path:
    """Begin a take that does not exist yet; returns its folder. A recorder that failed before tries again with it.

    Raises:
        MisuseError: no such folder. Incomplete: a rank has no recorder, and so never records.
    """
    _check(folder)
    _refuse_ranks_without_recorder(folder)
    taken = [int(match[1]) for path in folder.iterdir() if (match := _TAKE.match(path.name))]
    name = f"take-{max(taken, default=-1) + 1}"
    write_control(folder, name)
    return folder / name


def stop_recording(folder: Path) -> None:
    """Record nothing from the next iteration on.

    Raises:
        MisuseError: no such folder. Incomplete: it stops, but a rank's recorder had failed before.
    """
    _check(folder)
    control = folder / CONTROL_NAME
    words = read_bytes(control).decode(errors="replace").split() if control.is_file() else ["."]
    write_control(folder, "off")
    take = words[0] if words else "off"
    failed = [one for one in read_statuses(folder) if one.state == "failed" and one.take in {take, None}]
    if failed and take != "off":
        raise errors.Incomplete(
            where=str(folder / take),
            expected="a take that every rank recorded until now",
            found="; ".join(f"rank {one.rank} failed after {one.num_iterations}: {one.problem}" for one in failed),
            remedy="It is stopped. Import what was recorded before; capture start tries again with a new take.",
        )


def failures(folder: Path) -> list[str]:
    """What the recorders of a folder say went wrong with them last, a sentence each."""
    return [
        f"rank {one.rank} failed before, in {one.take or 'no take'}: {one.problem}"
        for one in read_statuses(folder)
        if one.state == "failed"
    ]


def _refuse_ranks_without_recorder(folder: Path) -> None:
    reasons = [f"{path.name}: {path.read_text(errors='replace').strip()[:300]}"
               for path in sorted(folder.glob("rank*.not-recorded.txt"))]  # fmt: skip
    if reasons:
        raise errors.Incomplete(
            where=str(folder),
            expected="a recorder on every rank of the running engine",
            found="; ".join(reasons),
            remedy="Start the engine again without what is named there; nothing was started.",
        )


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise errors.MisuseError(
            where=str(folder),
            expected="the folder that MOEGAUGE_CAPTURE names for a running vLLM",
            found="no folder",
            remedy="Start vLLM with MOEGAUGE_CAPTURE set; its workers make the folder.",
        )
