"""torch.save files are read without unpickling. The fixtures are written by torch itself or by hand."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from moegauge import errors
from moegauge.adapters.torch_archive import parse_torch_archive, read_torch_archive


def saved(value: Any) -> bytes:
    out = BytesIO()
    torch.save(value, out)
    return out.getvalue()


def archive(pickled: bytes, *, compression: int = zipfile.ZIP_STORED, **storages: bytes) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", compression) as target:
        target.writestr("a/data.pkl", pickled)
        for name, data in storages.items():
            target.writestr(f"a/data/{name.removeprefix('s')}", data)
    return out.getvalue()


def refusal(data: bytes) -> str:
    with pytest.raises(errors.MalformedFile) as caught:
        parse_torch_archive(data, where="x.pt")
    return str(caught.value)


def test_what_torch_saved_is_what_is_read(tmp_path: Path) -> None:
    table = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    value = {
        "rank": 3,
        "big": 1 << 40,
        "records": [{"x": 1.5, "y": None, "s": "t", "l": [1, -2], "z": (1, 2, 3, 4), "b": True}],
        "view": table[1:, 1:3],
        "turned": table.T,
        "none": torch.zeros((0, 4), dtype=torch.int64),
        "one": torch.tensor(7, dtype=torch.int16),
        "weights": torch.tensor([0.25, 0.75]),
        "map": collections.OrderedDict(a=1),
    }
    (tmp_path / "x.pt").write_bytes(saved(value))
    read = read_torch_archive(tmp_path / "x.pt")
    assert read["records"] == [{"x": 1.5, "y": None, "s": "t", "l": [1, -2], "z": (1, 2, 3, 4), "b": True}]
    assert (read["rank"], read["big"], read["map"]) == (3, 1099511627776, {"a": 1})
    assert read["view"].tolist() == [[5, 6], [9, 10]]
    assert read["turned"].tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert (read["none"].shape, read["one"].tolist(), read["weights"].tolist()) == ((0, 4), 7, [0.25, 0.75])
    assert (read["view"].dtype, read["one"].dtype) == (np.int32, np.int16)


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path, protocol: int) -> None:
    ran = tmp_path / "ran"
    data = pickle.dumps(Evil(ran), protocol=protocol)
    message = refusal(archive(data))
    assert not ran.exists()
    assert "the name 'posix system'" in message or "opcode" in message


def test_the_name_that_a_pickle_would_call_is_in_the_message(tmp_path: Path) -> None:
    assert "the name 'posix system'" in refusal(saved(Evil(tmp_path / "ran")))


def test_names_through_the_stack_are_refused_by_their_opcode() -> None:
    assert "opcode STACK_GLOBAL" in refusal(archive(pickle.dumps(os.system, protocol=4)))


def test_a_plain_pickle_is_no_archive() -> None:
    assert "BadZipFile" in refusal(pickle.dumps({"a": 1}))


def test_a_compressed_archive_is_refused_before_it_unpacks() -> None:
    bomb = archive(pickle.dumps({}, protocol=2), compression=zipfile.ZIP_DEFLATED, s0=bytes(1 << 24))
    assert len(bomb) < 1 << 16
    assert "a compressed entry, which torch.save never writes" in refusal(bomb)


def storage(key: str, number: int, *, size: tuple[int, ...], stride: tuple[int, ...], kind: str = "Int") -> bytes:
    """data.pkl of one tensor, opcode by opcode."""

    def num(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(num(value) for value in values) + b"t"

    identity = b"(" + text("storage") + f"ctorch\n{kind}Storage\n".encode() + text(key) + text("cpu") + num(number)
    view = num(0) + numbers(size) + numbers(stride) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + identity + b"tQ" + view + b"tR."


def test_a_tensor_written_by_hand_is_read() -> None:
    data = archive(storage("0", 4, size=(2, 2), stride=(2, 1)), s0=np.arange(4, dtype="<i4").tobytes())
    assert parse_torch_archive(data, where="x").tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (storage("../../secret", 4, size=(4,), stride=(1,)), "unknown type or key"),
        (storage("0", 4, size=(5,), stride=(1,)), "beyond its storage"),
        (storage("0", 4, size=(2,), stride=(9,)), "beyond its storage"),
        (storage("0", 4, size=(1 << 30, 1 << 30), stride=(0, 0)), "beyond its storage"),
        (storage("0", 4, size=(2,), stride=(-1,)), "impossible size"),
        (storage("0", 9, size=(4,), stride=(1,)), "where another is declared"),
        (storage("0", 4, size=(4,), stride=(1,), kind="BFloat16"), "torch BFloat16Storage"),
        (storage("7", 4, size=(4,), stride=(1,)), "KeyError"),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(pickled: bytes, words: str) -> None:
    assert words in refusal(archive(pickled, s0=np.arange(4, dtype="<i4").tobytes()))


def test_entries_that_share_bytes_are_refused() -> None:
    whole = bytearray(archive(pickle.dumps({}, protocol=2), s0=b"x" * 64))
    at = whole.rindex(b"PK\x01\x02") + 24
    whole[at : at + 4] = (1 << 30).to_bytes(4, "little")
    assert "larger than the file" in refusal(bytes(whole))


def test_deep_nesting_is_read_or_refused_and_never_overflows() -> None:
    read = parse_torch_archive(archive(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."), where="x")
    depth = 0
    while read:
        (read,) = read
        depth += 1
    assert depth == 99_999


GOOD = saved({"records": [{"rank": 0, "ids": torch.arange(8, dtype=torch.int32)}]})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_are_a_value_or_a_typed_refusal(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    with contextlib.suppress(errors.MoegaugeError):
        parse_torch_archive(bytes(data), where="x")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_any_opcodes_are_a_value_or_a_typed_refusal(pickled: bytes) -> None:
    with contextlib.suppress(errors.MoegaugeError):
        parse_torch_archive(archive(b"\x80\x02" + pickled + b"."), where="x")
