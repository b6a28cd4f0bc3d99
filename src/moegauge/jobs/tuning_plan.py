"""What a search for configurations runs: candidates for a number of rows, and which served invocations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from moegauge.adapters.runners.kernel_config import Config
from moegauge.records.identity import ModelShape
from moegauge.records.tuning import Place, Stage

_WEIGHT_BYTES = {"bfloat16": 2, "fp8_w8a8_block": 1}
_SHARED_BYTES = 227 << 10
"""Shared memory that one block may have on Hopper (compute capability 9.0)."""

RULE = (
    "BLOCK_SIZE_M: powers of two from 16 to 128, from half the mean rows of an expert to all rows. "
    "BLOCK_SIZE_M 16: BLOCK_SIZE_N 32, 64, 128; BLOCK_SIZE_K 64, 128, 256; GROUP_SIZE_M 1; num_stages 2 to 5. "
    "32: N 64, 128; K 64, 128; GROUP_SIZE_M 1; num_stages 3, 4. "
    "64 and 128: N 64, 128, 256; K 64, 128; GROUP_SIZE_M 1, 16; num_stages 3, 4. "
    "num_warps 8 where M x N is 16384 or more, else 4. In fp8_w8a8_block only K 128, a block of the weights. "
    "Left out: what needs more than 227 KiB of shared memory."
)
"""The search space in words; :func:`search_space` is the same in code."""

_VALUES: dict[int, tuple[tuple[int, ...], ...]] = {
    16: ((32, 64, 128), (64, 128, 256), (1,), (2, 3, 4, 5)),
    32: ((64, 128), (64, 128), (1,), (3, 4)),
    64: ((64, 128, 256), (64, 128), (1, 16), (3, 4)),
    128: ((64, 128, 256), (64, 128), (1, 16), (3, 4)),
}
"""BLOCK_SIZE_M -> values of BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M and num_stages."""


def search_space(rows: int, shape: ModelShape, numeric_format: str) -> list[Config]:
    """Every configuration of :data:`RULE` for a number of executed rows.

    Args:
        rows: executed rows. shape: of the model. numeric_format: of the weights.
    """
    mean = rows * shape.top_k / shape.num_experts
    blocks = [m for m in _VALUES if 2 * m >= min(_power_of_two(mean), 2 * 128) and m <= max(16, _power_of_two(rows))]
    itemsize = _WEIGHT_BYTES[numeric_format]
    found: list[Config] = []
    for m in blocks:
        for n, k, group, stages in product(*_VALUES[m]):
            if (itemsize == 1 and k != 128) or stages * k * (m + n) * itemsize > _SHARED_BYTES:
                continue
            sizes = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
            found.append(sizes | {"num_warps": 8 if m * n >= 16384 else 4, "num_stages": stages})
    return found


def candidates(found: Config, heuristic: Config, space: Sequence[Config]) -> list[Config]:
    """The incumbents, then the space, each once."""
    every = [{name: value for name, value in one.items() if name != "SPLIT_K"} for one in (found, heuristic)]
    return [one for index, one in enumerate([*every, *space]) if one not in [*every, *space][:index]]


def places_of(places: Sequence[Place], num: int, seed: int) -> dict[Stage, tuple[Place, ...]] | None:
    """Invocations for each stage, none of them in two: over as many layers as there are, iterations drawn.

    Args:
        places: of one number of rows. num: wanted for each stage; fewer where there are not as many. seed: of the draw.

    Returns:
        None where there are fewer than three.
    """
    num = min(num, len(places) // len(Stage))
    if not num:
        return None
    generator = np.random.Generator(np.random.Philox(seed))
    by_layer: dict[int, list[Place]] = {}
    for index in generator.permutation(len(places)).tolist():
        by_layer.setdefault(places[index].layer, []).append(places[index])
    rounds = [(turn, one) for layer in by_layer.values() for turn, one in enumerate(layer)]
    dealt = [one for _, one in sorted(rounds, key=lambda pair: pair[0])][: num * len(Stage)]
    return {stage: tuple(dealt[index :: len(Stage)]) for index, stage in enumerate(Stage)}


def _power_of_two(value: float) -> int:
    """The smallest power of two that is not smaller."""
    power = 1
    while power < value:
        power *= 2
    return power
