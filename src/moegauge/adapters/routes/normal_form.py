"""The normal form of routed inputs that other tools wrote, and what has to be declared about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from moegauge.adapters.routes.serving import RoutedTable
from moegauge.records.capture import Finding
from moegauge.records.identity import ModelShape
from moegauge.routing.expert_load import Int32Array

Scope = Literal["global", "local"]
IdSpace = Literal["logical", "physical"]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What is known about foreign routes besides their file. None is not declared, never a default.

    Attributes:
        shape: of the model.
        moe_layers: the model's layer number of each MoE layer, ascending. num_layers: all layers, dense ones included.
        scope: whether a rank's rows are the tokens of the whole group or its own.
        ids: whether ids are logical experts or physical slots.
        physical_to_logical: int [slots] or [moe layers, slots] by iteration; the map in force in that iteration.
        num_logical: rows that are tokens, by iteration (or request); later rows are padding.
        num_shared: trailing columns of an id row that are shared experts.
        skipped_as: the id by which a skipped slot is written, where an unsigned type cannot hold -1.
        target_only: whether only the target model was captured, no draft model.
        map_constant: whether experts stayed in place while recording, so that the map a file ends with held throughout.
    """

    shape: ModelShape
    moe_layers: tuple[int, ...] | None = None
    num_layers: int | None = None
    scope: Scope | None = None
    ids: IdSpace | None = None
    physical_to_logical: Mapping[int, NDArray[Any]] | None = None
    num_logical: Mapping[int, int] = field(default_factory=dict)
    num_shared: int = 0
    skipped_as: int | None = None
    target_only: bool | None = None
    map_constant: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Routed rows of one rank in one iteration (or of one request), as a file holds them.

    Attributes:
        rank: None where the format has no rank. number: of the iteration or request.
        ids: [rows, layers, columns] of the type found in the file.
        layers: the layer number of each index of the layer axis, None where the file only has an axis.
        weights: [rows, layers, top_k] or None.
    """

    rank: int | None
    number: int
    ids: NDArray[Any]
    layers: tuple[int, ...] | None = None
    weights: NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class ForeignRoutes:
    """Checked routes of another tool.

    Attributes:
        source_format: which one. numbered_by: what ``iteration`` of a table counts.
        tables: by rank, logical ids. A format without ranks has the one key None.
        physical: by rank int32 [rows, top_k], the slots a kernel saw; empty where ids were logical.
        scope: None where there is one rank and nothing to tell apart. ids_type: integer type found.
        num_logical: rows that are tokens by iteration, where known. findings: what reading noticed.
    """

    source_format: str
    numbered_by: Literal["iteration", "request"]
    tables: dict[int | None, RoutedTable]
    physical: dict[int | None, Int32Array]
    scope: Scope | None
    ids_type: str
    num_logical: dict[int, int]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ForeignLoads:
    """Expert loads of another tool: counts only, so no row is known.

    Attributes:
        source_format: which one. ids: what an expert index counts. scope: whose tokens a window of a rank holds.
        rank: int64 [windows], -1 where the counts are of all ranks. number: int64 [windows], as written.
        counts: int64 [windows, layers, experts or slots].
    """

    source_format: str
    ids: IdSpace
    scope: Scope
    rank: NDArray[np.int64]
    number: NDArray[np.int64]
    counts: NDArray[np.int64]
    findings: tuple[Finding, ...] = ()
