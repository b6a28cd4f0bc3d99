"""The plain bundle: a folder anyone can write from their own hooks. See docs/formats/bundle.md.

``meta.json`` (model configuration and one step an iteration), one routing table and one trace a rank.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.npz import read_npz
from moegauge.adapters.routes.serving import (
    BundleMeta,
    RankFiles,
    RoutedTable,
    ServingSource,
    check_steps,
    inconsistent,
    model_shape,
    present,
    routed_table,
)
from moegauge.adapters.traces.recognition import read_trace
from moegauge.evidence.store import read_bytes
from moegauge.kernels.trace import Trace
from moegauge.records.identity import ModelShape
from moegauge.records.schema import Record, check_schema

META_NAME = "meta.json"
OFFICIAL_NAME = "routed_experts_official.npz"
_TRACE_ENDINGS = (".json.gz", ".json", ".slim.json.gz", ".slim.json", ".sqlite", ".sqlite.gz", ".db", ".db.gz")
_RANK_FILE = re.compile(r"^rank(?P<rank>[0-9]{1,5})\.")


class BundleSchema(Record, frozen=True, kw_only=True):
    """Kind and version of meta.json. A bundle may leave its schema out: it is other people's plain format."""

    kind: ClassVar[str] = "bundle"
    version: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Bundle(ServingSource):
    """An opened bundle folder."""

    source: ClassVar[str] = "bundle"
    meta_name: ClassVar[str] = META_NAME

    def read_trace(self, rank: int) -> Trace:
        """The trace of a rank that is there, in whichever format its profiler wrote."""
        return read_trace(present(self.ranks[rank].trace))

    def read_routed(self, rank: int, num_logical: Mapping[int, int]) -> RoutedTable:
        """routing.npz of a rank that is there."""
        return read_routed_table(present(self.ranks[rank].routing), self.shape, num_logical)

    def raw_files(self, missing: Container[int]) -> tuple[Path, ...]:
        """meta.json, traces and routing tables, and the engine's own routes where they are there."""
        ranks = [files for rank, files in enumerate(self.ranks) if rank not in missing]
        parts = [path for files in ranks for path in (files.trace, files.routing) if path is not None]
        return (self.folder / META_NAME, *parts, *([self.official_routes] if self.official_routes else []))


def open_bundle(folder: Path) -> Bundle:
    """Read a bundle's metadata and find its files.

    Raises:
        MissingFile: no folder or no meta.json.
        MalformedFile, SchemaNewer: meta.json is not what docs/formats/bundle.md says.
        Inconsistent: two files for one rank, a repeated iteration, or dimensions that are not in the configuration.
    """
    if not folder.is_dir():
        raise errors.MissingFile(
            where=str(folder), expected="a bundle folder", found="no folder", remedy="See docs/formats/bundle.md."
        )
    meta = _read_meta(folder / META_NAME)
    check_steps(meta.steps, where=str(folder / META_NAME))
    world_size = meta.ranks if meta.ranks is not None else _ranks_in(folder)
    official = folder / OFFICIAL_NAME
    return Bundle(
        folder=folder,
        meta=meta,
        shape=model_shape(meta.config, where=str(folder / META_NAME)),
        ranks=tuple(_rank_files(folder, rank, world_size) for rank in range(world_size)),
        official_routes=official if official.is_file() else None,
    )


def read_routed_table(path: Path, shape: ModelShape, num_logical: Mapping[int, int]) -> RoutedTable:
    """Read routing.npz (never unpickled) and check every id.

    Args:
        path: the file. shape: of the model.
        num_logical: logical rows by iteration, where known; rows after them are padding.

    Raises:
        MissingFile, MalformedFile, LimitExceeded: the file itself.
        Inconsistent: row counts, ids, repeated invocations or the expert map.
    """
    arrays = read_npz(path, required=("meta", "ids"), optional=("weights", "expert_map"))
    where = str(path)
    _check_kinds(arrays, where)
    return routed_table(
        arrays["meta"],
        arrays["ids"],
        arrays.get("weights"),
        arrays.get("expert_map"),
        shape=shape,
        num_logical=num_logical,
        where=where,
    )


def _check_kinds(arrays: dict[str, NDArray[Any]], where: str) -> None:
    """Weights are finite numbers and an expert map holds integers; anything else would be truncated in silence."""
    weights, expert_map = arrays.get("weights"), arrays.get("expert_map")
    if weights is not None and not (np.issubdtype(weights.dtype, np.floating) and np.isfinite(weights).all()):
        raise inconsistent(where, "weights: finite floating-point numbers", f"{weights.dtype}, or not finite")
    if expert_map is not None and not np.issubdtype(expert_map.dtype, np.integer):
        raise inconsistent(where, "expert_map: integers", str(expert_map.dtype))


def _read_meta(path: Path) -> BundleMeta:
    data = read_bytes(path)
    try:
        meta = msgspec.json.decode(data, type=BundleMeta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.MalformedFile(
            where=str(path),
            expected="meta.json as in docs/formats/bundle.md",
            found=str(error),
            remedy="Write it as that page shows.",
        ) from error
    if meta.schema is not None:
        check_schema(meta.schema, BundleSchema, where=str(path))
    return meta


def _ranks_in(folder: Path) -> int:
    found = {int(match["rank"]) for path in folder.iterdir() if (match := _RANK_FILE.match(path.name))}
    return max(found) + 1 if found else 1


def _rank_files(folder: Path, rank: int, world_size: int) -> RankFiles:
    prefixes = [f"rank{rank}."] + ([""] if world_size == 1 else [])

    def one(stem: str, endings: tuple[str, ...]) -> Path | None:
        names = [f"{prefix}{stem}{ending}" for prefix in prefixes for ending in endings]
        found = [folder / name for name in names if (folder / name).is_file()]
        if len(found) > 1:
            raise inconsistent(str(folder), f"one {stem} of rank {rank}", ", ".join(path.name for path in found))
        return found[0] if found else None

    return RankFiles(
        trace=one("serving_trace", _TRACE_ENDINGS),
        routing=one("routing", (".npz",)),
    )
