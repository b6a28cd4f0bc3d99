"""Files of tuned Triton configurations, as vLLM writes and reads them: one configuration by number of rows.

    {"triton_version": "3.4.0",
     "16": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, ...},
     "32": ...}

vLLM 0.25.1 takes the configuration whose number is nearest to the rows of a call, the earlier one in the file where
two are equally near, and ignores `triton_version`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moegauge import errors
from moegauge.evidence.digest import bytes_digest
from moegauge.evidence.store import read_bytes

MAX_CONFIG_BYTES = 16 << 20
Config = dict[str, int]
"""One configuration: block sizes, warps and stages by their names."""

_NEEDED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_ROWS = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class KernelConfig:
    """Configurations by number of rows.

    Attributes:
        by_rows: in the order of the file, not empty.
        digest: ``sha256:<hex>`` of the file's bytes.
    """

    by_rows: Mapping[int, Mapping[str, int]]
    digest: str

    def of_rows(self, rows: int) -> Config:
        """What vLLM takes for so many rows; a dictionary of the caller's own."""
        return dict(self.by_rows[min(self.by_rows, key=lambda known: abs(known - rows))])


DEFAULT = KernelConfig({}, "default")
"""vLLM's own heuristic, also where it has a tuned file; whoever runs a kernel asks vLLM for it."""


def given_config(known: KernelConfig | None, rows: int) -> Config | None:
    """The configuration to run so many rows with; None, where none was given, has vLLM's override_config find one."""
    return None if known is None else known.of_rows(rows)


def read_kernel_config(path: Path) -> KernelConfig:
    """Read a file of tuned configurations; the name ``default`` stands for :data:`DEFAULT`.

    Raises:
        MissingFile, LimitExceeded
        MalformedFile: not JSON, no configuration, or one without its block sizes.
    """
    if path == Path("default"):
        return DEFAULT
    data = read_bytes(path, limit=MAX_CONFIG_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(content, dict):
        raise _malformed(path, f"a JSON {type(content).__name__}")
    entries = {rows: config for rows, config in content.items() if rows != "triton_version"}
    if not entries:
        raise _malformed(path, "no configuration")
    for rows, config in entries.items():
        found = _wrong(rows, config)
        if found:
            raise _malformed(path, found)
    return KernelConfig({int(rows): config for rows, config in entries.items()}, bytes_digest(data))


def config_bytes(by_rows: Mapping[int, Mapping[str, int]]) -> bytes:
    """A file of tuned configurations, as vLLM reads it: by number of rows, the smallest first, block sizes first."""

    def place(name: str) -> tuple[int, str]:
        return (_NEEDED.index(name) if name in _NEEDED else len(_NEEDED), name)

    content = {
        str(rows): {name: by_rows[rows][name] for name in sorted(by_rows[rows], key=place)} for rows in sorted(by_rows)
    }
    return json.dumps(content, indent=4).encode() + b"\n"


def _wrong(rows: str, config: object) -> str | None:
    """What is wrong with one entry of the file; None where nothing is."""
    if _ROWS.fullmatch(rows) is None:
        return f"the key {rows[:40]!r}"
    if not isinstance(config, dict) or any(type(value) is not int for value in config.values()):
        return f"something else than whole numbers by name for {rows} rows"
    missing = [name for name in _NEEDED if name not in config]
    return f"no {', '.join(missing)} for {rows} rows" if missing else None


def _malformed(path: Path, found: str) -> errors.MalformedFile:
    return errors.MalformedFile(
        where=str(path),
        expected=f"tuned configurations by number of rows, each with {', '.join(_NEEDED)}",
        found=found,
        remedy="Give a file in vLLM's format, as its benchmark_moe.py --tune writes it.",
    )
