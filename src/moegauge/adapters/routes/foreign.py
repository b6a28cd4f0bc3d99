"""Routed inputs of other tools in one normal form, and the guards that every format passes.

A reader (sglang_recorder.py, routed_experts.py) says what its file holds as :class:`Piece` rows. What
the file does not say and what changes the meaning of an id comes from :class:`Declared`. What neither says is refused
with the name of what to declare. Nothing is guessed, padded, rescaled or filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.routes.normal_form import Declared, ForeignRoutes, IdSpace, Piece, Scope
from moegauge.adapters.routes.serving import RoutedTable, inconsistent, routed_table
from moegauge.records.capture import Finding
from moegauge.routing.expert_load import SKIPPED, Int32Array


def foreign_routes(
    pieces: Sequence[Piece],
    declared: Declared,
    *,
    source_format: str,
    numbered_by: Literal["iteration", "request"],
    where: str,
    ids: IdSpace | None = None,
) -> ForeignRoutes:
    """Pass pieces of one format through every guard.

    Args:
        ids: what the format itself says of its ids; None leaves it to ``declared``. where: for messages.

    Raises:
        Ambiguous: something that matters is not declared. Inconsistent, Incomplete
    """
    if not pieces:
        raise errors.Incomplete(where=where, expected="routed rows", found="none", remedy="Record again.")
    space = ids or declared.ids or _undeclared(where, "whether ids are logical experts or physical slots (ids)")
    ranks = sorted({piece.rank for piece in pieces if piece.rank is not None})
    if len(ranks) > 1 and declared.scope is None:
        _undeclared(where, f"whether each of the {len(ranks)} ranks holds all tokens or its own (scope)")
    _every_rank(pieces, ranks, declared.scope, where)
    tables: dict[int | None, RoutedTable] = {}
    physical: dict[int | None, Int32Array] = {}
    keys: list[int | None] = [*ranks] or [None]
    for rank in keys:
        mine = sorted((piece for piece in pieces if piece.rank == rank), key=lambda piece: piece.number)
        place = where if rank is None else f"{where}: rank {rank}"
        tables[rank], slots = _table(mine, declared, space, place)
        if slots is not None:
            physical[rank] = slots
    if declared.scope == "global":
        _equal_ranks(tables, where)
    return ForeignRoutes(
        source_format=source_format,
        numbered_by=numbered_by,
        tables=tables,
        physical=physical,
        scope=declared.scope,
        ids_type=",".join(sorted({str(piece.ids.dtype) for piece in pieces})),
        num_logical=_rows_of_tokens(declared),
        findings=_findings(tables, declared),
    )


def moe_layers_of(piece: Piece, declared: Declared, where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which indices of the layer axis are MoE layers, and the layer number of each.

    Raises:
        Ambiguous: the file has a bare axis and moe_layers is not declared.
        Inconsistent: the axis is neither all layers nor the MoE layers.
    """
    length = piece.ids.shape[1]
    if piece.layers is not None:
        wanted = piece.layers if declared.moe_layers is None else declared.moe_layers
        missing = sorted(set(wanted) - set(piece.layers))
        if missing:
            raise errors.Incomplete(
                where=where,
                expected=f"rows of the MoE layers {list(wanted)[:8]}",
                found=f"iteration {piece.number} has no layer {', '.join(map(str, missing[:8]))}",
                remedy="Give every file of the recording.",
            )
        return tuple(piece.layers.index(layer) for layer in wanted), tuple(wanted)
    if declared.moe_layers is None:
        _undeclared(where, f"which layers of the model the {length} of the file are (moe_layers)")
    layers = declared.moe_layers or ()
    if length == len(layers):
        return tuple(range(length)), layers
    if length == declared.num_layers:
        return layers, layers
    raise inconsistent(
        where,
        f"a layer axis of all {declared.num_layers} layers or of the {len(layers)} MoE layers",
        f"{length} layers, which matches neither",
    )


