"""The recorder's writer: serving never waits for it, and what is lost is said and never reads as data."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from moegauge import errors
from moegauge.adapters.vllm.settings import read_statuses, write_control, write_status
from moegauge.evidence.frame_log import FrameWriter, read_frames
from moegauge.jobs.recording_control import failures, start_recording, stop_recording
from moegauge.records.recording import End, Frame, IterationFrame, Problem, RecorderStatus, Surroundings
from recordings import head, iteration

torch = pytest.importorskip("torch")
from moegauge.adapters.vllm import writer as writer_module  # noqa: E402
from moegauge.adapters.vllm.buffers import HostRing, RoutedBuffers  # noqa: E402
from moegauge.adapters.vllm.writer import TakeWriter, WriterThread  # noqa: E402


class Disk:
    """A disk that hangs until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.hangs = threading.Event(), threading.Event()
        works = FrameWriter.write

        def hanging(log: FrameWriter, frame: Frame) -> None:
            self.hangs.set()
            self.free.wait()
            works(log, frame)

        monkeypatch.setattr(FrameWriter, "write", hanging)


def opened(folder: Path) -> tuple[WriterThread, TakeWriter, list[str]]:
    thread, told = WriterThread(), []
    return thread, TakeWriter(thread, folder, head(), lambda state, _: told.append(state)), told


def test_a_disk_that_hangs_holds_nothing_and_what_was_lost_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_MOST_WAITING", 4)
    disk = Disk(monkeypatch)
    thread, take, told = opened(tmp_path / "take-0")
    disk.hangs.wait()
    for number in range(6):
        take.put_iteration(number, lambda _, number=number: iteration(number), None, rows=False)  # type: ignore[misc]
    take.put("surroundings", lambda: Surroundings(before_iteration=6, facts={}))
    take.put("profiled range (0 to 5)", lambda: Surroundings(before_iteration=6, facts={}))
    take.end(recorder_ns=1)
    assert not take.ended.is_set()
    disk.free.set()
    take.ended.wait()
    frames = read_frames(tmp_path / "take-0" / "rank0.frames").frames
    assert [frame.number for frame in frames if isinstance(frame, IterationFrame)] == [0, 1, 2, 3]
    assert [frame.text for frame in frames if isinstance(frame, Problem)] == [
        "not recorded, since the writer was behind: everything of 2 iterations (4 to 5); "
        "1 profiled range (0 to 5); 1 surroundings"
    ]
    assert frames[-1] == End(num_iterations=4, num_dropped=2, recorder_ns=1)
    assert told == ["recording", "ended"]
    assert thread.close(60)


def test_routed_rows_for_which_there_was_no_room_are_named_once_there_is(tmp_path: Path) -> None:
    thread, take, _ = opened(tmp_path / "take-0")
    take.put_iteration(0, lambda _: iteration(0), None, rows=True)
    take.put_iteration(1, lambda _: iteration(1), None, rows=True)
    take.put_iteration(2, lambda _: iteration(2), None, rows=False)
    take.fail("OSError: gone")
    take.ended.wait()
    frames = read_frames(tmp_path / "take-0" / "rank0.frames").frames
    assert [(f.what, f.before_iteration) for f in frames if isinstance(f, Problem)] == [
        ("WRITER_BEHIND", 2), ("RECORDER_FAILED", 3),
    ]  # fmt: skip
    assert not any(isinstance(frame, End) for frame in frames)
    assert thread.close(60)


@pytest.mark.parametrize("how", ["fails", "failed by the recorder"])
def test_a_failed_take_holds_no_file_and_its_thread_records_the_next(tmp_path: Path, how: str) -> None:
    thread, take, told = opened(tmp_path / "take-0")
    if how == "fails":
        take.put("surroundings", lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        take.end(recorder_ns=1)
    else:
        take.fail("ValueError: no")
    take.ended.wait()
    assert told == ["recording", "failed"]
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    assert not [link for link in links if link.is_symlink() and "rank0.frames" in str(link.readlink())]
    other = TakeWriter(thread, tmp_path / "take-1", head(), lambda *_: None)
    other.put_iteration(0, lambda _: iteration(0), None, rows=False)
    other.end(recorder_ns=1)
    other.ended.wait()
    assert len(read_frames(tmp_path / "take-1" / "rank0.frames").frames) == 2
    assert thread.close(60)
    assert not [one for one in threading.enumerate() if one.name == "moegauge-writer"]


def test_a_take_that_exists_fails_and_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "take-0").mkdir()
    (tmp_path / "take-0" / "rank0.frames").write_bytes(b"kept")
    thread, take, told = opened(tmp_path / "take-0")
    take.end(recorder_ns=1)
    take.ended.wait()
    assert told == ["failed"]
    assert (take.failed or "").startswith("FileExistsError")
    assert (tmp_path / "take-0" / "rank0.frames").read_bytes() == b"kept"
    assert thread.close(60)


