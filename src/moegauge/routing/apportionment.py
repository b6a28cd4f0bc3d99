"""A popularity becomes integer counts, or inclusion probabilities; exact integer arithmetic throughout.

No expert can appear twice in a row, so no count can exceed the rows and no inclusion probability can exceed 1. The
rule for a popularity that asks for more (part of every sampler's version): the expert gets all rows, and what it
could not take goes to the others in proportion to their popularity, again capped (water-filling).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from moegauge import errors

Int64Array = NDArray[np.int64]

RULE = "largest remainder, cap = rows, ties to the lowest expert"
_WHERE = "popularity"
_REMEDY = "Take the popularity, rows and top_k of the same model and capture."


def check_target(popularity: Int64Array, rows: int, top_k: int) -> None:
    """Refuse a request for which no table of distinct experts exists, whatever the sampler.

    Args:
        popularity: int64 [num_experts], counts >= 0.
        rows: rows to draw; with 0 the counts may all be 0.
        top_k: distinct experts in a row.

    Raises:
        Inconsistent: negative rows or counts, another type, top_k outside 1..num_experts, no mass, or fewer experts
            with mass than top_k.
    """
    if rows < 0:
        raise refusal("rows >= 0", f"{rows} rows")
    if popularity.ndim != 1 or popularity.dtype != np.int64:
        raise refusal("int64 counts [num_experts]", f"{popularity.dtype} {list(popularity.shape)}")
    if not 1 <= top_k <= len(popularity):
        raise refusal(f"top_k in 1..{len(popularity)} (the experts)", f"top_k {top_k}")
    if (popularity < 0).any():
        expert = int(np.argmax(popularity < 0))
        raise refusal("counts >= 0", f"{int(popularity[expert])} for expert {expert}")
    if rows == 0:
        return
    with_mass = int((popularity > 0).sum())
    if with_mass == 0:
        raise refusal("counts with a positive sum", "a sum of 0")
    if with_mass < top_k:
        raise refusal(f"at least top_k = {top_k} experts with a count", f"{with_mass} experts with a count")


def counts_for(popularity: Int64Array, rows: int, top_k: int, *, strict: bool = False) -> Int64Array:
    """Counts of ``rows`` rows in the popularity's proportions: largest remainder, cap = rows.

    Counts that already add up to rows x top_k are these rows' own and are kept exactly.

    Args:
        popularity: int64 [num_experts].
        rows: rows to draw.
        top_k: distinct experts in a row.
        strict: refuse a popularity that needs the cap instead of capping it.

    Returns:
        int64 [num_experts], sum rows x top_k, each at most rows.

    Raises:
        Inconsistent: see :func:`check_target`; or the counts add up to rows x top_k and one exceeds the rows.
    """
    check_target(popularity, rows, top_k)
    weights: list[int] = popularity.tolist()
    if rows == 0:
        return np.zeros(len(weights), dtype=np.int64)
    if sum(weights) == rows * top_k:
        if max(weights) > rows:
            expert = weights.index(max(weights))
            raise refusal(f"counts of at most {rows} (the rows)", f"count {weights[expert]} for expert {expert}")
        return popularity.copy()
    full, open_ = _water_filling(weights, top_k, strict=strict)
    counts = [0] * len(weights)
    for expert in full:
        counts[expert] = rows
    left, mass = rows * (top_k - len(full)), sum(weights[expert] for expert in open_)
    remainders = []
    for expert in open_ if mass else ():
        counts[expert], remainder = divmod(weights[expert] * left, mass)
        remainders.append((-remainder, expert))
    for _, expert in sorted(remainders)[: rows * top_k - sum(counts)]:
        counts[expert] += 1
    return np.array(counts, dtype=np.int64)


def inclusion(popularity: Int64Array, top_k: int, *, strict: bool = False) -> tuple[Int64Array, int]:
    """Probability of each expert to be among a row's top_k, capped at 1, as exact fractions of one denominator.

    Args:
        popularity: int64 [num_experts].
        top_k: distinct experts in a row.
        strict: refuse an inclusion above 1 instead of capping it.

    Returns:
        (numerators int64 [num_experts] that add up to top_k x denominator, denominator); numerator = denominator
        is an expert in every row.

    Raises:
        Inconsistent: see :func:`check_target`; strict and an inclusion above 1; or counts too large for int64.
    """
    check_target(popularity, 1, top_k)
    weights: list[int] = popularity.tolist()
    if sum(weights) * (top_k + 1) >= 1 << 62:
        raise refusal("counts whose sum x top_k fits 62 bits", f"a sum of {sum(weights)}")
    full, open_ = _water_filling(weights, top_k, strict=strict)
    denominator = sum(weights[expert] for expert in open_) or 1
    numerators = np.zeros(len(weights), dtype=np.int64)
    numerators[full] = denominator
    numerators[open_] = popularity[open_] * (top_k - len(full))
    return numerators, denominator


def refusal(expected: str, found: str, remedy: str = _REMEDY) -> errors.Inconsistent:
    """The error of an impossible target."""
    return errors.Inconsistent(where=_WHERE, expected=expected, found=found, remedy=remedy)


def _water_filling(weights: list[int], top_k: int, *, strict: bool) -> tuple[list[int], list[int]]:
    """Split the experts with mass into those in every row and the others."""
    full: list[int] = []
    open_ = [expert for expert, weight in enumerate(weights) if weight]
    mass = sum(weights)
    if strict and max(weights) * top_k > mass:
        expert = weights.index(max(weights))
        raise refusal(
            "an inclusion of at most 1 for each expert",
            f"{weights[expert] * top_k / mass:.6g} for expert {expert}",
            "Ask without strict to cap it at 1 and spread the rest over the other experts.",
        )
    while True:
        slots = top_k - len(full)
        over = [expert for expert in open_ if slots and weights[expert] * slots >= mass]
        if not over:
            return full, open_
        full += over
        mass -= sum(weights[expert] for expert in over)
        taken = set(over)
        open_ = [expert for expert in open_ if expert not in taken]
