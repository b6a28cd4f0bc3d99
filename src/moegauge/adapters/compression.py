"""Files that may be gzip, told by their content and never by their name, with a bound on what they unpack to."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

from isal import igzip
from isal.igzip_lib import IsalError

from moegauge import errors
from moegauge.evidence.store import read_bytes

MAX_UNPACKED_BYTES = 4 << 30
_GZIP_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, IsalError)  # type: ignore[assignment]
_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


def read_unpacked(path: Path, *, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Read a file, unpacking it if its content is gzip.

    Raises:
        MissingFile: not there or empty.
        MalformedFile: the gzip stream is cut or damaged; names the byte offset.
        LimitExceeded: unpacks to more than ``limit`` bytes.
    """
    return unpacked(read_bytes(path, limit=limit), where=str(path), limit=limit)


def unpacked(data: bytes, *, where: str, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Unpack bytes if they are gzip, else return them as they are. See :func:`read_unpacked`."""
    if not data.startswith(_MAGIC):
        return data
    out = io.BytesIO()
    try:
        with igzip.IGzipFile(fileobj=io.BytesIO(data), mode="rb") as stream:  # type: ignore[no-untyped-call]
            while chunk := stream.read(_CHUNK_BYTES):
                out.write(chunk)
                if out.tell() > limit:
                    raise errors.LimitExceeded(
                        where=where,
                        expected=f"at most {limit} bytes unpacked",
                        found="more",
                        remedy="Split the recording into shorter ones.",
                    )
    except _GZIP_ERRORS as error:
        raise errors.MalformedFile(
            where=where,
            expected="a whole gzip stream",
            found=f"{error} after byte {len(data)} of the file ({out.tell()} bytes unpacked)",
            remedy="The file is cut or damaged; copy or record it again.",
        ) from error
    return out.getvalue()
