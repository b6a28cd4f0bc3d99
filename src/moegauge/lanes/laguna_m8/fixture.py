"""One input of the lane, and the pieces that families of inputs are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from moegauge.evidence.digest import arrays_digest
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_RANKS, NUM_ROWS, NUM_TOKENS, TOP_K, check_arrays
from moegauge.numerics.words import FINITE_WORDS, UInt16Array, UInt32Array

ONE = np.uint32(0x3F80_0000)
"""1.0 as an FP32 word."""

BF16_ONE = 0x3F80
SIGN = np.uint16(0x8000)

ELEMENTS = NUM_TOKENS * HIDDEN_SIZE
NUM_CHUNKS = -(-len(FINITE_WORDS) // ELEMENTS)
"""Fixtures that it takes to hold every finite BF16 word once: 3."""


def no_rows() -> UInt16Array:
    """Rows of +0, [80, 3072]."""
    return np.zeros((NUM_ROWS, HIDDEN_SIZE), dtype=np.uint16)


def no_shared() -> UInt16Array:
    """Shared output of +0, [8, 3072]."""
    return np.zeros((NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint16)


def no_peers() -> UInt16Array:
    """Outputs of +0 on the three other ranks, [3, 8, 3072]."""
    return np.zeros((NUM_RANKS - 1, NUM_TOKENS, HIDDEN_SIZE), dtype=np.uint16)


def unit_weights() -> UInt32Array:
    """Weights of 1, [8, 10]."""
    return np.full((NUM_TOKENS, TOP_K), ONE, dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class Fixture:
    """One input of the lane.

    Attributes:
        rows: uint16 [80, 3072], BF16 words of the routed rows; row token x 10 + slot.
        weights: uint32 [8, 10], FP32 words of the routing weights.
        shared: uint16 [8, 3072], BF16 words of the shared expert's output.
        peers: uint16 [3, 8, 3072], outputs of the other ranks, in their order.
        rank: where this rank stands in the sum over ranks, 0 to 3.
    """

    rows: UInt16Array
    weights: UInt32Array
    shared: UInt16Array
    peers: UInt16Array = field(default_factory=no_peers)
    rank: int = 0

    def __post_init__(self) -> None:
        check_arrays(rows=self.rows, weights=self.weights, shared=self.shared)

    @property
    def inputs(self) -> dict[str, NDArray[np.generic]]:
        """What a kernel of the lane reads, by argument."""
        return {"rows": self.rows, "weights": self.weights, "shared": self.shared}

    @cached_property
    def digest(self) -> str:
        """Digest of what a kernel reads; the same before and after a launch."""
        return arrays_digest(self.inputs)

    @cached_property
    def peers_digest(self) -> str:
        """Digest of the other ranks' outputs and of this rank's place among them."""
        return arrays_digest({"peers": self.peers, "rank": np.array(self.rank, dtype=np.int64)})

    def outputs(self, final: UInt16Array) -> UInt16Array:
        """This rank's output among the others, uint16 [4, 8, 3072], in rank order."""
        return np.insert(self.peers, self.rank, final, axis=0)


@dataclass(frozen=True)
class FixtureSpec:
    """A named input that is built when it is needed.

    Attributes:
        name: of the fixture, unique in the corpus.
        family: what it is there for; a key of :data:`moegauge.lanes.laguna_m8.corpus.FAMILIES`.
        build: makes the arrays; the same ones every time.
    """

    name: str
    family: str
    build: Callable[[], Fixture]


def by_slot(rows: UInt16Array) -> UInt16Array:
    """The same rows as [8, 10, 3072]: token, slot, column. Writing to it writes the rows."""
    return rows.reshape(NUM_TOKENS, TOP_K, HIDDEN_SIZE)


def finite_chunk(chunk: int, *, step: int = 1) -> UInt16Array:
    """A third of the finite words, [8, 3072]; the last third wraps round to the first words.

    Args:
        chunk: 0 to 2.
        step: 1 takes them in order; another number without a common factor with 65,280 takes them in that order.
    """
    order = (chunk * ELEMENTS + np.arange(ELEMENTS)) * step % len(FINITE_WORDS)
    return FINITE_WORDS[order].reshape(NUM_TOKENS, HIDDEN_SIZE)


def tiled(words: NDArray[np.unsignedinteger], *, offset: int = 0) -> UInt16Array:
    """Words repeated until they fill [8, 3072], from the given one on."""
    return words[(offset + np.arange(ELEMENTS)) % len(words)].reshape(NUM_TOKENS, HIDDEN_SIZE).astype(np.uint16)
