"""Plain values and tensors of a file that torch.save wrote, without torch and without unpickling.

The archive is a zip of stored entries: data.pkl, and one entry a storage. data.pkl is not run. Its opcodes are listed
by pickletools.genops and those of an allow-list are followed by hand: dict, list, tuple, text, numbers and tensors. The
only names it may mention are torch._utils._rebuild_tensor_v2, the storage types below and collections.OrderedDict, and
none of them is looked up: they are compared as texts. Any other opcode or name is refused.
"""

from __future__ import annotations

import io
import math
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.store import read_bytes

MAX_ARCHIVE_BYTES = 2 << 30
MAX_PICKLE_BYTES = 64 << 20
MAX_ENTRIES = 200_000
_REBUILD = "torch._utils _rebuild_tensor_v2"
_ORDERED = "collections OrderedDict"
_STORAGES = {
    "torch ByteStorage": "<u1",
    "torch CharStorage": "<i1",
    "torch ShortStorage": "<i2",
    "torch IntStorage": "<i4",
    "torch LongStorage": "<i8",
    "torch HalfStorage": "<f2",
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch BoolStorage": "?",
}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Name:
    """A global that data.pkl mentions: "module name". It is never resolved."""

    text: str


class _NotPlain(Exception):
    """What data.pkl holds beyond plain values."""


def read_torch_archive(path: Path) -> Any:
    """The one value of a torch.save file: dict, list, tuple, str, int, float, bool, None and numpy arrays.

    Raises:
        MissingFile, LimitExceeded
        MalformedFile: no archive of torch.save, or one that holds more than plain values and tensors.
    """
    return parse_torch_archive(read_bytes(path, limit=MAX_ARCHIVE_BYTES), where=str(path))


def parse_torch_archive(data: bytes, *, where: str) -> Any:
    """As :func:`read_torch_archive`, of bytes at hand."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _Reading(archive, _checked_prefix(archive, len(data), where)).value()
    except _NotPlain as error:
        raise _malformed(where, "plain values and tensors", str(error)) from error
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _malformed(where, "a zip archive of torch.save", _short(error)) from error
    except (OverflowError, EOFError, OSError, RuntimeError, struct.error, zlib.error) as error:
        raise _malformed(where, "a zip archive of torch.save", _short(error)) from error


def _checked_prefix(archive: zipfile.ZipFile, num_bytes: int, where: str) -> str:
    """The folder inside the archive. Entries are stored, so they never unpack to more than the file's own size."""
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise _too_large(where, f"at most {MAX_ENTRIES} entries", str(len(entries)))
    packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise _NotPlain(f"a compressed entry, which torch.save never writes: {packed[0][:80]!r}")
    if sum(entry.file_size for entry in entries) > num_bytes:
        raise _NotPlain("entries that together are larger than the file")
    pickles = [entry for entry in entries if entry.filename.endswith("data.pkl")]
    if len(pickles) != 1:
        raise _NotPlain(f"{len(pickles)} entries named data.pkl")
    if pickles[0].file_size > MAX_PICKLE_BYTES:
        raise _too_large(where, f"a data.pkl of at most {MAX_PICKLE_BYTES} bytes", str(pickles[0].file_size))
    prefix = pickles[0].filename.removesuffix("data.pkl")
    order = prefix + "byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise _NotPlain("tensors that are not little-endian")
    return prefix


