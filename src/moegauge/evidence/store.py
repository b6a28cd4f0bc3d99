"""Write-once folders and files.

A folder is built beside its place under a temporary name, every file is synced, and one rename puts it there: a
reader sees all of it or nothing, also after ``kill -9``. Nothing is ever written over.

A folder's head (capture.json, report.json) holds the digests of its other files; the head's own digest lies beside
it (capture.json.sha256, as ``sha256sum --check`` reads it), so that a changed byte of the head is found as well.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moegauge import errors
from moegauge.evidence.digest import bytes_digest, file_digest
from moegauge.records.capture import FileDigest
from moegauge.records.schema import Record, RecordT, canonical_bytes, decode_record

MAX_RECORD_BYTES = 256 << 20
HEAD_DIGEST_SUFFIX = ".sha256"


def read_bytes(path: Path, *, limit: int = MAX_RECORD_BYTES) -> bytes:
    """Read a whole file of bounded size.

    Raises:
        MissingFile, LimitExceeded: see :func:`bounded_size`.
    """
    bounded_size(path, limit=limit)
    return path.read_bytes()


def bounded_size(path: Path, *, limit: int) -> int:
    """Size of a file that is there, in bytes.

    Raises:
        MissingFile: not there, not a file, or empty.
        LimitExceeded: larger than ``limit`` bytes.
    """
    if not path.is_file():
        raise errors.MissingFile(
            where=str(path), expected="a file", found="nothing", remedy="Check the path and what wrote it."
        )
    size = path.stat().st_size
    if size == 0:
        raise errors.MissingFile(
            where=str(path), expected="content", found="0 bytes", remedy="Its writer was stopped early; record again."
        )
    if size > limit:
        raise errors.LimitExceeded(
            where=str(path), expected=f"at most {limit} bytes", found=f"{size} bytes", remedy="Split the recording."
        )
    return size


def read_record(path: Path, record: type[RecordT]) -> RecordT:
    """Read a canonical record and hold its bytes against its own canonical form.

    Raises:
        MissingFile, LimitExceeded, MalformedFile, SchemaMissing, SchemaOlder, SchemaNewer
        DigestMismatch: the bytes are not the canonical bytes of what they say.
    """
    data = read_bytes(path)
    value = decode_record(data, record, where=str(path))
    if canonical_bytes(value) != data:
        raise errors.DigestMismatch(
            where=str(path),
            expected="the canonical bytes of the record",
            found="other bytes with the same meaning",
            remedy="The file was edited; restore the original.",
        )
    return value


def refuse_existing(path: Path) -> None:
    """Refuse to write where something already stands."""
    if path.exists() or path.is_symlink():
        raise errors.MisuseError(
            where=str(path),
            expected="a path where nothing stands",
            found="something already there",
            remedy="Evidence is written once; choose another --out or move the old one away.",
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``target`` when the block ends without an error."""
    refuse_existing(target)
    building = target.parent / f".{target.name}.building-{os.getpid()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
    except OSError as error:
        raise errors.MisuseError(
            where=str(target),
            expected="a place where a new folder can be made",
            found=error.strerror or str(error),
            remedy="Choose another --out.",
        ) from error
    try:
        yield building
        for path in sorted(building.rglob("*")):
            _sync(path)
        _sync(building)
        refuse_existing(target)
        building.rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_file(path: Path, data: bytes) -> str:
    """Write a new file, read it back, and return its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    digest = bytes_digest(data)
    if file_digest(path) != digest:
        raise errors.DigestMismatch(
            where=str(path), expected=digest, found="other bytes on reading back", remedy="Check the disk."
        )
    return digest


def write_record(path: Path, record: Record) -> str:
    """Write a record's canonical bytes to a new file and return their digest."""
    return write_file(path, canonical_bytes(record))


def write_head(folder: Path, name: str, record: Record) -> str:
    """Write a folder's head and, beside it, the head's digest; return the digest."""
    digest = write_record(folder / name, record)
    write_file(folder / f"{name}{HEAD_DIGEST_SUFFIX}", _head_digest_line(name, digest))
    return digest


def head_files(name: str) -> frozenset[str]:
    """The files of a folder whose digests its head cannot hold: the head and the head's digest."""
    return frozenset({name, f"{name}{HEAD_DIGEST_SUFFIX}"})


def head_differences(folder: Path, name: str) -> list[str]:
    """Hold a folder's head against the digest beside it; one sentence where they differ."""
    beside = f"{name}{HEAD_DIGEST_SUFFIX}"
    if not (folder / name).is_file():
        return [f"{name}: missing"]
    if not (folder / beside).is_file():
        return [f"{beside}: recorded but missing"]
    digest = file_digest(folder / name)
    if file_digest(folder / beside) == bytes_digest(_head_digest_line(name, digest)):
        return []
    return [f"{name}: changed, or {beside} was (found {digest}, which is not what {beside} says)"]


def _head_digest_line(name: str, digest: str) -> bytes:
    return f"{digest.removeprefix('sha256:')}  {name}\n".encode()


def describe_files(folder: Path, *, leave_out: frozenset[str]) -> dict[str, FileDigest]:
    """Digest and size of every file below a folder, by POSIX path.

    Args:
        folder: the folder.
        leave_out: relative POSIX paths not to describe.
    """
    return {
        name: FileDigest(digest=file_digest(path), num_bytes=path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (name := path.relative_to(folder).as_posix()) not in leave_out
    }


def file_differences(folder: Path, recorded: dict[str, FileDigest], *, leave_out: frozenset[str]) -> list[str]:
    """Compare a folder with its recorded digests; one sentence for each missing, extra or changed file."""
    present = describe_files(folder, leave_out=leave_out)
    lines = [f"{name}: recorded but missing" for name in sorted(recorded.keys() - present.keys())]
    lines += [f"{name}: not recorded" for name in sorted(present.keys() - recorded.keys())]
    lines += [
        f"{name}: changed (recorded {recorded[name].digest}, {recorded[name].num_bytes} bytes; "
        f"found {present[name].digest}, {present[name].num_bytes} bytes)"
        for name in sorted(recorded.keys() & present.keys())
        if recorded[name] != present[name]
    ]
    return lines


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
