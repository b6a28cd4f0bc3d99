"""expert_load: token counts per expert, and every check a routed input has to pass.

Conservation law: sum of counts + skipped slots = tokens x top_k. Nothing is rescaled, clipped or filled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moegauge import errors

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SKIPPED = -1
_REPEATED_ROWS_SUSPICIOUS = 2


@dataclass(frozen=True)
class ExpertLoad:
    """Counts of one invocation.

    Attributes:
        counts: int64 [num_experts], assignments to each logical expert.
        num_tokens: rows counted.
        num_skipped: slots with id -1.
    """

    counts: Int64Array
    num_tokens: int
    num_skipped: int


@dataclass(frozen=True)
class LocalLoad:
    """One rank's share: int64 [num_local_experts] counts, and assignments that belong to other ranks."""

    counts: Int64Array
    num_non_local: int
    num_skipped: int


def as_topk_ids(
    values: NDArray[np.generic], *, top_k: int, num_experts: int, where: str, is_token: BoolArray | None = None
) -> Int32Array:
    """Turn a table of ids into int32 [rows, top_k] after checking what its integer type can have done to it.

    Args:
        values: [rows, columns], any integer type.
        top_k, num_experts: of the model.
        where: for messages.
        is_token: bool [rows], False where the row is padding, which may hold whatever stood there (an expert twice,
            say); None where every row counts as a token.

    Raises:
        Inconsistent: other columns than top_k, a type too narrow for the experts, an id below -1 or beyond the
            experts, or an expert twice in a token. A sentinel that wrapped in a narrow type (-1 as 255, 200 as -56)
            shows up as one of these.
    """
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.integer):
        raise _refusal(where, "integer ids [rows, top_k]", f"{values.dtype} {list(values.shape)}")
    if values.shape[1] != top_k:
        repeated = _first_repeat(values, None)
        also = f", with id {repeated[1]} twice in row {repeated[0]}" if repeated else ""
        raise _refusal(where, f"{top_k} columns (the model's top_k)", f"{values.shape[1]} columns{also}")
    wide: Int64Array = values.astype(np.int64)
    if np.iinfo(values.dtype.name).max < num_experts - 1:
        raise _refusal(
            where,
            f"an integer type that holds every id up to {num_experts - 1}",
            f"{values.dtype}, in which larger ids have wrapped (ids {wide.min(initial=0)}..{wide.max(initial=0)})",
        )
    bad = np.argwhere((wide < SKIPPED) | np.greater_equal(values, num_experts))
    if len(bad):
        row, column = bad[0]
        raise _refusal(
            where,
            f"ids in -1..{num_experts - 1}",
            f"id {values[row, column]} at row {row}, slot {column} ({len(bad)} such ids, type {values.dtype})",
        )
    repeated = _first_repeat(values, is_token)
    if repeated:
        raise _refusal(
            where,
            "distinct experts in a token",
            f"id {repeated[1]} twice in row {repeated[0]}",
            remedy="If the row is padding, record the logical token counts; else declare the right integer type, or "
            "record again.",
        )
    return np.ascontiguousarray(values, dtype=np.int32)


def ids_from_bytes(
    data: bytes, *, dtype: str | None, num_tokens: int, num_layers: int, top_k: int, where: str
) -> NDArray[np.generic]:
    """Read raw little-endian ids of a declared integer type; [num_tokens, num_layers, top_k].

    Raises:
        Inconsistent: no type declared and the length is not one byte an id, or the length does not fit the type.
    """
    num_ids = num_tokens * num_layers * top_k
    width = np.dtype(dtype or "uint8").itemsize
    if len(data) != num_ids * width:
        raise _refusal(
            where,
            f"{num_ids * width} bytes ({num_tokens} tokens x {num_layers} layers x {top_k} ids as {dtype or 'uint8'})",
            f"{len(data)} bytes",
            remedy="Declare the integer type of the ids (dtype), for example uint16." if dtype is None else None,
        )
    ids = np.frombuffer(data, dtype=np.dtype(dtype or "uint8").newbyteorder("<"))
    return ids.reshape(num_tokens, num_layers, top_k)


def expert_load(topk_ids: Int32Array, *, num_experts: int) -> ExpertLoad:
    """Count assignments of checked ids.

    Args:
        topk_ids: int32 [rows, top_k] from :func:`as_topk_ids`; logical rows only, where padding must not count.
        num_experts: of the model.
    """
    used = topk_ids[topk_ids != SKIPPED]
    counts = np.bincount(used.astype(np.int64), minlength=num_experts).astype(np.int64)
    return ExpertLoad(counts, len(topk_ids), int(topk_ids.size - used.size))


