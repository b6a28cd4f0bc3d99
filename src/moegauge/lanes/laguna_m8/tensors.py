"""What the tensors of the kernels have to be: format, shape, layout, alignment, device and no overlap.

The contract and the launchers ask the same questions with this one definition.
"""

from collections.abc import Callable, Iterable, Mapping

from moegauge.lanes.laguna_m8.facts import TensorFacts
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_ROWS, NUM_TOKENS, TOP_K

ALIGNMENT_BYTES = 16

_OUTPUT = ("bfloat16", (NUM_TOKENS, HIDDEN_SIZE))

TENSORS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "rows": ("bfloat16", (NUM_ROWS, HIDDEN_SIZE)),
    "weights": ("float32", (NUM_TOKENS, TOP_K)),
    "shared": _OUTPUT,
    "out": _OUTPUT,
    "routed": _OUTPUT,
    "scaled": _OUTPUT,
    "route_map": ("int32", (NUM_TOKENS, TOP_K)),
}
"""Number format and shape of each tensor."""

CANDIDATE_TENSORS = ("rows", "weights", "shared", "out")
"""What the one-launch kernel takes."""


def aspects(name: str) -> tuple[tuple[str, str, Callable[[TensorFacts], bool]], ...]:
    """(name, sentence, check) of everything one tensor has to be."""
    dtype, shape = TENSORS[name]
    return (
        (f"{name}-dtype", f"{name} is {dtype}", lambda one: one.dtype == dtype),
        (f"{name}-shape", f"{name} is {list(shape)}", lambda one: one.shape == shape),
        (f"{name}-contiguous", f"{name} is contiguous", lambda one: one.contiguous),
        (
            f"{name}-aligned",
            f"{name} starts at a multiple of {ALIGNMENT_BYTES} bytes",
            lambda one: one.address > 0 and one.address % ALIGNMENT_BYTES == 0,
        ),
    )


def on_one_device(tensors: Iterable[TensorFacts]) -> bool:
    """Whether all are on the same device."""
    return len({one.device for one in tensors}) == 1


def apart(outputs: Iterable[TensorFacts], inputs: Iterable[TensorFacts]) -> bool:
    """Whether no output shares a byte with an input or with another output."""
    written, read = list(outputs), list(inputs)
    others = [(one, other) for i, one in enumerate(written) for other in (*written[i + 1 :], *read)]
    return all(
        one.address + one.num_bytes <= other.address or other.address + other.num_bytes <= one.address
        for one, other in others
    )
