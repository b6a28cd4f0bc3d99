"""Files that may be gzip, told by their content and never by their name, with a bound on what they unpack to."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isal import igzip
from isal.igzip_lib import IsalError

from moegauge import errors
from moegauge.evidence.store import bounded_size, read_bytes

MAX_UNPACKED_BYTES = 4 << 30
_GZIP_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, IsalError)  # type: ignore[assignment]
_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 16


def read_unpacked(path: Path, *, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Read a file, unpacking it if its content is gzip.

    Raises:
        MissingFile: not there or empty.
        MalformedFile: the gzip stream is cut or damaged; names the byte offset.
        LimitExceeded: unpacks to more than ``limit`` bytes.
    """
    return unpacked(read_bytes(path, limit=limit), where=str(path), limit=limit)


def read_pieces(path: Path, *, limit: int = MAX_UNPACKED_BYTES) -> Iterator[bytes]:
    """The unpacked bytes of a file, about a MiB at a time, so that they are never held as a whole.

    Raises:
        MissingFile, MalformedFile, LimitExceeded: see :func:`read_unpacked`; when the piece at fault is asked for.
    """
    num_bytes = bounded_size(path, limit=limit)
    with path.open("rb") as file:
        packed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        if packed:
            yield from _unpacked_pieces(file, num_bytes, where=str(path), limit=limit)
            return
        while piece := file.read(_CHUNK_BYTES):
            yield piece


def unpacked(data: bytes, *, where: str, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Unpack bytes if they are gzip, else return them as they are. See :func:`read_unpacked`."""
    if not data.startswith(_MAGIC):
        return data
    return b"".join(_unpacked_pieces(io.BytesIO(data), len(data), where=where, limit=limit))


def _unpacked_pieces(file: BinaryIO, num_bytes: int, *, where: str, limit: int) -> Iterator[bytes]:
    """What a gzip file unpacks to.

    Args:
        file: at its start. num_bytes: its size, for messages.
    """
    unpacked_bytes = 0
    try:
        with igzip.IGzipFile(fileobj=file, mode="rb") as stream:  # type: ignore[no-untyped-call]
            while piece := stream.read(_CHUNK_BYTES):
                unpacked_bytes += len(piece)
                if unpacked_bytes > limit:
                    raise errors.LimitExceeded(
                        where=where,
                        expected=f"at most {limit} bytes unpacked",
                        found="more",
                        remedy="Split the recording into shorter ones.",
                    )
                yield piece
    except _GZIP_ERRORS as error:
        raise errors.MalformedFile(
            where=where,
            expected="a whole gzip stream",
            found=f"{error} after byte {num_bytes} of the file ({unpacked_bytes} bytes unpacked)",
            remedy="The file is cut or damaged; copy or record it again.",
        ) from error
