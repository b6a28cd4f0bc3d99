"""What one rank's routed rows cover: the group's tokens or its own. Declared or proved, and held against the counts."""

from __future__ import annotations

import numpy as np

from moegauge import errors
from moegauge.adapters.routes.serving import Parallel, ServingSource
from moegauge.jobs.capture_rows import RankSource, logical_tokens
from moegauge.timing.reduction import total_by

GLOBAL = "global"
"""Every rank holds the same rows, those of the whole group."""
LOCAL = "local"
"""Each rank holds the rows of its own tokens."""


def rank_logical(bundle: ServingSource, rank: int) -> dict[int, int | None]:
    """Logical tokens of each iteration on one rank; None where they were not recorded."""
    own_tokens = bundle.meta.routed_scope == LOCAL and len(bundle.ranks) > 1
    return {step.iteration: logical_tokens(step, rank, own_tokens=own_tokens) for step in bundle.meta.steps}


def routed_scope(bundle: ServingSource, ranks: list[RankSource]) -> str:
    """The scope of the ranks' routed rows: declared, or proved by every rank holding the same rows; never assumed.

    Raises:
        Ambiguous: rows differ and no scope is declared.
        Inconsistent: an unknown scope; global, and logical rows differ; or local, and the tokens of the ranks do not
            add up to the iteration's (each rank saw all tokens, say).
    """
    declared = bundle.meta.routed_scope
    if declared not in {GLOBAL, LOCAL, None}:
        raise errors.Inconsistent(
            where=_meta(bundle),
            expected='routed_scope "global" or "local"',
            found=repr(declared),
            remedy="Say whether each rank's rows cover the group's tokens or only its own.",
        )
    if len(bundle.ranks) == 1:
        return declared or GLOBAL
    if declared == LOCAL:
        _check_local(bundle, ranks)
        return LOCAL
    different = [rank.number for rank in ranks[1:] if not _same_tokens(ranks[0], rank, proof=declared is None)]
    if different and declared is None:
        raise errors.Ambiguous(
            where=_meta(bundle),
            expected="a declared scope of the ranks' routed rows",
            found="rows that differ between ranks and no routed_scope",
            remedy='Declare "routed_scope": "local" or "global" in meta.json.',
        )
    if different:
        raise errors.Inconsistent(
            where=_meta(bundle),
            expected="the same logical rows on every rank (routed_scope global)",
            found=f"rows of rank {different[0]} that differ from those of rank {ranks[0].number}",
            remedy='Declare "routed_scope": "local" with rank_tokens, or record again.',
        )
    return GLOBAL


def _meta(bundle: ServingSource) -> str:
    return bundle.meta_path


def _same_tokens(one: RankSource, other: RankSource, *, proof: bool) -> bool:
    """Whether two ranks hold the same logical rows of every invocation that both recorded.

    As a proof it also takes the same invocations with the same numbers of rows.
    """
    keys = [np.stack([r.routed.iteration, r.routed.layer, np.diff(r.routed.offset)]) for r in (one, other)]
    mine = theirs = np.arange(keys[0].shape[1])
    if not np.array_equal(keys[0], keys[1]):
        if proof:
            return False
        _, index = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)
        _, mine, theirs = np.intersect1d(index[: len(mine)], index[len(mine) :], return_indices=True)
    logical = [one.logical[iteration] for iteration in one.routed.iteration[mine].tolist()]
    recorded = keys[0][2][mine]
    rows = np.array([n if m is None else min(n, m) for n, m in zip(recorded.tolist(), logical, strict=True)], np.int64)
    within = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    tables = [
        source.routed.topk_ids[np.repeat(source.routed.offset[found], rows) + within]
        for source, found in ((one, mine), (other, theirs))
    ]
    return bool(np.array_equal(tables[0], tables[1]))


def _check_local(bundle: ServingSource, ranks: list[RankSource]) -> None:
    """Hold the conservation law over ranks: together they ran the tokens of the iteration.

    Where rank_tokens is not declared every recorded row counts as a token.
    """
    tokens = {step.iteration: step.tokens for step in bundle.meta.steps if step.tokens is not None}
    declared = {step.iteration: sum(step.rank_tokens) for step in bundle.meta.steps if step.rank_tokens is not None}
    for iteration in declared.keys() & tokens.keys():
        _check_sum(bundle, iteration, declared[iteration], tokens[iteration])
    open_ones = np.array(sorted(tokens.keys() - declared.keys()), dtype=np.int64)
    if not len(open_ones) or len(ranks) < len(bundle.ranks):
        return
    rows = np.concatenate(
        [np.stack([rank.routed.iteration, rank.routed.layer, np.diff(rank.routed.offset)]) for rank in ranks], axis=1
    )
    rows = rows[:, np.isin(rows[0], open_ones)]
    places, index = np.unique(rows[:2], axis=1, return_inverse=True)
    totals = total_by(index, rows[2], num_groups=places.shape[1])
    for iteration, total in zip(places[0].tolist(), totals.tolist(), strict=True):
        _check_sum(bundle, iteration, total, tokens[iteration])


def _check_sum(bundle: ServingSource, iteration: int, found: int, tokens: int) -> None:
    if found not in _allowed(bundle, tokens):
        top_k = bundle.shape.top_k
        raise errors.Inconsistent(
            where=_meta(bundle),
            expected=f"ranks whose own tokens add up to the {tokens} of iteration {iteration} (routed_scope local)",
            found=f"sum {found * top_k} does not equal tokens*K={tokens * top_k}",
            remedy="If every rank saw all tokens, routed_scope is global; if rows are padded, declare rank_tokens.",
        )


def _allowed(bundle: ServingSource, tokens: int) -> set[int]:
    """Sums over ranks that fit the tokens: each counted once for every rank of a group that shares it."""
    world_size, parallel = len(bundle.ranks), bundle.meta.parallel
    dp = parallel.dp if isinstance(parallel, Parallel) else None
    sharing = (
        [world_size // dp] if dp and world_size % dp == 0 else [n for n in range(1, world_size) if world_size % n == 0]
    )
    return {tokens * n for n in sharing}
