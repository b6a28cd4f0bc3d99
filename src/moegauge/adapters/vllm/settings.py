"""What is recorded and when: environment variables, and a control file that is read while the engine runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moegauge import errors
from moegauge.evidence.store import read_record
from moegauge.records.recording import RecorderStatus
from moegauge.records.schema import canonical_bytes

ITERATIONS = "MOEGAUGE_ITERATIONS"
"""Environment variable: first-last of the engine's iterations to record; all where it is not set."""
PROFILE = "MOEGAUGE_PROFILE"
"""Environment variable: first-last of the recorded iterations to profile on a device, ``all`` or ``none``."""
CONTROL_NAME = "control"
"""File in the recording's folder: ``off``, or the name of the take that is recorded now (and ``unprofiled``)."""

DEFAULT_PROFILE = "0-63"
ITERATIONS_A_TRACE = 64
"""A profiled range is exported in pieces of as many iterations, so that the profiler's memory is bounded."""

_RANGE = re.compile(r"^([0-9]{1,9})-([0-9]{1,9})\Z")
_TAKE = re.compile(r"^(take-[0-9]{1,6})( unprofiled)?\Z")
_EVERY = (0, (1 << 31) - 1)
NOTHING = (0, -1)
"""The empty range."""


@dataclass(frozen=True)
class Settings:
    """Ranges of iterations, both ends included; an empty one ends before it begins."""

    iterations: tuple[int, int]
    profile: tuple[int, int]


def settings_of(environment: Mapping[str, str]) -> Settings:
    """Read the environment variables.

    Raises:
        MisuseError: one is not a range.
    """
    return Settings(
        iterations=_range(environment.get(ITERATIONS, "all"), ITERATIONS),
        profile=_range(environment.get(PROFILE, DEFAULT_PROFILE), PROFILE),
    )


def _range(text: str, where: str) -> tuple[int, int]:
    if text == "all":
        return _EVERY
    if text == "none":
        return NOTHING
    match = _RANGE.match(text)
    if match is None or int(match[2]) < int(match[1]):
        raise errors.MisuseError(
            where=where, expected="all, none or first-last, as 0-63", found=repr(text[:40]), remedy="Set it so."
        )
    return int(match[1]), int(match[2])


@dataclass(frozen=True)
class Target:
    """Where to record, and whether the profiler may run."""

    folder: Path
    profiled: bool = True


class Control:
    """The control file, read again when it changes.

    No file: record into the folder itself. ``off``: record nothing. ``take-<n>``: record into that subfolder;
    ``take-<n> unprofiled``: without the profiler.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = str(folder / CONTROL_NAME)
        self._stamp: tuple[int, int] | None = None
        self._target: Target | None = Target(folder)

    @property
    def latest(self) -> Target | None:
        """What was found when the file was last read."""
        return self._target

    def target(self) -> Target | None:
        """Where to record now; None for nothing."""
        try:
            found = os.stat(self._path)
            # Each write is another file: two within one tick of the clock are told apart by its number.
            stamp: tuple[int, int] | None = (found.st_mtime_ns, found.st_ino)
        except FileNotFoundError:
            stamp = None
        if stamp != self._stamp:
            self._stamp = stamp
            self._target = Target(self.folder) if stamp is None else self._read()
        return self._target

    def _read(self) -> Target | None:
        match = _TAKE.match(Path(self._path).read_text(errors="replace").strip())
        return None if match is None else Target(self.folder / match[1], match[2] is None)


def write_control(folder: Path, text: str) -> None:
    """Tell the recorders of a folder what to do from their next iteration on (see :class:`Control`)."""
    _exchange(folder, CONTROL_NAME, text.encode() + b"\n")


def write_status(folder: Path, status: RecorderStatus) -> None:
    """Say beside the control file what a rank's recorder does, for whoever tells it what to do."""
    _exchange(folder, f"rank{status.rank}.status.json", canonical_bytes(status))


def read_statuses(folder: Path) -> list[RecorderStatus]:
    """What the recorders of a folder last said of themselves, by rank.

    Raises:
        MalformedFile, SchemaMissing, SchemaOlder, SchemaNewer: one is no such file.
    """
    found = [read_record(path, RecorderStatus) for path in folder.glob("rank*.status.json")]
    return sorted(found, key=lambda status: status.rank)


def _exchange(folder: Path, name: str, data: bytes) -> None:
    building = folder / f".{name}.new"
    building.write_bytes(data)
    building.replace(folder / name)