def test_the_newest_iteration_is_written_without_another_one(tmp_path: Path) -> None:
    thread, take, _ = opened(tmp_path / "take-0")
    written = threading.Event()

    def make(_: object) -> IterationFrame:
        written.set()
        return iteration(0)

    take.put_iteration(0, make, None, rows=False)
    written.wait()
    take.end(recorder_ns=1)
    assert thread.close(60)


def test_a_ring_gives_places_in_order_and_refuses_what_it_has_no_room_for() -> None:
    ring = HostRing(10, pinned=False)
    first, second = ring.take(6), ring.take(4)
    assert first is not None
    assert second is not None
    assert ring.take(1) is None
    ring.give_back(first[1])
    assert ring.take(7) is None
    third = ring.take(6)
    assert third is not None
    assert third[0].data_ptr() == first[0].data_ptr()
    ring.give_back(second[1])
    ring.give_back(third[1])
    again = ring.take(10)
    assert again is None or len(again[0]) == 10
    assert ring.take(11) is None


def test_rows_of_a_step_come_out_as_they_went_in_and_none_of_the_step_before() -> None:
    buffers = RoutedBuffers(layers=2, max_rows=8, top_k=2, device=torch.device("cpu"))
    for rows in (8, 3, 5):
        ids = torch.arange(rows * 2).view(rows, 2)
        buffers.write(0, ids, ids * 0.5, of_rows=rows)
        snapshot = buffers.take(rows)
        assert snapshot is not None
        found, weights = snapshot.arrays()
        np.testing.assert_array_equal(found[0], ids.numpy())
        np.testing.assert_array_equal(weights[0], ids.numpy() * 0.5)
        assert (found[1] == -2).all(), "layer 1 wrote nothing"
        snapshot.release()
    buffers.write(1, ids[:2], ids[:2] * 0.5, of_rows=5)
    part = buffers.take(5)
    assert part is not None
    assert (part.arrays()[0] == -2).sum() == 2 * 5 * 2 - 2 * 2
    with pytest.raises(ValueError, match="9 rows in a step"):
        buffers.write(0, torch.zeros(9, 2), torch.zeros(9, 2), of_rows=9)
    with pytest.raises(ValueError, match="4 rows in a layer, and 3 in its step"):
        buffers.write(0, torch.zeros(4, 2), torch.zeros(4, 2), of_rows=3)


def status(**changes: object) -> RecorderStatus:
    known = RecorderStatus(
        schema="moegauge/recorder-status/v1", rank=0, state="failed", take="take-0", num_iterations=7, problem="OSError"
    )
    return msgspec.structs.replace(known, **changes)


def test_stop_stops_and_says_which_rank_had_failed(tmp_path: Path) -> None:
    start_recording(tmp_path)
    write_status(tmp_path, status(rank=1))
    write_status(tmp_path, status(state="recording", problem=None))
    assert [one.rank for one in read_statuses(tmp_path)] == [0, 1]
    with pytest.raises(errors.Incomplete) as caught:
        stop_recording(tmp_path)
    assert caught.value.found == "rank 1 failed after 7: OSError"
    assert (tmp_path / "control").read_text() == "off\n"
    stop_recording(tmp_path)


def test_start_after_a_failure_begins_another_take_and_a_rank_without_recorder_refuses_it(tmp_path: Path) -> None:
    write_control(tmp_path, "off")
    write_status(tmp_path, status())
    assert failures(tmp_path) == ["rank 0 failed before, in take-0: OSError"]
    assert start_recording(tmp_path) == tmp_path / "take-0"
    (tmp_path / "rank1.not-recorded.txt").write_text("Incomplete: no experts\n")
    write_control(tmp_path, "off")
    with pytest.raises(errors.Incomplete) as caught:
        start_recording(tmp_path)
    assert caught.value.found == "rank1.not-recorded.txt: Incomplete: no experts"
    assert (tmp_path / "control").read_text() == "off\n"
