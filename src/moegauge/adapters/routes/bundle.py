"""The plain bundle: a folder anyone can write from their own hooks. See docs/formats/bundle.md.

``meta.json`` (model configuration and one step an iteration), one routing table and one trace a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.npz import read_npz
from moegauge.evidence.store import read_bytes
from moegauge.records.identity import ModelShape
from moegauge.records.schema import Record, check_schema
from moegauge.routing.expert_load import Int32Array, as_topk_ids, check_expert_map

_RANK_FILE = re.compile(r"^rank(?P<rank>[0-9]{1,5})\.")
_MAX_NUMBER = (1 << 31) - 1
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_INTERMEDIATE = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
_TOP_K = ("num_experts_per_tok", "moe_topk", "num_experts_per_token")


class BundleSchema(Record, frozen=True, kw_only=True):
    """Kind and version of meta.json. A bundle may leave its schema out: it is other people's plain format."""

    kind: ClassVar[str] = "bundle"
    version: ClassVar[int] = 1


class Step(msgspec.Struct, frozen=True, rename={"iteration": "iter"}):
    """One iteration. Everything but its number may be absent; absent is not zero.

    Attributes:
        iteration: number. tokens: logical tokens. padded: executed rows. reqs: requests.
        graph: launched as a CUDA graph. weights_recorded: whether topk_weights of this iteration are data.
        rank_tokens: logical tokens of each rank, where ranks hold different tokens; 0 declares an empty rank.
    """

    iteration: int
    tokens: int | None = None
    padded: int | None = None
    reqs: int | None = None
    graph: bool | None = None
    weights_recorded: bool | None = None
    rank_tokens: list[int] | None = None


class Parallel(msgspec.Struct, frozen=True):
    """Parallel sizes; one that is absent was not recorded."""

    tp: int | None = None
    ep: int | None = None
    dp: int | None = None


class BundleMeta(msgspec.Struct, frozen=True):
    """meta.json. Fields beyond these are kept in the raw file and otherwise ignored."""

    config: dict[str, Any]
    steps: list[Step]
    schema: str | None = None
    kernel_kind: str | None = None
    torch: str | None = None
    vllm: str | None = None
    gpu: str | None = None
    ranks: int | None = None
    parallel: Parallel | str | None = None
    routed_scope: str | None = None
    device_uuids: list[str] | None = None
    conditions: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class RoutedTable:
    """Routed rows of one rank.

    Attributes:
        iteration, layer: int64 [invocations], strictly ascending by (iteration, layer).
        offset: int64 [invocations + 1], first row of each invocation.
        topk_ids: int32 [rows, top_k].
        topk_weights: float32 [rows, top_k], or None where the file has none.
        expert_map: int32 [num_experts] or None.
    """

    iteration: NDArray[np.int64]
    layer: NDArray[np.int64]
    offset: NDArray[np.int64]
    topk_ids: Int32Array
    topk_weights: NDArray[np.float32] | None
    expert_map: Int32Array | None