def local_load(topk_ids: Int32Array, expert_map: Int32Array) -> LocalLoad:
    """Count one rank's share through its expert map; a skipped slot never indexes the map.

    Args:
        topk_ids: int32 [rows, top_k], logical ids, -1 skipped.
        expert_map: int32 [num_experts], local index or -1.
    """
    used = topk_ids[topk_ids != SKIPPED]
    local = expert_map[used]
    mine = local[local >= 0]
    num_local = int((expert_map >= 0).sum())
    counts = np.bincount(mine.astype(np.int64), minlength=num_local).astype(np.int64)
    return LocalLoad(counts, int((local < 0).sum()), int(topk_ids.size - used.size))


def check_expert_map(expert_map: Int32Array, *, num_experts: int, where: str) -> None:
    """Refuse a map of another length, or one whose local indices are not 0..n-1 once each."""
    if expert_map.shape != (num_experts,):
        raise _refusal(where, f"expert_map [{num_experts}]", f"{list(expert_map.shape)}")
    local = np.sort(expert_map[expert_map >= 0])
    if (expert_map < -1).any() or not np.array_equal(local, np.arange(len(local))):
        raise _refusal(where, "local indices 0..n-1 once each and -1 elsewhere", str(expert_map.tolist())[:120])


def check_conservation(counts: Int64Array, *, num_skipped: int, num_tokens: int, top_k: int, where: str) -> None:
    """Hold the conservation law: sum of counts + skipped slots = tokens x top_k."""
    total = int(counts.sum()) + num_skipped
    if total != num_tokens * top_k:
        raise _refusal(
            where,
            f"counts that add up to tokens x top_k = {num_tokens} x {top_k} = {num_tokens * top_k}",
            f"sum {total} does not equal tokens*K={num_tokens * top_k}",
            remedy="Counts summed over ranks that each saw all tokens are too large; declare the scope.",
        )


def merged_load(
    rank_counts: Sequence[Int64Array], *, scope: str | None, num_tokens: int, top_k: int, where: str
) -> Int64Array:
    """Logical counts of one invocation from the dumps of several ranks.

    Args:
        rank_counts: for each rank int64 [num_experts].
        scope: ``global`` (every rank saw all tokens), ``local`` (its own only), or None where not declared; then
            the one reading that satisfies the conservation law is taken, if there is exactly one.
        num_tokens, top_k: logical tokens of the invocation and the model's top_k.

    Raises:
        Inconsistent: the declared reading breaks the conservation law, or ranks of a global scope differ.
        Ambiguous: no scope declared and the law does not decide.
    """
    total: Int64Array = np.stack(rank_counts).sum(axis=0, dtype=np.int64)
    if scope is None:
        fits = {
            "global": int(rank_counts[0].sum()) == num_tokens * top_k,
            "local": int(total.sum()) == num_tokens * top_k,
        }
        if sum(fits.values()) != 1 and len(rank_counts) > 1:
            raise errors.Ambiguous(
                where=where,
                expected="a declared scope of the rank dumps (global or local)",
                found=f"counts {int(rank_counts[0].sum())} on rank 0 and {int(total.sum())} in all, for tokens*K="
                f"{num_tokens * top_k}",
                remedy='Declare "routed_scope" in meta.json.',
            )
        scope = "global" if fits["global"] else "local"
    merged = total
    if scope == "global":
        if any(not np.array_equal(rank_counts[0], counts) for counts in rank_counts):
            raise _refusal(where, "equal counts on every rank of a global scope", "ranks that differ")
        merged = rank_counts[0]
    check_conservation(merged, num_skipped=0, num_tokens=num_tokens, top_k=top_k, where=where)
    return merged


def suspicious_padding(topk_ids_by_layer: Sequence[Int32Array]) -> int:
    """Length of the longest run of rows that are identical to their neighbour in every layer.

    Padding that kept a stale routing row shows up so. Used where the logical token count is absent: a run means
    that the rows must not be called exact; it never says which rows are padding.

    Args:
        topk_ids_by_layer: for each layer int32 [rows, top_k], same rows.

    Returns:
        Rows in the longest run, 0 where no two neighbours are alike.
    """
    rows = np.concatenate(topk_ids_by_layer, axis=1)
    if len(rows) < _REPEATED_ROWS_SUSPICIOUS:
        return 0
    longest = run = 0
    for same in (rows[1:] == rows[:-1]).all(axis=1):
        run = run + 1 if same else 0
        longest = max(longest, run)
    return longest + 1 if longest else 0


def _first_repeat(values: NDArray[np.generic], is_token: BoolArray | None) -> tuple[int, int] | None:
    ordered = np.sort(values.astype(np.int64), axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != SKIPPED)
    hits = np.argwhere(twice if is_token is None else twice & is_token[:, None])
    if not len(hits):
        return None
    row, column = hits[0]
    return int(row), int(ordered[row, column])


def _refusal(where: str, expected: str, found: str, remedy: str | None = None) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=where,
        expected=expected,
        found=found,
        remedy=remedy or "Declare the right top_k, experts and integer type, or record again.",
    )
