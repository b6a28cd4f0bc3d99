"""What a recording of serving gives: metadata, and for each rank a device trace and a routing table.

Bundles (bundle.py) and recordings of a live engine (recording.py) both read as a :class:`ServingSource`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.kernels.trace import Trace
from moegauge.records.capture import Finding
from moegauge.records.identity import ModelShape
from moegauge.routing.expert_load import Int32Array, as_topk_ids, check_expert_map

_MAX_NUMBER = (1 << 31) - 1
_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_INTERMEDIATE = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
_TOP_K = ("num_experts_per_tok", "moe_topk", "num_experts_per_token")


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
    numeric_format: str | None = None
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


@dataclass(frozen=True, kw_only=True)
class ServingSource(ABC):
    """An opened recording of serving: metadata and file names; nothing large is read yet.

    Attributes:
        source: what kind it is, for capture.json. meta_name: the file that messages about metadata name.
        ranks: where each declared rank's parts lie. findings: what opening it noticed.
        moe_layers: those that it names; one that no routed row was recorded of is there all the same.
    """

    source: ClassVar[str]
    meta_name: ClassVar[str]

    folder: Path
    meta: BundleMeta
    shape: ModelShape
    ranks: tuple[RankFiles, ...]
    official_routes: Path | None
    findings: tuple[Finding, ...] = ()
    moe_layers: tuple[int, ...] = ()

    @property
    def meta_path(self) -> str:
        """The file that messages about metadata name."""
        return str(self.folder / self.meta_name)

    @abstractmethod
    def read_trace(self, rank: int) -> Trace:
        """The device trace of a rank that is there."""

    @abstractmethod
    def read_routed(self, rank: int, num_logical: Mapping[int, int]) -> RoutedTable:
        """Routed rows of a rank that is there, with ``num_logical`` rows of an iteration that are no padding."""

    @abstractmethod
    def raw_files(self, missing: Container[int]) -> tuple[Path, ...]:
        """Every file that was read, without the ranks that are missing."""

    def further_tables(self) -> dict[str, pl.DataFrame]:
        """Tables that only this kind of source has, by name."""
        return {}


def routed_table(
    meta: NDArray[Any],
    ids: NDArray[Any],
    weights: NDArray[Any] | None,
    expert_map: NDArray[Any] | None,
    *,
    shape: ModelShape,
    num_logical: Mapping[int, int],
    where: str,
) -> RoutedTable:
    """Check routed rows and put them into columns.

    Args:
        meta: integers [invocations, 3] (iteration, layer, rows). ids: integers [rows, top_k]. weights: [rows, top_k].
        expert_map: [num_experts]. shape: of the model.
        num_logical: logical rows by iteration, where known; rows after them are padding. where: for messages.

    Raises:
        Inconsistent
    """
    if meta.ndim != 2 or meta.shape[1] != 3 or not np.issubdtype(meta.dtype, np.integer) or (meta < 0).any():
        raise inconsistent(where, "meta: integers [invocations, 3] (iteration, layer, rows)", str(meta.shape))
    meta = meta.astype(np.int64)
    order = np.lexsort((meta[:, 1], meta[:, 0]))
    if not np.array_equal(order, np.arange(len(meta))) or len(np.unique(meta[:, :2], axis=0)) != len(meta):
        raise inconsistent(where, "each (iteration, layer) once, in ascending order", "another order or a repetition")
    offset = np.r_[np.int64(0), np.cumsum(meta[:, 2])]
    if ids.shape[:1] != (offset[-1],):
        raise inconsistent(where, f"{offset[-1]} rows of ids (the sum of meta's rows)", f"ids {list(ids.shape)}")
    checked = as_topk_ids(
        ids,
        top_k=shape.top_k,
        num_experts=shape.num_experts,
        where=f"{where}: ids",
        is_token=_is_token(meta, offset, num_logical),
    )
    if weights is not None and weights.shape != checked.shape:
        raise inconsistent(where, f"weights {list(checked.shape)}", str(list(weights.shape)))
    if expert_map is not None:
        expert_map = expert_map.astype(np.int32)
        check_expert_map(expert_map, num_experts=shape.num_experts, where=f"{where}: expert_map")
    return RoutedTable(
        meta[:, 0], meta[:, 1], offset, checked, None if weights is None else weights.astype(np.float32), expert_map
    )


def _is_token(meta: NDArray[np.int64], offset: NDArray[np.int64], num_logical: Mapping[int, int]) -> NDArray[np.bool_]:
    """Whether each row is a token and not padding; [rows]. Every row where the logical count is unknown."""
    limit = np.array([num_logical.get(i, rows) for i, rows in meta[:, [0, 2]].tolist()], dtype=np.int64)
    row = np.arange(offset[-1]) - np.repeat(offset[:-1], meta[:, 2])
    return np.asarray(row < np.repeat(limit, meta[:, 2]), dtype=np.bool_)


def check_steps(steps: list[Step], *, where: str) -> None:
    """Refuse no steps, a repeated or negative number, and fewer executed rows than logical tokens."""
    numbers = [step.iteration for step in steps]
    if not steps or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        raise inconsistent(where, "steps: at least one, each iteration number once, none negative", str(numbers[:20]))
    for step in steps:
        known = [n for n in (step.tokens, step.padded, step.reqs, *(step.rank_tokens or [])) if n is not None]
        if any(not 0 <= number <= _MAX_NUMBER for number in (step.iteration, *known)):
            raise inconsistent(where, f"counts in 0..{_MAX_NUMBER}", f"iteration {step.iteration}: {known}")
        if step.tokens is not None and step.padded is not None and step.padded < step.tokens and not step.rank_tokens:
            raise inconsistent(
                where,
                "executed rows (padded) of at least the logical tokens",
                f"iteration {step.iteration}: {step.padded} < {step.tokens}",
            )


def model_shape(config: dict[str, Any], *, where: str) -> ModelShape:
    """Dimensions out of a model configuration, by the keys of docs/formats/bundle.md.

    Raises:
        Inconsistent: one is not there, or top_k is above the experts.
    """

    def first(names: tuple[str, ...]) -> int:
        for name in names:
            value = config.get(name)
            if isinstance(value, int) and 0 < value <= _MAX_NUMBER:
                return value
        raise inconsistent(where, f"a positive integer in config under one of {', '.join(names)}", "none")

    num_experts, top_k = first(_NUM_EXPERTS), first(_TOP_K)
    if top_k > num_experts:
        raise inconsistent(where, f"a top_k of at most the {num_experts} experts", str(top_k))
    return ModelShape(
        hidden_size=first(("hidden_size",)),
        intermediate_size=first(_INTERMEDIATE),
        num_experts=num_experts,
        top_k=top_k,
    )


def present(path: Path | None) -> Path:
    """A part that was found; asking for one that is missing is an error of the program."""
    if path is None:
        raise ValueError("this part of the rank is missing")
    return path


def inconsistent(where: str, expected: str, found: str) -> errors.Inconsistent:
    """Two pieces of a recording that contradict each other."""
    return errors.Inconsistent(
        where=where, expected=expected, found=found, remedy="Correct what writes the recording (docs/formats)."
    )
