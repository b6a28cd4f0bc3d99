"""Folders and files that are written once: all of it or nothing, and every later change is found."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence.store import (
    describe_files,
    file_differences,
    head_differences,
    new_folder,
    read_bytes,
    read_record,
    refuse_existing,
    write_file,
    write_head,
    write_record,
)
from moegauge.records.schema import Record


class Note(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind = "note"
    version = 1

    text: str


NOTE = Note(schema="moegauge/note/v1", text="hello")
NOTE_BYTES = b'{\n  "schema": "moegauge/note/v1",\n  "text": "hello"\n}\n'

BUILD_AND_WAIT = """
import sys, time
from pathlib import Path
from moegauge.evidence.store import new_folder, write_file
with new_folder(Path(sys.argv[1])) as building:
    write_file(building / "part", b"half")
    print("inside", flush=True)
    time.sleep(600)
"""


def test_a_folder_appears_whole_and_its_temporary_name_is_gone(tmp_path: Path) -> None:
    target = tmp_path / "made" / "below" / "capture"
    with new_folder(target) as building:
        assert not target.exists()
        write_file(building / "raw" / "a", b"content")
    assert (target / "raw" / "a").read_bytes() == b"content"
    assert [path.name for path in target.parent.iterdir()] == ["capture"]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(3)])
def test_nothing_is_left_after_an_exception_inside_a_new_folder(tmp_path: Path, error: BaseException) -> None:
    def fail_halfway() -> None:
        with new_folder(tmp_path / "capture") as building:
            write_file(building / "part", b"half")
            raise error

    with pytest.raises(type(error)):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


def test_a_process_killed_inside_a_new_folder_leaves_no_target_and_does_not_block_the_next(tmp_path: Path) -> None:
    target = tmp_path / "capture"
    process = subprocess.Popen([sys.executable, "-c", BUILD_AND_WAIT, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert not target.exists()
    with new_folder(target) as building:
        write_file(building / "part", b"whole")
    assert [path.name for path in target.iterdir()] == ["part"]
    assert (target / "part").read_bytes() == b"whole"


@pytest.mark.parametrize("what", ["file", "folder", "dangling link"])
def test_where_something_stands_nothing_is_written(tmp_path: Path, what: str) -> None:
    target = tmp_path / "out"
    if what == "file":
        target.write_bytes(b"mine")
    elif what == "folder":
        target.mkdir()
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(errors.MisuseError, match="something already there"):
        refuse_existing(target)
    with pytest.raises(errors.MisuseError, match="something already there"), new_folder(target):
        raise AssertionError("the block must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def be_overtaken() -> None:
        with new_folder(target) as building:
            write_file(building / "part", b"mine")
            target.mkdir()
            (target / "theirs").write_bytes(b"theirs")

    with pytest.raises(errors.MisuseError, match="something already there"):
        be_overtaken()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in target.iterdir()] == ["theirs"]


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    target = tmp_path / "file" / "capture"
    with pytest.raises(errors.MisuseError, match="a place where a new folder can be made"), new_folder(target):
        raise AssertionError("the block must not run")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    digest = write_file(tmp_path / "a", b"one")
    assert digest == "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_record_is_written_in_canonical_bytes_and_read_back(tmp_path: Path) -> None:
    digest = write_record(tmp_path / "note.json", NOTE)
    assert (tmp_path / "note.json").read_bytes() == NOTE_BYTES
    assert digest == "sha256:" + hashlib.sha256(NOTE_BYTES).hexdigest()
    assert read_record(tmp_path / "note.json", Note) == NOTE


@pytest.mark.parametrize(
    "data",
    [
        NOTE_BYTES[:-1],
        NOTE_BYTES + b"\n",
        NOTE_BYTES.replace(b"  ", b"\t"),
        b'{\n  "text": "hello",\n  "schema": "moegauge/note/v1"\n}\n',
        NOTE_BYTES.replace(b"hello", b"\\u0068ello"),
        b'{\n  "schema": "moegauge/note/v1",\n  "text": "first",\n  "text": "hello"\n}\n',
    ],
)
def test_other_bytes_with_the_same_meaning_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "note.json").write_bytes(data)
    with pytest.raises(errors.DigestMismatch, match="other bytes with the same meaning"):
        read_record(tmp_path / "note.json", Note)


def test_reading_says_whether_a_file_is_missing_a_folder_empty_or_too_large(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "five").write_bytes(b"12345")
    with pytest.raises(errors.MissingFile, match="found nothing"):
        read_bytes(tmp_path / "absent")
    with pytest.raises(errors.MissingFile, match="expected a file"):
        read_bytes(tmp_path)
    with pytest.raises(errors.MissingFile, match="0 bytes"):
        read_bytes(tmp_path / "empty")
    with pytest.raises(errors.LimitExceeded, match="at most 4 bytes, found 5 bytes"):
        read_bytes(tmp_path / "five", limit=4)
    assert read_bytes(tmp_path / "five", limit=5) == b"12345"


def test_every_missing_extra_and_changed_file_of_a_folder_is_named(tmp_path: Path) -> None:
    for name in ("same", "changed", "deep/gone", "head"):
        write_file(tmp_path / name, name.encode())
    recorded = describe_files(tmp_path, leave_out=frozenset({"head"}))
    assert sorted(recorded) == ["changed", "deep/gone", "same"]
    assert file_differences(tmp_path, recorded, leave_out=frozenset({"head"})) == []
    (tmp_path / "changed").write_bytes(b"chanGed")
    (tmp_path / "deep" / "gone").unlink()
    write_file(tmp_path / "deep" / "extra", b"x")
    gone, extra, changed = file_differences(tmp_path, recorded, leave_out=frozenset({"head"}))
    assert gone == "deep/gone: recorded but missing"
    assert extra == "deep/extra: not recorded"
    assert changed.startswith("changed: changed (recorded sha256:")


def test_a_head_lies_beside_its_digest_in_the_form_of_sha256sum(tmp_path: Path) -> None:
    write_head(tmp_path, "note.json", NOTE)
    beside = tmp_path / "note.json.sha256"
    assert beside.read_text() == f"{hashlib.sha256(NOTE_BYTES).hexdigest()}  note.json\n"
    assert head_differences(tmp_path, "note.json") == []


@pytest.mark.parametrize("name", ["note.json", "note.json.sha256"])
def test_a_flipped_byte_of_a_head_or_of_its_digest_is_found_at_every_offset(tmp_path: Path, name: str) -> None:
    write_head(tmp_path, "note.json", NOTE)
    original = (tmp_path / name).read_bytes()
    for offset in range(len(original)):
        (tmp_path / name).write_bytes(original[:offset] + bytes([original[offset] ^ 1]) + original[offset + 1 :])
        (line,) = head_differences(tmp_path, "note.json")
        assert line.startswith("note.json: changed, or note.json.sha256 was")


@pytest.mark.parametrize("name", ["note.json", "note.json.sha256"])
def test_a_head_or_a_head_digest_that_is_gone_is_named(tmp_path: Path, name: str) -> None:
    write_head(tmp_path, "note.json", NOTE)
    os.remove(tmp_path / name)
    (line,) = head_differences(tmp_path, "note.json")
    assert line.startswith(f"{name}: ")
    assert line.endswith("missing")
