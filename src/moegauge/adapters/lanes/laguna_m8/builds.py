"""How each kernel of the lane is built: types, constants, tile, and the FP32 operations its sequence has. No torch."""

from dataclasses import dataclass
from typing import Any

from triton.compiler import ASTSource

from moegauge.adapters.lanes.laguna_m8 import kernels
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, TOP_K


@dataclass(frozen=True)
class Tile:
    """How a kernel is cut: columns of a program (a power of two that divides 3,072), and warps that share them."""

    block: int
    num_warps: int


GATHER_TILE = Tile(64, 1)
SCALE_ADD_TILE = Tile(64, 1)
CANDIDATE_TILE = Tile(128, 4)

_OUTPUT = "*u16"
_SIZES = {"hidden": HIDDEN_SIZE, "top_k": TOP_K}


@dataclass(frozen=True)
class Build:
    """One kernel as its launcher builds it.

    Attributes:
        products, sums: FP32 operations on one element, from the sequence: eleven products (ten slots and the scale)
            and eleven sums (ten slots and the shared output) for the candidate.
    """

    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    tile: Tile
    products: int
    sums: int


BUILDS = {
    "moe_gather": Build(
        kernels.moe_gather,
        {"routed": _OUTPUT, "rows": "*u16", "weights": "*fp32", "route_map": "constexpr"},
        {"route_map": None, "mapped": False, **_SIZES},
        GATHER_TILE,
        TOP_K,
        TOP_K,
    ),
    "moe_gather_by_map": Build(
        kernels.moe_gather,
        {"routed": _OUTPUT, "rows": "*u16", "weights": "*fp32", "route_map": "*i32"},
        {"mapped": True, **_SIZES},
        GATHER_TILE,
        TOP_K,
        TOP_K,
    ),
    "scale_add": Build(
        kernels.scale_add,
        {"out": _OUTPUT, "shared": "*u16", "routed": "*u16"},
        {"hidden": HIDDEN_SIZE},
        SCALE_ADD_TILE,
        1,
        1,
    ),
    "gather_finalize": Build(
        kernels.gather_finalize,
        {"out": _OUTPUT, "rows": "*u16", "weights": "*fp32", "shared": "*u16"},
        dict(_SIZES),
        CANDIDATE_TILE,
        TOP_K + 1,
        TOP_K + 1,
    ),
    "gather_finalize_diagnostic": Build(
        kernels.gather_finalize_diagnostic,
        {"routed": _OUTPUT, "scaled": _OUTPUT, "out": _OUTPUT, "rows": "*u16", "weights": "*fp32", "shared": "*u16"},
        dict(_SIZES),
        CANDIDATE_TILE,
        TOP_K + 1,
        TOP_K + 1,
    ),
}


def source(build: Build) -> ASTSource:
    """The kernel with its constants, every pointer divisible by 16 bytes."""
    constants = build.constants | {"block": build.tile.block}
    signature = build.signature | dict.fromkeys(constants, "constexpr")
    names = list(build.function.arg_names)
    pointers = [name for name, kind in signature.items() if kind.startswith("*")]
    return ASTSource(
        fn=build.function,
        signature={name: signature[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in pointers},
    )