@dataclass(frozen=True)
class RankFiles:
    """Where one rank's parts lie; None where the bundle lacks a part."""

    trace: Path | None
    routing: Path | None


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: metadata and file names; nothing large is read yet."""

    folder: Path
    meta: BundleMeta
    shape: ModelShape
    ranks: tuple[RankFiles, ...]
    official_routes: Path | None


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
    meta = _read_meta(folder / "meta.json")
    _check_steps(meta.steps, where=str(folder / "meta.json"))
    world_size = meta.ranks if meta.ranks is not None else _ranks_in(folder)
    official = folder / "routed_experts_official.npz"
    return Bundle(
        folder=folder,
        meta=meta,
        shape=_model_shape(meta.config, where=str(folder / "meta.json")),
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
    meta, where = arrays["meta"], str(path)
    if meta.ndim != 2 or meta.shape[1] != 3 or not np.issubdtype(meta.dtype, np.integer) or (meta < 0).any():
        raise _inconsistent(where, "meta: integers [invocations, 3] (iteration, layer, rows)", str(meta.shape))
    meta = meta.astype(np.int64)
    order = np.lexsort((meta[:, 1], meta[:, 0]))
    if not np.array_equal(order, np.arange(len(meta))) or len(np.unique(meta[:, :2], axis=0)) != len(meta):
        raise _inconsistent(where, "each (iteration, layer) once, in ascending order", "another order or a repetition")
    offset = np.r_[np.int64(0), np.cumsum(meta[:, 2])]
    if arrays["ids"].shape[:1] != (offset[-1],):
        found = f"ids {list(arrays['ids'].shape)}"
        raise _inconsistent(where, f"{offset[-1]} rows of ids (the sum of meta's rows)", found)
    ids = as_topk_ids(
        arrays["ids"],
        top_k=shape.top_k,
        num_experts=shape.num_experts,
        where=f"{where}: ids",
        is_token=_is_token(meta, offset, num_logical),
    )
    _check_kinds(arrays, where)
    weights = arrays.get("weights")
    if weights is not None and weights.shape != ids.shape:
        raise _inconsistent(where, f"weights {list(ids.shape)}", str(list(weights.shape)))
    expert_map = arrays.get("expert_map")
    if expert_map is not None:
        expert_map = expert_map.astype(np.int32)
        check_expert_map(expert_map, num_experts=shape.num_experts, where=f"{where}: expert_map")
    return RoutedTable(
        meta[:, 0], meta[:, 1], offset, ids, None if weights is None else weights.astype(np.float32), expert_map
    )


def _is_token(meta: NDArray[np.int64], offset: NDArray[np.int64], num_logical: Mapping[int, int]) -> NDArray[np.bool_]:
    """Whether each row is a token and not padding; [rows]. Every row where the logical count is unknown."""
    limit = np.array([num_logical.get(i, rows) for i, rows in meta[:, [0, 2]].tolist()], dtype=np.int64)
    row = np.arange(offset[-1]) - np.repeat(offset[:-1], meta[:, 2])
    return np.asarray(row < np.repeat(limit, meta[:, 2]), dtype=np.bool_)


def _check_kinds(arrays: dict[str, NDArray[Any]], where: str) -> None:
    """Weights are finite numbers and an expert map holds integers; anything else would be truncated in silence."""
    weights, expert_map = arrays.get("weights"), arrays.get("expert_map")
    if weights is not None and not (np.issubdtype(weights.dtype, np.floating) and np.isfinite(weights).all()):
        raise _inconsistent(where, "weights: finite floating-point numbers", f"{weights.dtype}, or not finite")
    if expert_map is not None and not np.issubdtype(expert_map.dtype, np.integer):
        raise _inconsistent(where, "expert_map: integers", str(expert_map.dtype))


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


def _check_steps(steps: list[Step], *, where: str) -> None:
    numbers = [step.iteration for step in steps]
    if not steps or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        raise _inconsistent(where, "steps: at least one, each iteration number once, none negative", str(numbers[:20]))
    for step in steps:
        known = [n for n in (step.tokens, step.padded, step.reqs, *(step.rank_tokens or [])) if n is not None]
        if any(not 0 <= number <= _MAX_NUMBER for number in (step.iteration, *known)):
            raise _inconsistent(where, f"counts in 0..{_MAX_NUMBER}", f"iteration {step.iteration}: {known}")
        if step.tokens is not None and step.padded is not None and step.padded < step.tokens and not step.rank_tokens:
            raise _inconsistent(
                where,
                "executed rows (padded) of at least the logical tokens",
                f"iteration {step.iteration}: {step.padded} < {step.tokens}",
            )


def _model_shape(config: dict[str, Any], *, where: str) -> ModelShape:
    def first(names: tuple[str, ...]) -> int:
        for name in names:
            value = config.get(name)
            if isinstance(value, int) and 0 < value <= _MAX_NUMBER:
                return value
        raise _inconsistent(where, f"a positive integer in config under one of {', '.join(names)}", "none")

    num_experts, top_k = first(_NUM_EXPERTS), first(_TOP_K)
    if top_k > num_experts:
        raise _inconsistent(where, f"a top_k of at most the {num_experts} experts", str(top_k))
    return ModelShape(
        hidden_size=first(("hidden_size",)),
        intermediate_size=first(_INTERMEDIATE),
        num_experts=num_experts,
        top_k=top_k,
    )


def _ranks_in(folder: Path) -> int:
    found = {int(match["rank"]) for path in folder.iterdir() if (match := _RANK_FILE.match(path.name))}
    return max(found) + 1 if found else 1


def _rank_files(folder: Path, rank: int, world_size: int) -> RankFiles:
    prefixes = [f"rank{rank}."] + ([""] if world_size == 1 else [])

    def one(stem: str, endings: tuple[str, ...]) -> Path | None:
        names = [f"{prefix}{stem}{ending}" for prefix in prefixes for ending in endings]
        found = [folder / name for name in names if (folder / name).is_file()]
        if len(found) > 1:
            raise _inconsistent(str(folder), f"one {stem} of rank {rank}", ", ".join(path.name for path in found))
        return found[0] if found else None

    return RankFiles(
        trace=one("serving_trace", (".json.gz", ".json", ".slim.json.gz", ".slim.json")),
        routing=one("routing", (".npz",)),
    )


def _inconsistent(where: str, expected: str, found: str) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=where, expected=expected, found=found, remedy="Correct what writes the bundle (docs/formats/bundle.md)."
    )