def logical_ids(slots: Int32Array, mapping: NDArray[Any], num_experts: int, where: str) -> Int32Array:
    """Logical experts of physical slots; [rows, top_k]. A skipped slot stays skipped and never indexes the map.

    Raises:
        Inconsistent: a slot that the map has not, or a map to something that is no expert.
    """
    if mapping.ndim != 1 or not np.issubdtype(mapping.dtype, np.integer):
        raise inconsistent(where, "a physical-to-logical map of integers [slots]", f"{mapping.dtype} {mapping.shape}")
    wide = mapping.astype(np.int64)
    if ((wide < 0) | (wide >= num_experts)).any():
        raise inconsistent(where, f"a map to experts 0..{num_experts - 1}", f"{wide.min()}..{wide.max()}")
    if ((slots < SKIPPED) | (slots >= len(wide))).any():
        raise inconsistent(where, f"slots in -1..{len(wide) - 1}", f"slot {int(slots.max())}")
    return np.where(slots == SKIPPED, SKIPPED, wide[np.maximum(slots, 0)]).astype(np.int32)


def _table(
    pieces: Sequence[Piece], declared: Declared, space: IdSpace, where: str
) -> tuple[RoutedTable, Int32Array | None]:
    meta, ids, slots, weights = [], [], [], []
    for piece in pieces:
        if piece.ids.ndim != 3 or not np.issubdtype(piece.ids.dtype, np.integer):
            raise inconsistent(where, "integer ids [rows, layers, top_k]", f"{piece.ids.dtype} {piece.ids.shape}")
        indices, layers = moe_layers_of(piece, declared, where)
        for position, (index, layer) in enumerate(zip(indices, layers, strict=True)):
            rows = _columns(piece.ids[:, index], declared, where)
            if space == "physical":
                wide = rows.astype(np.int64)
                mapping = _map_of(piece, index, position, declared, where)
                slots.append(np.clip(wide, -2, 1 << 30).astype(np.int32))
                rows = logical_ids(slots[-1], mapping, declared.shape.num_experts, where)
            meta.append((piece.number, layer, len(rows)))
            ids.append(rows)
            if piece.weights is not None:
                weights.append(piece.weights[:, index])
    if weights and len(weights) != len(ids):
        raise inconsistent(where, "weights of every iteration or of none", f"{len(weights)} of {len(ids)}")
    if weights and not np.isfinite(np.concatenate(weights)).all():
        raise inconsistent(where, "finite topk_weights", "NaN or infinity")
    if len({rows.shape[1] for rows in ids}) > 1 or len({str(rows.dtype) for rows in ids}) > 1:
        raise inconsistent(where, "one id type and one number of columns", "several")
    table = routed_table(
        np.array(meta, dtype=np.int64).reshape(-1, 3),
        np.concatenate(ids),
        np.concatenate(weights) if weights else None,
        None,
        shape=declared.shape,
        num_logical=_rows_of_tokens(declared),
        where=where,
    )
    return table, np.concatenate(slots) if slots else None


def _columns(rows: NDArray[Any], declared: Declared, where: str) -> NDArray[Any]:
    """Id columns without declared shared experts, with the declared sentinel as -1; else as found."""
    if declared.num_shared and rows.shape[1] == declared.shape.top_k + declared.num_shared:
        rows = rows[:, : declared.shape.top_k]
    if declared.skipped_as is None or np.iinfo(rows.dtype.name).max < declared.shape.num_experts - 1:
        return rows
    if 0 <= declared.skipped_as < declared.shape.num_experts:
        raise inconsistent(where, "a skipped_as that is no expert", f"{declared.skipped_as}, which is one")
    wide = rows.astype(np.int64)
    return np.where(wide == declared.skipped_as, SKIPPED, wide)


def _map_of(piece: Piece, index: int, position: int, declared: Declared, where: str) -> NDArray[Any]:
    """The map of one layer in one iteration; rows of a map are the file's layers or the MoE layers."""
    mapping = (declared.physical_to_logical or {}).get(piece.number)
    if mapping is None:
        raise errors.Ambiguous(
            where=where,
            expected=f"the physical-to-logical map of iteration {piece.number}",
            found="none; a rebalance changes the map, so that of another iteration does not do",
            remedy="Declare physical_to_logical of every iteration, or map_constant where experts stayed in place.",
        )
    if mapping.ndim == 1:
        return mapping
    num_moe = len(declared.moe_layers or piece.layers or ())
    if mapping.ndim != 2 or len(mapping) not in (piece.ids.shape[1], num_moe):
        raise inconsistent(where, f"a map [slots] or [{piece.ids.shape[1]} layers, slots]", str(list(mapping.shape)))
    return np.asarray(mapping[index if len(mapping) == piece.ids.shape[1] else position])


