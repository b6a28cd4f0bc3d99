"""A lane folder's files: whole or not at all, never over another, and each one that does not belong is named."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence import lane_folder
from moegauge.evidence.digest import bytes_digest
from moegauge.evidence.host_state import HostState, state_folder
from moegauge.evidence.lane_folder import inventory_differences, present_files, read_steps, write_new
from moegauge.records.capture import FileDigest
from moegauge.records.packet import ConsumedMarker


def marker(packet: str = "sha256:aa") -> ConsumedMarker:
    return ConsumedMarker(
        schema=ConsumedMarker.tag(), packet=packet, registration="sha256:cc", phase="a", at_ns=1, boot_id="boot"
    )


def test_a_new_file_is_described_as_it_was_written(tmp_path: Path) -> None:
    assert write_new(tmp_path / "a" / "b", b"word") == FileDigest(digest=bytes_digest(b"word"), num_bytes=4)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"first")
    with pytest.raises(errors.MisuseError, match="Evidence is written once"):
        write_new(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lane_folder.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "a", b"word")
    assert list(tmp_path.iterdir()) == []


def test_a_process_killed_while_writing_leaves_a_file_that_counts_nowhere(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from moegauge.evidence import lane_folder\n"
        "lane_folder.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "lane_folder.write_new(Path(sys.argv[1]) / 'a', b'word')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    assert present_files(tmp_path) == {}
    assert inventory_differences(tmp_path, {}, open_under=()) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("missing", "kept: recorded but missing"),
        ("extra", "new: not recorded"),
        ("link", "kept: a link, or no regular file"),
        ("linked folder", "away: a link, or no regular file"),
        ("changed", "kept: changed"),
    ],
)
def test_each_kind_of_difference_is_named(tmp_path: Path, change: str, line: str) -> None:
    recorded = {"kept": write_new(tmp_path / "kept", b"word")}
    assert inventory_differences(tmp_path, recorded, open_under=()) == []
    if change in {"missing", "link"}:
        (tmp_path / "kept").unlink()
    if change == "link":
        (tmp_path / "kept").symlink_to("/dev/null")
    if change == "extra":
        (tmp_path / "new").write_bytes(b"")
    if change == "linked folder":
        (tmp_path / "away").symlink_to("/tmp")  # noqa: S108 - never followed
    if change == "changed":
        (tmp_path / "kept").write_bytes(b"wore")
    (found,) = inventory_differences(tmp_path, recorded, open_under=())
    assert found.startswith(line)


def test_files_of_an_open_run_are_no_strangers(tmp_path: Path) -> None:
    write_new(tmp_path / "runs" / "phase-a" / "one" / "00000-binding.json", b"x")
    assert inventory_differences(tmp_path, {}, open_under=("runs/phase-a",)) == []
    assert len(inventory_differences(tmp_path, {}, open_under=("runs/phase-b",))) == 1


def test_a_stranger_among_the_steps_is_refused(tmp_path: Path) -> None:
    write_new(tmp_path / "steps" / "0000-rescue.json", b"{}")
    with pytest.raises(errors.MalformedFile, match=r"found 0000-rescue\.json"):
        read_steps(tmp_path)


# --- host state -------------------------------------------------------------------------------------------------------


def test_host_state_lies_where_it_is_told_to() -> None:
    assert state_folder({"MOEGAUGE_STATE_DIR": "/s"}) == Path("/s")
    assert state_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/moegauge")
    assert state_folder({}) == Path.home() / ".local" / "state" / "moegauge"


def test_a_packet_is_consumed_once_and_so_is_its_phase(tmp_path: Path) -> None:
    state = HostState(tmp_path)
    state.consume(marker(), "sha256:lane")
    assert state.is_consumed("sha256:aa", "sha256:other", "a")
    assert state.is_consumed("sha256:bb", "sha256:lane", "a")
    assert not state.is_consumed("sha256:bb", "sha256:lane", "b")
    for packet in ("sha256:aa", "sha256:bb"):
        with pytest.raises(errors.MisuseError):
            state.consume(marker(packet), "sha256:lane")


def test_another_step_of_one_number_is_refused(tmp_path: Path) -> None:
    state = HostState(tmp_path)
    state.remember("sha256:lane", 3, "sha256:one")
    state.remember("sha256:lane", 3, "sha256:one")
    with pytest.raises(errors.Inconsistent, match="which this host remembers"):
        state.remember("sha256:lane", 3, "sha256:two")


def test_steps_that_are_lost_or_replaced_are_named(tmp_path: Path) -> None:
    state = HostState(tmp_path)
    for number, digest in enumerate(("one", "two", "three")):
        state.remember("sha256:lane", number, digest)
    assert state.lost_steps("sha256:lane", ["one", "two", "three", "four"]) == []
    assert [line[:6] for line in state.lost_steps("sha256:lane", ["one", "other"])] == ["step 1", "step 2"]
