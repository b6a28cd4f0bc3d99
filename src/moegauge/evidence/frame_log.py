"""An append-only file of checked frames: what a killed writer leaves behind is readable up to its last whole frame.

Layout: the line ``moegauge frames 1``, then frames. A frame is its length and its CRC-32 (both uint32, little-endian)
and as many bytes of MessagePack. Frames reach the operating system one by one, so the end of the writing process
loses none that was written; only a failure of the machine can.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from moegauge import errors
from moegauge.records.recording import Frame, Head

MAGIC = b"moegauge frames 1\n"
MAX_FRAME_BYTES = 1 << 30
_PREFIX = struct.Struct("<II")


class FrameWriter:
    """Appends frames to a new file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._encoder = msgspec.msgpack.Encoder()
        self._file.write(MAGIC)

    def write(self, frame: Frame) -> None:
        """Append one frame; when this returns, the end of this process cannot lose it."""
        data = bytearray(_PREFIX.size)
        self._encoder.encode_into(frame, data, _PREFIX.size)
        with memoryview(data) as whole:
            payload = whole[_PREFIX.size :]
            _PREFIX.pack_into(whole, 0, len(payload), zlib.crc32(payload))
            self._write_all(whole)

    def _write_all(self, data: memoryview) -> None:
        view = data
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> FrameWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Cut:
    """Where a file stops being whole.

    Attributes:
        num_bytes: bytes after the last whole frame. why: what is wrong with them.
    """

    num_bytes: int
    why: str


@dataclass(frozen=True)
class FrameLog:
    """Whole frames of a file, in order.

    Attributes:
        path: the file. head: its first frame. frames: the rest. cut: None where every byte belongs to a whole frame.
    """

    path: Path
    head: Head
    frames: tuple[Frame, ...]
    cut: Cut | None


def read_frames(path: Path) -> FrameLog:
    """Read the whole frames of a file; a torn end is reported, never an error.

    Raises:
        MissingFile: no file.
        MalformedFile: not a frame file, without a head, or with a whole frame of another form.
        LimitExceeded: a frame that claims more than MAX_FRAME_BYTES.
    """
    if not path.is_file():
        raise errors.MissingFile(
            where=str(path), expected="a frame file", found="nothing", remedy="Check the path and what wrote it."
        )
    frames: list[Frame] = []
    cut: Cut | None = None
    for found in _whole_frames(path):
        if isinstance(found, Cut):
            cut = found
        else:
            frames.append(found)
    if not frames or not isinstance(frames[0], Head) or any(isinstance(frame, Head) for frame in frames[1:]):
        raise errors.MalformedFile(
            where=str(path),
            expected="one head, as the first frame",
            found=f"{len(frames)} whole frames",
            remedy="Its writer was stopped before it wrote anything, or two files were joined; record again.",
        )
    return FrameLog(path, frames[0], tuple(frames[1:]), cut)


def _whole_frames(path: Path) -> Iterator[Frame | Cut]:
    decoder = msgspec.msgpack.Decoder(Frame)
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise errors.MalformedFile(
                where=str(path),
                expected=f"a file that begins with {MAGIC.decode().strip()!r}",
                found="other bytes",
                remedy="Give a file that the recorder wrote.",
            )
        while (start := file.tell()) < size:
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                yield Cut(size - start, "the length of a frame is cut")
                return
            length, checksum = _PREFIX.unpack(prefix)
            if length > MAX_FRAME_BYTES:
                raise errors.LimitExceeded(
                    where=f"{path}, byte {start}",
                    expected=f"frames of at most {MAX_FRAME_BYTES} bytes",
                    found=f"{length} bytes",
                    remedy="The file is damaged there; record again.",
                )
            if not length:
                yield Cut(size - start, "zeros where a frame should begin")
                return
            held = size - file.tell()
            if held < length:
                yield Cut(size - start, f"a frame of {length} bytes is cut after {held}")
                return
            payload = file.read(length)
            if zlib.crc32(payload) != checksum:
                yield Cut(size - start, "a frame's bytes are not those that were written")
                return
            yield _decoded(decoder, payload, f"{path}, byte {start}")


def _decoded(decoder: msgspec.msgpack.Decoder[Frame], payload: bytes, where: str) -> Frame:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFile(
            where=where,
            expected="a frame of moegauge/recording/v1",
            found=str(error),
            remedy="Another release wrote it, or it was edited; read it with the release that wrote it.",
        ) from error
