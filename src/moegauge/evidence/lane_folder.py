"""A lane on disk: a closed inventory of write-once files.

    registration.toml               the draft that was registered
    steps/0000-registration.json    one record a step, each with the digest of the one before
    explorations/                   trials before registration
    runs/phase-a/consumed.json      the packet's marker, written before the first device action
    runs/phase-a/<device>/00000-binding.json ...   observations, each with the digest of the one before

A file appears whole or not at all, also after ``kill -9``, and is never written over. Every file is named, with its
digest, by the step it belongs to; a file that is missing, extra, changed or a link is named in turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moegauge import errors
from moegauge.evidence.digest import bytes_digest, file_digest
from moegauge.evidence.store import read_bytes, read_record
from moegauge.records.capture import FileDigest
from moegauge.records.lane import (
    AmendmentStep,
    AuditStep,
    FreezeStep,
    Phase,
    RegistrationStep,
    RehearsalStep,
    Stage0Step,
    Step,
)
from moegauge.records.observation import OBSERVATIONS, Observation
from moegauge.records.packet import ConsumedMarker, PacketStep
from moegauge.records.schema import Record, RecordT, canonical_bytes
from moegauge.records.verdict import VerdictStep

DRAFT = "registration.toml"
STEPS = "steps"
MARKER = "consumed.json"
_LEFT_BY_A_KILL = re.compile(r"^\..*\.writing-[0-9]+\Z")
"""Names of files that were being written when their process was killed; they were never reported as written."""

_STEP_KINDS: dict[str, type[Step]] = {
    kind.kind.removeprefix("gate-"): kind
    for kind in (
        RegistrationStep,
        AmendmentStep,
        Stage0Step,
        AuditStep,
        FreezeStep,
        RehearsalStep,
        PacketStep,
        VerdictStep,
    )
}
_OBSERVATION_KINDS = {kind.kind.removeprefix("gate-"): kind for kind in OBSERVATIONS}


@dataclass(frozen=True)
class Kept:
    """A record as it lies in the folder: its file's POSIX path and digest."""

    path: str
    digest: str
    record: Record


def write_new(path: Path, data: bytes) -> FileDigest:
    """Write a new file whole, synced, or not at all.

    Raises:
        MisuseError: something already stands there.
        OSError: the disk refuses (full, read only).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        with writing.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(writing, path)  # unlike rename, link refuses to replace
    except FileExistsError as error:
        raise errors.MisuseError(
            where=str(path),
            expected="a path where nothing stands",
            found="something already there",
            remedy="Evidence is written once; another process may be at work on this lane.",
        ) from error
    finally:
        writing.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return FileDigest(digest=bytes_digest(data), num_bytes=len(data))


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- steps ------------------------------------------------------------------------------------------------------------


def step_path(step: Step) -> str:
    """POSIX path of a step's file."""
    return f"{STEPS}/{step.number:04d}-{step.kind.removeprefix('gate-')}.json"


def write_step(folder: Path, step: Step) -> str:
    """Write a step and return the digest of its file."""
    return write_new(folder / step_path(step), canonical_bytes(step)).digest


def read_steps(folder: Path) -> list[Kept]:
    """Every step in order; none where the lane is not registered.

    Raises:
        MalformedFile: a file among the steps that is none.
        EvidenceError: as for any record.
    """
    found = []
    for path in sorted(_files(folder / STEPS)):
        _, _, name = path.stem.partition("-")
        kind = _STEP_KINDS.get(name)
        if kind is None or path.suffix != ".json":
            raise errors.MalformedFile(
                where=str(path),
                expected="a step of a lane",
                found=path.name,
                remedy="Restore the lane folder as it was.",
            )
        found.append(_kept(folder, path, kind))
    return found


# --- runs -------------------------------------------------------------------------------------------------------------


def run_folder(folder: Path, phase: Phase) -> Path:
    """Where a phase leaves its evidence."""
    return folder / "runs" / f"phase-{phase}"


def write_observation(folder: Path, observation: Observation) -> str:
    """Write an observation into a phase's folder and return the digest of its file."""
    name = f"{observation.number:05d}-{observation.kind.removeprefix('gate-')}.json"
    return write_new(folder / observation.device / name, canonical_bytes(observation)).digest


def read_marker(folder: Path, phase: Phase) -> Kept | None:
    """The consumed marker of a phase; None where there is none."""
    path = run_folder(folder, phase) / MARKER
    return _kept(folder, path, ConsumedMarker) if path.is_file() else None


def read_observations(folder: Path, phase: Phase) -> tuple[dict[str, list[Kept]], list[str]]:
    """Observations by device, in the order of their files, and one sentence for each file that cannot be read."""
    found: dict[str, list[Kept]] = {}
    problems = []
    root = run_folder(folder, phase)
    for path in sorted(_files(root)):
        if path.parent == root or path.suffix != ".json":
            continue
        _, _, name = path.stem.partition("-")
        kind = _OBSERVATION_KINDS.get(name)
        if kind is None:
            continue  # a profiler's own file, which an observation names
        try:
            found.setdefault(path.parent.name, []).append(_kept(folder, path, kind))
        except errors.EvidenceError as error:
            problems.append(f"{path.relative_to(folder).as_posix()}: {error.found}")
    return found, problems


# --- inventory --------------------------------------------------------------------------------------------------------


def present_files(folder: Path, under: str = "") -> dict[str, FileDigest]:
    """Digest and size of every regular file below a folder of the lane, by POSIX path from the lane."""
    return {
        path.relative_to(folder).as_posix(): FileDigest(digest=file_digest(path), num_bytes=path.stat().st_size)
        for path in sorted(_files(folder / under))
        if not path.is_symlink()
    }


def inventory_differences(folder: Path, recorded: Mapping[str, FileDigest], *, open_under: Sequence[str]) -> list[str]:
    """One sentence for each file that is missing, extra, changed, or a link.

    Args:
        folder: the lane.
        recorded: every file that a step names, steps included.
        open_under: folders whose run has no verdict yet, so that no step names their files.
    """
    lines = []
    paths = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    lines += [f"{name}: recorded but missing" for name in sorted(recorded.keys() - paths.keys())]
    for name, path in sorted(paths.items()):
        if path.is_symlink() or not path.is_file():
            lines.append(f"{name}: a link, or no regular file")
        elif name in recorded:
            lines += _changed(name, path, recorded[name])
        elif not any(name.startswith(f"{prefix}/") for prefix in open_under):
            lines.append(f"{name}: not recorded")
    return lines


def _changed(name: str, path: Path, recorded: FileDigest) -> list[str]:
    found = FileDigest(digest=file_digest(path), num_bytes=path.stat().st_size)
    return [] if found == recorded else [f"{name}: changed (recorded {recorded.digest}, found {found.digest})"]


def _files(folder: Path) -> Iterator[Path]:
    """Everything below a folder that is no folder; links count, and are not followed."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif not _LEFT_BY_A_KILL.match(path.name):
            yield path


def _kept(folder: Path, path: Path, kind: type[RecordT]) -> Kept:
    if path.is_symlink():
        raise errors.MalformedFile(
            where=str(path), expected="a regular file", found="a link", remedy="Restore the lane folder as it was."
        )
    record = read_record(path, kind)
    return Kept(path.relative_to(folder).as_posix(), bytes_digest(read_bytes(path)), record)
