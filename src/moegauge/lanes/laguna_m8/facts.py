"""What an integration has to know of a call before the lane's contract can be asked about it.

Nothing here is guessed from a tensor's shape, and nothing has a default: whoever builds a record says every field.
``None`` stands for "not known"; a predicate over something not known does not hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Platform = Literal["cpu", "cuda", "xpu"]


class Feature(StrEnum):
    """Parts of the stack that the XPU lane needs on, or off. The first six are on in the stack it was written for."""

    BATCHED_EXACT_MOE = "batched-exact-moe"
    FUSED_W1_ROUTE_W2 = "fused-w1-route-parallel-w2"
    W1_N64 = "w1-n64"
    ROUTE_INTERLEAVE = "route-interleave"
    SHARED_ELEMENTWISE = "shared-elementwise"
    FIXED_RANK_REDUCTION = "fixed-rank-reduction"
    REMOTE_ROUTE_ZERO = "remote-route-zero"
    NATIVE_SHARED_GATE = "native-shared-gate"
    NATIVE_SHARED_UP = "native-shared-up"
    NATIVE_SHARED_DOWN = "native-shared-down"
    ROUTER_CAST_SKIP = "router-cast-skip"
    W1_N128 = "w1-n128"
    FUSED_TRANSACTION = "fused-transaction"
    AUXILIARY_STREAM = "auxiliary-stream"


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    """A tensor as it lies in memory.

    Attributes:
        dtype: ``bfloat16``, ``float32``, ...
        shape: sizes, outermost first.
        contiguous: whether the elements follow one another in that order.
        device: device with its index, such as ``cuda:0``.
        address: of the first byte.
        num_bytes: from the first byte to past the last one.
    """

    dtype: str
    shape: tuple[int, ...]
    contiguous: bool
    device: str
    address: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a MoE layer, as it stands before rows are gathered.

    Attributes:
        architecture: class of the served model, as its configuration names it.
        role: whether the model is the one that answers, or a draft of it.
        stage: what the tokens are: a prompt, one token per sequence, or drafted tokens to be verified.
        execution: how the layer is run; ``graph`` while one is captured or replayed, ``compiled`` under torch.compile.
        lora: whether any adapter is active.
        num_tokens, hidden_size, top_k: of the call.
        verifier_marker: whether the explicit marker of an exact target verifier is present.
        num_experts, num_local_experts, num_shared_experts: of the layer, on this rank where it says local.
        tp_size, ep_size, dp_size, pp_size: parallel sizes.
        routed_scale: the factor on the routed output, as the layer holds it.
        routed_output_transform: whether a transform of the routed output is set.
        routed_output_reduced: whether the routed output was already reduced over ranks.
        sequence_parallel, dual_batch_overlap: whether these are on.
        final_all_reduce_skipped: whether the layer leaves the last reduction to someone else.
        shared_stream: whether the shared expert may run beside the routed ones, on a stream of its own.
        rows_weighted: whether the rows were multiplied by their weights already.
        route_map: whether a map from routes to rows is given; the lane knows canonical rows alone.
        shared_reads: how often the shared output was read before; reading clears it.
        rows, weights, shared, out: the tensors; None where there is none.
    """

    architecture: str
    role: Literal["target", "draft"]
    stage: Literal["prefill", "decode", "verify"]
    execution: Literal["eager", "graph", "compiled"]
    lora: bool
    num_tokens: int
    hidden_size: int
    top_k: int
    verifier_marker: bool | None
    num_experts: int | None
    num_local_experts: int | None
    num_shared_experts: int | None
    tp_size: int | None
    ep_size: int | None
    dp_size: int | None
    pp_size: int | None
    routed_scale: float | None
    routed_output_transform: bool | None
    routed_output_reduced: bool | None
    sequence_parallel: bool | None
    dual_batch_overlap: bool | None
    final_all_reduce_skipped: bool | None
    shared_stream: bool | None
    rows_weighted: bool | None
    route_map: bool | None
    shared_reads: int | None
    rows: TensorFacts | None
    weights: TensorFacts | None
    shared: TensorFacts | None
    out: TensorFacts | None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What holds for the process, whatever is called.

    Attributes:
        platform: where the model runs.
        selectors: environment variables, at least those that are a contract's selector where they are set.
        features: parts of the stack, on or off; one that is not there is not known.
        aot_compile: whether ahead-of-time compilation is on.
        kernel_present: whether the candidate's kernel can be called.
        combined_output: whether the caller can be told that an output includes the shared one.
    """

    platform: Platform
    selectors: Mapping[str, str]
    features: Mapping[Feature, bool]
    aot_compile: bool | None
    kernel_present: bool
    combined_output: bool