def stacked(by_layer: Mapping[int, NDArray[Any]], where: str) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Ids [rows, layers, columns] of files that hold one layer each, and the layer numbers.

    Raises:
        Inconsistent: layers of one iteration with different rows, as where a draft model wrote over one of them.
    """
    layers = tuple(sorted(by_layer))
    first = by_layer[layers[0]]
    for layer in layers:
        if by_layer[layer].shape != first.shape or by_layer[layer].dtype != first.dtype:
            raise inconsistent(
                where,
                "the same tokens in every layer of an iteration",
                f"layer {layers[0]} has {first.dtype} {list(first.shape)}, layer {layer} has "
                f"{by_layer[layer].dtype} {list(by_layer[layer].shape)}",
            )
    return np.stack([by_layer[layer] for layer in layers], axis=1), layers


def _every_rank(pieces: Sequence[Piece], ranks: list[int], scope: Scope | None, where: str) -> None:
    """Each (iteration, rank) once; an iteration has every rank; all its layers and global ranks the same rows."""
    seen = [(piece.number, piece.rank) for piece in pieces]
    if len(set(seen)) != len(seen):
        raise inconsistent(where, "each iteration of a rank once", "a repetition")
    if ranks and (any(piece.rank is None for piece in pieces) or ranks[-1] != len(ranks) - 1):
        missing = sorted(set(range(ranks[-1] + 1)) - set(ranks))
        raise errors.Incomplete(
            where=where,
            expected=f"ranks 0..{ranks[-1]}",
            found=f"no rank {', '.join(map(str, missing[:8]))}" if missing else "rows without a rank",
            remedy="Give every rank's file.",
        )
    holes = sorted({(n, r) for n, _ in seen for r in ranks} - set(seen))
    if ranks and holes:
        raise errors.Incomplete(
            where=where,
            expected="every rank in every iteration (a rank without tokens has a piece of 0 rows)",
            found=f"iteration {holes[0][0]} has no rank {holes[0][1]} ({len(holes)} such)",
            remedy="Give every rank's file, or declare the empty rank.",
        )


def _equal_ranks(tables: Mapping[int | None, RoutedTable], where: str) -> None:
    first, *others = tables.values()
    for rank, table in zip(list(tables)[1:], others, strict=True):
        same = np.array_equal(first.offset, table.offset) and np.array_equal(first.topk_ids, table.topk_ids)
        if not same:
            raise inconsistent(where, "equal rows on every rank of a global scope", f"rank {rank} differs from rank 0")


def _findings(tables: Mapping[int | None, RoutedTable], declared: Declared) -> tuple[Finding, ...]:
    """What may not be called exact: rows without a token count, and a capture whose model is not stated."""
    findings = []
    open_numbers = {int(n) for table in tables.values() for n in table.iteration} - set(_rows_of_tokens(declared))
    if open_numbers:
        sentence = "Logical rows were not declared: rows may be padding, so they are not exact."
        examples = tuple(str(n) for n in sorted(open_numbers)[:3])
        findings.append(
            Finding(code="LOGICAL_ROWS_UNKNOWN", sentence=sentence, num=len(open_numbers), examples=examples)
        )
    tokens = _rows_of_tokens(declared)
    short = [
        f"iteration {number} layer {layer}: {rows} of {tokens[number]} rows"
        for table in tables.values()
        for number, layer, rows in zip(
            table.iteration.tolist(), table.layer.tolist(), np.diff(table.offset).tolist(), strict=True
        )
        if rows < tokens.get(number, 0)
    ]
    if short:
        sentence = "Rows of tokens that ran were not delivered. Nothing was filled in or rescaled."
        findings.append(Finding(code="ROWS_MISSING", sentence=sentence, num=len(short), examples=tuple(short[:3])))
    if declared.target_only is not True:
        sentence = "It was not declared that only the target model was captured: a draft model may have written rows."
        findings.append(Finding(code="CAPTURED_MODEL_UNKNOWN", sentence=sentence, num=1))
    return tuple(findings)


def _rows_of_tokens(declared: Declared) -> dict[int, int]:
    """Tokens of one table by iteration; with a local scope they are those of all ranks and say nothing of one."""
    return {} if declared.scope == "local" else dict(declared.num_logical)


def _undeclared(where: str, what: str) -> Any:
    raise errors.Ambiguous(where=where, expected=what, found="not declared", remedy="Declare it.")
