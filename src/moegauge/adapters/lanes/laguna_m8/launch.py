"""Launchers of the lane's kernels: every tensor is held against what it has to be, and only then is anything launched.

BF16 tensors are torch.bfloat16, weights torch.float32, a route map torch.int32. Each launcher raises ContractBroken
where a tensor's format, shape, layout, alignment, device or memory is not right.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from moegauge.adapters.lanes.laguna_m8 import kernels
from moegauge.adapters.lanes.laguna_m8.builds import CANDIDATE_TILE, GATHER_TILE, SCALE_ADD_TILE, Tile
from moegauge.adapters.lanes.laguna_m8.tensor_facts import facts
from moegauge.lanes.laguna_m8.contract import check_tensors
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_TOKENS, TOP_K


def moe_gather(
    routed: Tensor, rows: Tensor, weights: Tensor, route_map: Tensor | None = None, *, tile: Tile = GATHER_TILE
) -> None:
    """Write routed [8, 3072]: the weighted sum of each token's ten rows.

    Args:
        routed: output.
        rows: [80, 3072].
        weights: [8, 10].
        route_map: row of each slot, [8, 10], -1 for a slot that is left out; None for row token x 10 + slot. Its
            values are not checked: that would take a launch of its own.
        tile: how the kernel is cut.
    """
    given = {"rows": rows, "weights": weights}
    if route_map is not None:
        given["route_map"] = route_map
    _check({"routed": routed}, given)
    kernels.moe_gather[_grid(tile)](
        _words(routed),
        _words(rows),
        weights,
        route_map,
        mapped=route_map is not None,
        hidden=HIDDEN_SIZE,
        top_k=TOP_K,
        block=tile.block,
        num_warps=tile.num_warps,
        enable_fp_fusion=False,
    )


def scale_add(out: Tensor, shared: Tensor, routed: Tensor, *, tile: Tile = SCALE_ADD_TILE) -> None:
    """Write out [8, 3072] = BF16(shared + BF16(2.5 x routed))."""
    _check({"out": out}, {"shared": shared, "routed": routed})
    kernels.scale_add[_grid(tile)](
        _words(out),
        _words(shared),
        _words(routed),
        hidden=HIDDEN_SIZE,
        block=tile.block,
        num_warps=tile.num_warps,
        enable_fp_fusion=False,
    )


def gather_finalize(out: Tensor, rows: Tensor, weights: Tensor, shared: Tensor, *, tile: Tile = CANDIDATE_TILE) -> None:
    """Write out [8, 3072] in one launch; canonical rows alone.

    Args:
        out, rows, weights, shared: [8, 3072], [80, 3072], [8, 10], [8, 3072].
        tile: how the kernel is cut.
    """
    _check({"out": out}, {"rows": rows, "weights": weights, "shared": shared})
    kernels.gather_finalize[_grid(tile)](
        _words(out),
        _words(rows),
        weights,
        _words(shared),
        hidden=HIDDEN_SIZE,
        top_k=TOP_K,
        block=tile.block,
        num_warps=tile.num_warps,
        enable_fp_fusion=False,
    )


def gather_finalize_dependent(
    out: Tensor, rows: Tensor, weights: Tensor, shared: Tensor, *, tile: Tile = CANDIDATE_TILE
) -> None:
    """The same as a programmatic dependent launch, on CUDA devices that have it (compute capability 9.0 and up)."""
    from moegauge.adapters.lanes.laguna_m8 import dependent  # noqa: PLC0415 - not in Triton for other platforms

    _check({"out": out}, {"rows": rows, "weights": weights, "shared": shared})
    dependent.gather_finalize_dependent[_grid(tile)](
        _words(out),
        _words(rows),
        weights,
        _words(shared),
        hidden=HIDDEN_SIZE,
        top_k=TOP_K,
        block=tile.block,
        num_warps=tile.num_warps,
        enable_fp_fusion=False,
        launch_pdl=True,
    )


def gather_finalize_diagnostic(
    *,
    routed: Tensor,
    scaled: Tensor,
    out: Tensor,
    rows: Tensor,
    weights: Tensor,
    shared: Tensor,
    tile: Tile = CANDIDATE_TILE,
) -> None:
    """The candidate with its routed and scaled words stored, each [8, 3072]."""
    _check({"routed": routed, "scaled": scaled, "out": out}, {"rows": rows, "weights": weights, "shared": shared})
    kernels.gather_finalize_diagnostic[_grid(tile)](
        _words(routed),
        _words(scaled),
        _words(out),
        _words(rows),
        weights,
        _words(shared),
        hidden=HIDDEN_SIZE,
        top_k=TOP_K,
        block=tile.block,
        num_warps=tile.num_warps,
        enable_fp_fusion=False,
    )


def _check(outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> None:
    check_tensors(
        outputs={name: facts(one) for name, one in outputs.items()},
        inputs={name: facts(one) for name, one in inputs.items()},
    )


def _grid(tile: Tile) -> tuple[int, int]:
    return NUM_TOKENS, HIDDEN_SIZE // tile.block


def _words(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint16)
