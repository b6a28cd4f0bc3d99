"""Why an iteration does not close: (reason code, sentence) of each cause. Nothing here decides."""

from __future__ import annotations

from collections.abc import Sequence

from moegauge.kernels.kind import KernelKind, Variant, not_seen
from moegauge.kernels.trace import Trace


def not_marked_at_all(num_cores: int, num_layers: int) -> tuple[str, str]:
    """A trace without any iteration annotation; the number of iterations it may hold is an inference only."""
    text = "the trace has no iteration annotations, and the whole trace is not one iteration"
    if num_layers and num_cores and num_cores % num_layers == 0:
        text += f"; {num_cores} sequences / {num_layers} layers = {num_cores // num_layers} iterations (inferred only)"
    return "NO_ITERATION_MARKERS", text


def not_marked() -> tuple[str, str]:
    """An iteration without its annotation, in a trace that has others."""
    return "ITERATION_NOT_MARKED", "the trace has no annotation for it"


def no_kernels(trace: Trace, kind: KernelKind) -> tuple[str, str]:
    """An annotated iteration without a complete sequence; names what the trace holds if it has nothing of the kind."""
    if kind.runs_in(trace.op_names(kernels_only=True)):
        return "NO_KERNELS", "no complete sequence of the kernel kind lies in it"
    return "NO_KERNELS", not_seen(kind.name, trace.op_names(kernels_only=False))


def does_not_divide(kind: KernelKind, num_cores: int, num_layers: int) -> tuple[str, str]:
    """Complete sequences, but not one for each layer."""
    return "PATTERN_DOES_NOT_DIVIDE", (
        f"pattern does not divide: {num_cores} complete sequences ({' '.join(kind.core)}) for {num_layers} layers"
    )


def mismatch(layer: int, num_rows: int, variant: Variant, found: Sequence[str]) -> tuple[str, str]:
    """A core without the prefix that its rows call for."""
    return "GRAMMAR_MISMATCH", (
        f"layer {layer} ({num_rows} rows) calls for {variant.name} ({' '.join(variant.prefix) or 'no prefix'}) before "
        f"the first gemm, found {[name[:60] for name in found]}"
    )


def shared() -> tuple[str, str]:
    """A kernel that ends one invocation and begins the next: the end that is missing is not made up from it."""
    return "GRAMMAR_MISMATCH", "two invocations would share a kernel; one of them is incomplete"
