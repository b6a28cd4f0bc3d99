"""Samplers: a popularity becomes rows of distinct expert ids. An average over seeds recovers no information.

| name | keeps |
|---|---|
| counts_exact | the integer counts, exactly; the pairing within rows is random |
| systematic | inclusion probabilities in expectation; a fresh random expert order for each row |
| conditional_poisson | inclusion probabilities in expectation, at the highest entropy |
| gumbel_topk | neither (the busiest experts come out too rare); what simulators use |
| uniform | nothing of the popularity |

Every sampler returns int32 [rows, top_k], ids of a row ascending: the order of slots carries no information. Random
words are Philox 4x64 under the key (seed, stream), read as integers, so nothing depends on the order of calls or on
NumPy's distributions. `counts_exact`, `systematic` and `uniform` use integers only and are the same on every
platform; `conditional_poisson` and `gumbel_topk` use float64, where another platform's rounding can change an id
only if a draw falls within a rounding error of a boundary.

Any change of an id for the same arguments raises the sampler's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.routing.apportionment import RULE, check_target, counts_for, inclusion, refusal
from moegauge.routing.maximum_entropy import draws

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt16Array = NDArray[np.uint16]
UInt64Array = NDArray[np.uint64]
Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_ID_BITS = 12
_ID = (1 << _ID_BITS) - 1
_CLASS_BIT = 16 + _ID_BITS
_BLOCK_ROWS = 4096
_RADIX_ROWS = 2048  # from here on two radix passes are faster than one comparison sort


class Noise:
    """Random words of one (seed, stream), in the order they are asked for."""

    def __init__(self, seed: int, stream: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))

    def words(self, *shape: int) -> UInt64Array:
        """uint64 of the given shape."""
        return self._bits.random_raw(int(np.prod(shape))).reshape(shape)

    def short_words(self, *shape: int) -> UInt16Array:
        """uint16 of the given shape; four from each 64-bit word, the low one first."""
        num = int(np.prod(shape))
        words = self._bits.random_raw(-(-num // 4)).astype("<u8", copy=False)
        return words.view("<u2")[:num].reshape(shape)

    def uniform(self, *shape: int) -> Float64Array:
        """float64 of the given shape, in (0, 1), 2**-53 apart."""
        return ((self.words(*shape) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def ascending_order(words: UInt64Array) -> IndexArray:
    """``np.argsort(words)`` of random words, faster for many of them: by their two high quarters, least first.

    Where the high halves of two words are equal (about one call in a hundred at 8192 words) all are compared whole.
    """
    if len(words) < _RADIX_ROWS:
        return np.argsort(words)
    quarters = words.astype("<u8", copy=False).view("<u2").reshape(-1, 4)
    order = np.argsort(quarters[:, 2], kind="stable")
    order = order[np.argsort(quarters[order, 3], kind="stable")]
    high = words[order] >> np.uint64(32)
    return np.argsort(words) if (high[1:] == high[:-1]).any() else order


Draw = Callable[[Int64Array, int, int, Noise, bool], NDArray[np.integer]]


@dataclass(frozen=True)
class Sampler:
    """One row of the table.

    Attributes:
        name, version: what an artifact records.
        rule: how the popularity becomes a target, part of the version.
        draw: (popularity, rows >= 1, top_k, noise, strict) -> distinct ids [rows, top_k], in any order.
    """

    name: str
    version: int
    rule: str
    draw: Draw

    @property
    def label(self) -> str:
        """Name, version and rule in one line."""
        return f"{self.name} v{self.version} ({self.rule})"


def sample(
    name: str, popularity: Int64Array, *, rows: int, top_k: int, seed: int, stream: int, strict: bool = False
) -> Int32Array:
    """Draw rows of distinct experts.

    Args:
        name: of a sampler in :data:`SAMPLERS`.
        popularity: int64 [num_experts], counts of the window.
        rows: rows to draw.
        top_k: distinct experts in a row.
        seed, stream: 0 .. 2**64 - 1; the stream says which of many draws under one seed this is.
        strict: refuse an inclusion above 1 (a count above the rows) instead of capping it.

    Returns:
        int32 [rows, top_k], ascending within a row.

    Raises:
        MisuseError: unknown sampler; seed or stream outside 64 bits.
        Inconsistent: a target no table of distinct ids can have; see :mod:`moegauge.routing.apportionment`.
    """
    sampler = sampler_named(name)
    if not (0 <= seed < 1 << 64 and 0 <= stream < 1 << 64):
        raise errors.MisuseError(
            where="sampler",
            expected="seed and stream in 0..2**64-1",
            found=f"seed {seed}, stream {stream}",
            remedy="Give a seed that is not negative.",
        )
    check_target(popularity, min(rows, 0), top_k)
    if len(popularity) > _ID:
        raise refusal(f"at most {_ID} experts", f"{len(popularity)} experts")
    if rows == 0:
        return np.empty((0, top_k), dtype=np.int32)
    ids = sampler.draw(popularity, rows, top_k, Noise(seed, stream), strict)
    return np.sort(ids.astype(np.int32, copy=False), axis=1)


def sampler_named(name: str) -> Sampler:
    """Look a sampler up.

    Raises:
        MisuseError: there is none of that name.
    """
    if name not in SAMPLERS:
        raise errors.MisuseError(
            where="sampler", expected=" | ".join(SAMPLERS), found=name, remedy="Name one of the samplers."
        )
    return SAMPLERS[name]


def _counts_exact(popularity: Int64Array, rows: int, top_k: int, noise: Noise, strict: bool) -> NDArray[np.integer]:
    """Deal the experts round-robin over the rows, then trade between random pairs of rows.

    The deal is distinct because a count never exceeds the rows. A round of trades halves the expected excess of any
    pair of experts in the same rows; after log2(rows) / 2 + 4 rounds it is a sixteenth of the random spread at most.
    """
    counts = counts_for(popularity, rows, top_k, strict=strict)
    by_count = np.argsort(-counts, kind="stable")
    dealt = np.repeat(by_count.astype(np.int32), counts[by_count])
    ids = np.ascontiguousarray(dealt.reshape(top_k, rows).T)
    if rows > 1:
        for _ in range(num_trade_rounds(rows)):
            ids = _trades(ids, noise)
    return ids


def num_trade_rounds(rows: int) -> int:
    """How often `counts_exact` pairs ``rows`` rows, 2 or more: log2(rows) / 2 + 4, each part rounded up."""
    return -(-(rows - 1).bit_length() // 2) + 4


def _trades(ids: Int32Array, noise: Noise) -> Int32Array:
    """Pair the rows at random; each pair pools its experts and deals them out again.

    An expert that both rows of a pair have stays in both; the others are split at random (a "curveball" trade:
    Strona et al., Nature Communications 5:4114, 2014), so counts and distinctness hold at every step.
    """
    rows, top_k = ids.shape
    pairs, width = rows // 2, 2 * top_k
    order = ascending_order(noise.words(rows))
    pool = np.take(ids, order[: 2 * pairs], axis=0).reshape(pairs, width)
    pool.sort(axis=1)
    # Sort key: the class (-1 first of a twin, 0 single, 1 second of a twin), 16 random bits, the id. Where two random
    # parts are equal the ids decide; that favours neither row, for the pair's own order is random.
    key = np.left_shift(noise.short_words(pairs, width), _ID_BITS, dtype=np.int32)
    key |= pool
    # Neighbours are compared over all pairs as one line: NumPy takes ten times as long over lines of 15.
    twin = pool.reshape(-1)[1:] == pool.reshape(-1)[:-1]
    twin[width - 1 :: width] = False
    step = np.left_shift(twin, _CLASS_BIT, dtype=np.int32)
    key.reshape(-1)[:-1] -= step
    key.reshape(-1)[1:] += step
    key.sort(axis=1)
    key &= _ID
    return np.concatenate([key.reshape(2 * pairs, top_k), ids[order[2 * pairs :]]])


def _systematic(popularity: Int64Array, rows: int, top_k: int, noise: Noise, strict: bool) -> NDArray[np.integer]:
    """Lay the inclusions end to end in a random order and step through them from one random start, row by row."""
    width, step = inclusion(popularity, top_k, strict=strict)
    blocks = []
    for first in range(0, rows, _BLOCK_ROWS):
        num = min(_BLOCK_ROWS, rows - first)
        start = (noise.words(num, 1) % np.uint64(step)).astype(np.int64)
        order = _shuffled(len(width), num, noise)
        passed = (np.cumsum(width[order], axis=1) - start + (step - 1)) // step
        hit = np.diff(passed, axis=1, prepend=0) > 0
        blocks.append(order[hit].reshape(num, top_k))
    return np.concatenate(blocks)


def _conditional_poisson(
    popularity: Int64Array, rows: int, top_k: int, noise: Noise, strict: bool
) -> NDArray[np.integer]:
    """Experts with inclusion 1 in every row, the others by maximum entropy."""
    numerators, denominator = inclusion(popularity, top_k, strict=strict)
    certain = np.flatnonzero(numerators == denominator)
    open_ = np.flatnonzero((numerators > 0) & (numerators < denominator))
    always = np.broadcast_to(certain, (rows, len(certain)))
    size = top_k - len(certain)
    if size == 0:
        return always
    drawn = draws(numerators[open_] / denominator, noise.uniform(size, rows))
    return np.concatenate([always, open_[drawn]], axis=1)


def _gumbel_topk(popularity: Int64Array, rows: int, top_k: int, noise: Noise, strict: bool) -> NDArray[np.integer]:
    """The top_k largest of log p + Gumbel noise, as the top_k smallest of exponential noise / p (the same order)."""
    check_target(popularity, rows, top_k)
    if strict:
        inclusion(popularity, top_k, strict=True)
    with_mass = np.flatnonzero(popularity)
    weight = popularity[with_mass].astype(np.float64)
    blocks = []
    for first in range(0, rows, _BLOCK_ROWS):
        race = -np.log(noise.uniform(min(_BLOCK_ROWS, rows - first), len(weight))) / weight
        blocks.append(with_mass[np.argpartition(race, top_k - 1, axis=1)[:, :top_k]])
    return np.concatenate(blocks)


def _uniform(popularity: Int64Array, rows: int, top_k: int, noise: Noise, strict: bool) -> NDArray[np.integer]:
    """The first top_k experts of a random order."""
    return np.concatenate(
        [
            _shuffled(len(popularity), min(_BLOCK_ROWS, rows - first), noise)[:, :top_k]
            for first in range(0, rows, _BLOCK_ROWS)
        ]
    )


def _shuffled(num_experts: int, rows: int, noise: Noise) -> Int64Array:
    """int64 [rows, num_experts], a random order of the experts in each row."""
    key = (noise.words(rows, num_experts) & np.uint64(~_ID & 0xFFFFFFFFFFFFFFFF)) | np.arange(
        num_experts, dtype=np.uint64
    )
    key.sort(axis=1)
    return (key & np.uint64(_ID)).astype(np.int64)


_CAP = "inclusion = top_k x share, capped at 1, the rest spread in proportion"

SAMPLERS: Mapping[str, Sampler] = MappingProxyType(
    {
        sampler.name: sampler
        for sampler in (
            Sampler("counts_exact", 1, RULE, _counts_exact),
            Sampler("systematic", 1, _CAP, _systematic),
            Sampler("conditional_poisson", 1, _CAP, _conditional_poisson),
            Sampler("gumbel_topk", 1, "weights = counts", _gumbel_topk),
            Sampler("uniform", 1, "popularity not used", _uniform),
        )
    }
)
