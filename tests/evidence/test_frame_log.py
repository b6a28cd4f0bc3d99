"""A frame file gives its whole frames back, whatever became of its end."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from moegauge import errors
from moegauge.evidence.frame_log import MAX_FRAME_BYTES, Cut, FrameWriter, read_frames
from moegauge.records.recording import Frame
from recordings import end, framed, head, iteration

FRAMES: tuple[Frame, ...] = (head(), iteration(0), iteration(1, 3), end(2))
MAGIC_BYTES = b"moegauge frames 1\n"


def written(path: Path, *frames: Frame) -> Path:
    with FrameWriter(path) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def payload(frame: Frame) -> bytes:
    return msgspec.msgpack.encode(frame)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "rank0.frames", *FRAMES)


def test_whole_frames_come_back_in_order(file: Path) -> None:
    log = read_frames(file)
    assert (log.head, log.frames, log.cut) == (FRAMES[0], FRAMES[1:], None)


def test_the_bytes_are_a_length_a_crc_and_messagepack(file: Path) -> None:
    assert file.read_bytes() == framed(*(payload(frame) for frame in FRAMES))


def test_a_frame_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "rank0.frames")
    writer.write(FRAMES[0])
    writer.write(FRAMES[1])
    assert read_frames(tmp_path / "rank0.frames").frames == (FRAMES[1],)
    writer.close()


def test_a_file_that_stands_there_is_never_written_over(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(FileExistsError):
        FrameWriter(file)
    assert file.read_bytes() == before


def test_a_last_frame_torn_at_any_byte_leaves_the_frames_before_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rank0.frames", *FRAMES[:-1])
    data = path.read_bytes()
    length = len(payload(FRAMES[-2]))
    start = len(data) - length - 8
    for kept in range(1, length + 8):
        path.write_bytes(data[: start + kept])
        log = read_frames(path)
        why = "the length of a frame is cut" if kept < 8 else f"a frame of {length} bytes is cut after {kept - 8}"
        assert (log.frames, log.cut) == (FRAMES[1:-2], Cut(kept, why)), kept


def test_a_file_cut_between_two_frames_has_no_torn_bytes(file: Path) -> None:
    file.write_bytes(framed(*(payload(frame) for frame in FRAMES[:-1])))
    log = read_frames(file)
    assert (log.frames, log.cut) == (FRAMES[1:-1], None)


@pytest.mark.parametrize("offset", [4, 8, 60, -1])
def test_a_flipped_byte_ends_the_file_before_its_frame(tmp_path: Path, offset: int) -> None:
    """Byte 4 of a frame is its checksum, byte 8 the first of its content."""
    path = written(tmp_path / "rank0.frames", *FRAMES)
    data = bytearray(path.read_bytes())
    last_two = [8 + len(payload(frame)) for frame in FRAMES[-2:]]
    start = len(data) - sum(last_two)
    place = start + offset if offset >= 0 else start + last_two[0] - 1
    data[place] ^= 0x10
    path.write_bytes(bytes(data))
    log = read_frames(path)
    assert log.frames == FRAMES[1:-2]
    assert log.cut == Cut(sum(last_two), "a frame's bytes are not those that were written")


def test_a_flipped_byte_of_the_head_leaves_nothing_to_read(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(MAGIC_BYTES) + 20] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(errors.MalformedFile) as caught:
        read_frames(file)
    assert (caught.value.expected, caught.value.found) == ("one head, as the first frame", "0 whole frames")


def test_zeros_at_the_end_as_a_failed_machine_leaves_them_are_a_cut(file: Path) -> None:
    with file.open("ab") as tail:
        tail.write(bytes(4096))
    log = read_frames(file)
    assert (log.frames, log.cut) == (FRAMES[1:], Cut(4096, "zeros where a frame should begin"))


@pytest.mark.parametrize("data", [b"", b"moegauge frames 1", b"moegauge frames 2\n", b"\x1f\x8b\x08\x00", b"{}\n"])
def test_a_file_that_begins_otherwise_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rank0.frames"
    path.write_bytes(data)
    with pytest.raises(errors.MalformedFile) as caught:
        read_frames(path)
    assert caught.value.expected == "a file that begins with 'moegauge frames 1'"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFile):
        read_frames(tmp_path / "rank0.frames")


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ((), "0 whole frames"),
        ((iteration(0),), "1 whole frames"),
        ((iteration(0), head()), "2 whole frames"),
        ((head(), iteration(0), head()), "3 whole frames"),
    ],
    ids=["nothing", "no head", "head second", "two heads"],
)
def test_one_head_as_the_first_frame_or_it_is_refused(tmp_path: Path, frames: tuple[Frame, ...], found: str) -> None:
    path = written(tmp_path / "rank0.frames", *frames)
    with pytest.raises(errors.MalformedFile) as caught:
        read_frames(path)
    assert (caught.value.expected, caught.value.found) == ("one head, as the first frame", found)


def test_a_frame_that_claims_too_much_is_refused_and_no_memory_taken_for_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rank0.frames", head())
    start = path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack("<II", MAX_FRAME_BYTES + 1, 0) + b"x" * 1000)
    tracemalloc.start()
    try:
        with pytest.raises(errors.LimitExceeded) as caught:
            read_frames(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (caught.value.where, caught.value.found) == (f"{path}, byte {start}", "1073741825 bytes")
    assert peak < 1 << 20


def test_a_frame_that_claims_more_than_the_file_holds_takes_no_memory_for_it(tmp_path: Path) -> None:
    path = written(tmp_path / "rank0.frames", head())
    with path.open("ab") as file:
        file.write(struct.pack("<II", MAX_FRAME_BYTES, 0) + b"x" * 1000)
    tracemalloc.start()
    try:
        log = read_frames(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.cut == Cut(1008, "a frame of 1073741824 bytes is cut after 1000")
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "content",
    [
        b"\xc1",
        msgspec.msgpack.encode({"type": "another"}),
        msgspec.msgpack.encode(msgspec.to_builtins(end(1)) | {"more": 1}),
        msgspec.msgpack.encode({"type": "end", "num_iterations": "two", "num_dropped": 0, "recorder_ns": 0}),
        b"\x91" * 100_000,
    ],
    ids=["no MessagePack", "unknown type", "unknown field", "text for a number", "nested too deep"],
)
def test_a_whole_frame_of_another_form_is_refused_with_its_place(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank0.frames"
    data = framed(payload(head()), content)
    path.write_bytes(data)
    with pytest.raises(errors.MalformedFile) as caught:
        read_frames(path)
    assert caught.value.where == f"{path}, byte {len(data) - len(content) - 8}"
    assert caught.value.expected == "a frame of moegauge/recording/v1"