class _Reading:
    """The stack of one data.pkl."""

    def __init__(self, archive: zipfile.ZipFile, prefix: str) -> None:
        self._archive, self._prefix = archive, prefix
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._storages: dict[str, NDArray[Any]] = {}

    def value(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self._archive.read(self._prefix + "data.pkl")):
            if opcode.name == "STOP":
                break
            self._follow(opcode.name, argument)
        if len(self._stack) != 1 or isinstance(self._stack[0], _Name):
            raise _NotPlain("a pickle that does not end in one value")
        return self._stack[0]

    def _follow(self, name: str, argument: Any) -> None:
        if name in ("TUPLE", "APPENDS", "SETITEMS"):
            self._collect(name, self._since_mark())
        elif name in _TUPLES:
            self._collect("TUPLE", self._last(_TUPLES[name]))
        elif name in ("APPEND", "SETITEM"):
            self._collect(name + "S", self._last(1 if name == "APPEND" else 2))
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif name not in ("PROTO", "FRAME"):
            self._stack.append(self._made(name, argument))

    def _made(self, name: str, argument: Any) -> Any:
        """The value that an opcode puts on the stack."""
        if name in _VALUES:
            return argument
        if name in _CONSTANTS:
            return _CONSTANTS[name]()
        if name in ("BINGET", "LONG_BINGET"):
            return self._memo[argument]
        if name == "GLOBAL":
            return _known_name(argument)
        if name == "BINPERSID":
            return self._storage(*self._last(1))
        if name == "REDUCE":
            return _rebuilt(*self._last(2))
        raise _NotPlain(f"opcode {name}")

    def _collect(self, name: str, items: list[Any]) -> None:
        if name == "TUPLE":
            self._stack.append(tuple(items))
        elif name == "APPENDS" and type(self._stack[-1]) is list:
            self._stack[-1].extend(items)
        elif name == "SETITEMS" and type(self._stack[-1]) is dict and len(items) % 2 == 0:
            keys = items[::2]
            if any(type(key) not in (str, int) for key in keys):
                raise _NotPlain("a key that is neither text nor an integer")
            self._stack[-1].update(zip(keys, items[1::2], strict=True))
        else:
            raise _NotPlain(f"opcode {name} on something that is no plain container")

    def _since_mark(self) -> list[Any]:
        return self._last(len(self._stack) - self._marks.pop())

    def _last(self, number: int) -> list[Any]:
        if number < 0 or number > len(self._stack) - (self._marks[-1] if self._marks else 0):
            raise _NotPlain("a stack that runs empty")
        cut = len(self._stack) - number
        items = self._stack[cut:]
        del self._stack[cut:]
        return items

    def _storage(self, identity: Any) -> NDArray[Any]:
        """The elements of a storage: ("storage", type, key, device, number of elements)."""
        if type(identity) is not tuple or len(identity) != 5 or not isinstance(identity[1], _Name):
            raise _NotPlain("a persistent id that is no storage")
        kind, key, number = identity[1].text, identity[2], identity[4]
        if kind not in _STORAGES or type(key) is not str or not (key.isascii() and key.isdigit()):
            raise _NotPlain("a storage of an unknown type or key")
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._archive.read(f"{self._prefix}data/{key}"), dtype=_STORAGES[kind])
        if len(self._storages[key]) != number or self._storages[key].dtype != np.dtype(_STORAGES[kind]):
            raise _NotPlain(f"storage {key} of {len(self._storages[key])} elements where another is declared")
        return self._storages[key]


def _known_name(argument: str) -> _Name:
    if argument not in (_REBUILD, _ORDERED, *_STORAGES):
        raise _NotPlain(f"the name {argument[:80]!r}")
    return _Name(argument)


def _rebuilt(name: Any, arguments: Any) -> Any:
    if not isinstance(name, _Name) or type(arguments) is not tuple:
        raise _NotPlain("a call of something that is no name")
    if name.text == _ORDERED and not arguments:
        return {}
    if name.text == _REBUILD and len(arguments) in (6, 7):
        return _tensor(*arguments[:4])
    raise _NotPlain(f"a call of {name.text}")


def _tensor(storage: Any, offset: Any, size: Any, stride: Any) -> NDArray[Any]:
    """A read-only view into a storage that stays inside it; nothing is copied, so repeating one costs no memory."""
    if not isinstance(storage, np.ndarray) or type(size) is not tuple or type(stride) is not tuple:
        raise _NotPlain("a tensor without storage, size and stride")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or len(size) > 8 or any(type(n) is not int or n < 0 for n in numbers):
        raise _NotPlain("a tensor of an impossible size")
    if math.prod(size) == 0:
        if max(size) > 1 << 40:
            raise _NotPlain("a tensor of an impossible size")
        return np.zeros(size, dtype=storage.dtype)
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if last >= len(storage) or math.prod(size) > len(storage):
        raise _NotPlain("a tensor that reaches beyond its storage")
    steps = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}"


def _malformed(where: str, expected: str, found: str) -> errors.MalformedFile:
    return errors.MalformedFile(
        where=where,
        expected=expected,
        found=found,
        remedy="Nothing of the file was run. Write plain dicts, lists and tensors with torch.save.",
    )


def _too_large(where: str, expected: str, found: str) -> errors.LimitExceeded:
    return errors.LimitExceeded(where=where, expected=expected, found=found, remedy="Split the recording.")
