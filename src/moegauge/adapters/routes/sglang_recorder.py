"""Files of SGLang's expert distribution recorder, in its modes stat, per_pass and per_token.

Source: sglang 0.5.23, srt/eplb/expert_distribution.py. Which mode a file is of shows in its keys, not in its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.routes.foreign import foreign_routes
from moegauge.adapters.routes.normal_form import Declared, ForeignLoads, ForeignRoutes, Piece
from moegauge.adapters.routes.serving import inconsistent
from moegauge.adapters.torch_archive import read_torch_archive
from moegauge.records.capture import Finding
from moegauge.routing.expert_load import check_conservation

Mode = Literal["stat", "per_pass", "per_token"]


def recorder_mode(value: Any, *, where: str) -> Mode:
    """The mode that a file is of, by its keys.

    Raises:
        MalformedFile: it is of none.
    """
    if isinstance(value, dict) and isinstance(value.get("logical_count"), np.ndarray):
        return "stat"
    if isinstance(value, dict) and isinstance(records := value.get("records"), list) and records:
        if all(isinstance(one, dict) and isinstance(one.get("topk_ids_of_layer"), np.ndarray) for one in records):
            return "per_token"
        if all(isinstance(one, dict) and isinstance(one.get("global_physical_count"), np.ndarray) for one in records):
            return "per_pass"
    keys = ", ".join(sorted(str(key)[:40] for key in value)[:8]) if isinstance(value, dict) else type(value).__name__
    raise errors.MalformedFile(
        where=where,
        expected="logical_count (stat), or records with global_physical_count (per_pass) or topk_ids_of_layer "
        "(per_token)",
        found=keys or "no key",
        remedy="Give a file of SGLang's expert distribution recorder that holds at least one pass.",
    )


def read_sglang_recorder(paths: Sequence[Path], declared: Declared) -> ForeignRoutes | ForeignLoads:
    """Routes (per_token) or loads (stat, per_pass) of the files of one recording, one a rank.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, Ambiguous, Inconsistent, Incomplete
    """
    values = [read_torch_archive(path) for path in paths]
    modes = {recorder_mode(value, where=str(path)) for path, value in zip(paths, values, strict=True)}
    where = str(paths[0]) if paths else "recorder files"
    if len(modes) != 1:
        raise inconsistent(where, "files of one mode", ", ".join(sorted(modes)) or "no file")
    if modes == {"stat"}:
        if len(values) != 1:
            raise inconsistent(where, "one file in mode stat (rank 0 writes the sum of all ranks)", f"{len(values)}")
        return _stat(values[0], declared, where)
    records = [(str(path), one) for path, value in zip(paths, values, strict=True) for one in value["records"]]
    for place, record in records:
        if record.get("gatherer_key") != "primary" or not _is_number(record.get("forward_pass_id"), record.get("rank")):
            raise inconsistent(place, "records with a rank, a forward_pass_id and the gatherer_key primary", "another")
    if modes == {"per_pass"}:
        return _per_pass(records, declared, where)
    maps = {str(path): value.get("last_physical_to_logical_map") for path, value in zip(paths, values, strict=True)}
    return _per_token(records, maps, declared, where)


def _per_token(
    records: list[tuple[str, dict[str, Any]]], maps: dict[str, Any], declared: Declared, where: str
) -> ForeignRoutes:
    pieces = []
    for place, record in records:
        ids, tokens = record["topk_ids_of_layer"], record.get("input_ids")
        if not isinstance(tokens, list) or ids.ndim != 3 or ids.shape[1] != len(tokens):
            raise inconsistent(place, "topk_ids_of_layer [layers, tokens of input_ids, slots]", str(list(ids.shape)))
        if (ids[:, :, declared.shape.top_k :] != -1).any():
            raise inconsistent(place, f"-1 in the slots after the model's top_k {declared.shape.top_k}", "ids")
        ids = ids[:, :, : declared.shape.top_k].transpose(1, 0, 2)
        pieces.append(Piece(rank=record["rank"], number=record["forward_pass_id"], ids=ids))
    if declared.map_constant and declared.physical_to_logical is None:
        last = list(maps.values())
        if any(not isinstance(one, np.ndarray) or not np.array_equal(one, last[0]) for one in last):
            raise inconsistent(where, "one last_physical_to_logical_map, the same of every rank", "none, or another")
        declared = replace(declared, physical_to_logical={piece.number: last[0] for piece in pieces})
    return foreign_routes(
        pieces, declared, source_format="sglang_per_token", numbered_by="iteration", where=where, ids="physical"
    )


def _per_pass(records: list[tuple[str, dict[str, Any]]], declared: Declared, where: str) -> ForeignLoads:
    ranks = sorted({record["rank"] for _, record in records})
    if declared.scope is None:
        raise _undeclared(where, "whether a rank counted all tokens or its own (scope)")
    if ranks != list(range(len(ranks))):
        raise errors.Incomplete(
            where=where, expected=f"ranks 0..{ranks[-1]}", found=f"ranks {ranks[:8]}", remedy="Give every rank's file."
        )
    keys = [(record["forward_pass_id"], record["rank"]) for _, record in records]
    passes = {number for number, _ in keys}
    if len(set(keys)) != len(keys) or len(keys) != len(passes) * len(ranks):
        raise inconsistent(where, "every rank once in every pass", f"{len(keys)} records of {len(passes)} passes")
    return ForeignLoads(
        source_format="sglang_per_pass",
        ids="physical",
        scope=declared.scope,
        rank=np.array([rank for _, rank in keys], dtype=np.int64),
        number=np.array([number for number, _ in keys], dtype=np.int64),
        counts=_moe_counts(_stack([record["global_physical_count"] for _, record in records], where), declared, where),
    )


def _stat(value: dict[str, Any], declared: Declared, where: str) -> ForeignLoads:
    if declared.scope != "local":
        expected = "ranks that each counted their own tokens (scope local): the file holds the sum over ranks"
        if declared.scope is None:
            raise _undeclared(where, expected)
        raise inconsistent(where, expected, "scope global: every token is counted once a rank, and no count is divided")
    if not declared.map_constant:
        raise _undeclared(where, "that experts stayed in place (map_constant): slots were renamed when it was written")
    counts = _moe_counts(value["logical_count"], declared, where)
    if counts.shape[2] != declared.shape.num_experts:
        raise inconsistent(where, f"counts of {declared.shape.num_experts} experts", f"{counts.shape[2]}")
    for step, tokens in declared.num_logical.items():
        for layer in counts[step] if 0 <= step < len(counts) else ():
            check_conservation(
                layer, num_skipped=0, num_tokens=tokens, top_k=declared.shape.top_k, where=f"{where}: step {step}"
            )
    sentence = "Steps are slots of a ring buffer, so their order and the iterations they are of are not known."
    return ForeignLoads(
        source_format="sglang_stat",
        ids="logical",
        scope="local",
        rank=np.full(len(counts), -1, dtype=np.int64),
        number=np.arange(len(counts), dtype=np.int64),
        counts=counts,
        findings=(Finding(code="ITERATIONS_UNKNOWN", sentence=sentence, num=len(counts)),),
    )


def _moe_counts(counts: NDArray[Any], declared: Declared, where: str) -> NDArray[np.int64]:
    """Counts [windows, MoE layers, experts] out of those of all layers; every layer counts the same assignments."""
    if declared.moe_layers is None:
        raise _undeclared(where, "which layers of the model have experts (moe_layers)")
    if counts.ndim != 3 or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise inconsistent(where, "counts [steps, layers, experts], none negative", f"{counts.dtype} {counts.shape}")
    if counts.shape[1] not in (declared.num_layers, len(declared.moe_layers)):
        expected = f"all {declared.num_layers} layers or the {len(declared.moe_layers)} MoE layers"
        raise inconsistent(where, expected, f"{counts.shape[1]} layers, which matches neither")
    if counts.shape[1] != len(declared.moe_layers):
        counts = counts[:, list(declared.moe_layers)]
    sums = counts.sum(axis=2, dtype=np.int64)
    if (sums != sums[:, :1]).any():
        step = int(np.argwhere((sums != sums[:, :1]).any(axis=1))[0, 0])
        raise inconsistent(where, "as many assignments in every layer", f"step {step}: {sums[step].tolist()[:8]}")
    return counts.astype(np.int64)


def _stack(tables: list[NDArray[Any]], where: str) -> NDArray[Any]:
    if len({(table.shape, str(table.dtype)) for table in tables}) != 1:
        raise inconsistent(where, "counts of one shape and type in every record", "several")
    return np.stack(tables)


def _is_number(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _undeclared(where: str, what: str) -> errors.Ambiguous:
    return errors.Ambiguous(where=where, expected=what, found="not declared", remedy="Declare it.")
