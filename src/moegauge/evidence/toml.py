"""Files that people write in TOML, read as strictly as records."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from moegauge import errors
from moegauge.evidence.store import read_bytes

MAX_TOML_BYTES = 4 << 20
T = TypeVar("T")


def read_toml(path: Path, kind: type[T]) -> T:
    """Read a TOML file into a struct; unknown fields are refused.

    Raises:
        MissingFile, LimitExceeded
        MalformedFile: not TOML, or a field is missing, unknown or of the wrong type.
    """
    data = read_bytes(path, limit=MAX_TOML_BYTES)
    try:
        return msgspec.convert(tomllib.loads(data.decode()), kind, strict=True)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFile(
            where=str(path), expected="TOML", found=str(error), remedy="Correct the line it names."
        ) from error
    except msgspec.ValidationError as error:
        raise errors.MalformedFile(
            where=str(path),
            expected="the fields of docs/formats/lane.md",
            found=str(error),
            remedy="Correct the field it names; nothing was written.",
        ) from error
