"""Named arrays of an .npz: never unpickled, within a bound on what they unpack to."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.store import read_bytes

MAX_NPZ_BYTES = 8 << 30


def read_npz(path: Path, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Read named arrays of an .npz without unpickling, within a bound on what it unpacks to.

    Raises:
        MissingFile, MalformedFile, LimitExceeded
    """
    read_bytes(path, limit=MAX_NPZ_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
        if unpacked > MAX_NPZ_BYTES:
            raise errors.LimitExceeded(
                where=str(path),
                expected=f"at most {MAX_NPZ_BYTES} bytes unpacked",
                found=f"{unpacked} bytes",
                remedy="Split the recording.",
            )
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in required if name not in archive.files]
            if missing:
                raise _malformed(path, f"arrays {', '.join(required)}", f"no {', '.join(missing)}")
            return {name: archive[name] for name in (*required, *optional) if name in archive.files}
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise _malformed(path, "an .npz of plain arrays", str(error)) from error


def _malformed(path: Path, expected: str, found: str) -> errors.MalformedFile:
    return errors.MalformedFile(
        where=str(path),
        expected=expected,
        found=found,
        remedy="The file is cut or not what it should be; write it again.",
    )
