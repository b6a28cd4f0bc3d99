"""The predicates of the lane's contract, as data: a list for each platform, one check for each predicate."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from moegauge.lanes.laguna_m8.facts import Call, Environment, Feature, Platform, TensorFacts
from moegauge.lanes.laguna_m8.sequence import HIDDEN_SIZE, NUM_TOKENS, TOP_K
from moegauge.lanes.laguna_m8.tensors import CANDIDATE_TENSORS, apart, aspects, on_one_device

ARCHITECTURE = "LagunaForCausalLM"
ROUTED_SCALE = 2.5


@dataclass(frozen=True)
class Predicate:
    """One condition.

    Attributes:
        name: what an error names.
        sentence: what holds, for people and for the registration.
        holds: the check.
        scope: whether a call that breaks it is simply another call, which keeps the incumbent.
    """

    name: str
    sentence: str
    holds: Callable[[Call, Environment], bool]
    scope: bool = False


def _is(field: str, wanted: object) -> Callable[[Call, Environment], bool]:
    """The field of a call has a value of the same type; what is not known is not that value."""
    return lambda call, _: type(getattr(call, field)) is type(wanted) and getattr(call, field) == wanted


def _tensor(name: str, holds: Callable[[TensorFacts], bool]) -> Callable[[Call, Environment], bool]:
    def check(call: Call, environment: Environment) -> bool:
        del environment
        tensor = getattr(call, name)
        return tensor is not None and holds(tensor)

    return check


def _tensors(call: Call) -> list[TensorFacts] | None:
    """Rows, weights, shared and out, or None where one is not there."""
    found = [getattr(call, name) for name in CANDIDATE_TENSORS]
    return None if None in found else found


def _one_device(platform: Platform, call: Call, environment: Environment) -> bool:
    del environment
    found = _tensors(call)
    return found is not None and on_one_device(found) and found[0].device.partition(":")[0] == platform


def _no_overlap(call: Call, environment: Environment) -> bool:
    del environment
    found = _tensors(call)
    return found is not None and apart(found[-1:], found[:-1])


SCOPE = (
    Predicate("architecture", f"the model is {ARCHITECTURE}", _is("architecture", ARCHITECTURE), scope=True),
    Predicate("target", "the target model, never the draft", _is("role", "target"), scope=True),
    Predicate("not-prefill", "no prompt is prefilled", lambda call, _: call.stage != "prefill", scope=True),
    Predicate("eager", "eager execution, no graph, no compilation", _is("execution", "eager"), scope=True),
    Predicate("no-lora", "no adapter is active", _is("lora", False), scope=True),
    Predicate("tokens", f"exactly {NUM_TOKENS} tokens", _is("num_tokens", NUM_TOKENS), scope=True),
    Predicate("hidden", f"hidden size {HIDDEN_SIZE}", _is("hidden_size", HIDDEN_SIZE), scope=True),
    Predicate("top-k", f"{TOP_K} experts a token", _is("top_k", TOP_K), scope=True),
)
"""What makes a call one of the lane's at all; a call that breaks one of these keeps the incumbent."""


def _tensor_predicates(platform: Platform) -> tuple[Predicate, ...]:
    return (
        *(
            Predicate(name, sentence, _tensor(tensor, holds))
            for tensor in CANDIDATE_TENSORS
            for name, sentence, holds in aspects(tensor)
        ),
        Predicate("one-device", f"the four tensors are on one {platform} device", partial(_one_device, platform)),
        Predicate("no-overlap", "out shares no byte with an input", _no_overlap),
    )


def _common(platform: Platform) -> tuple[Predicate, ...]:
    """What each platform's list has besides the scope."""
    return (
        Predicate("platform", f"the platform is {platform}", lambda _, around: around.platform == platform),
        Predicate("no-aot", "no ahead-of-time compilation", lambda _, around: around.aot_compile is False),
        Predicate("shared-expert", "one shared expert", _is("num_shared_experts", 1)),
        *_tensor_predicates(platform),
        Predicate("canonical-rows", "no route map: row token x 10 + slot", _is("route_map", False)),
        Predicate("unweighted-rows", "the rows were not weighted before", _is("rows_weighted", False)),
        Predicate("scale", f"the routed scale is exactly {ROUTED_SCALE}", _is("routed_scale", ROUTED_SCALE)),
        Predicate("no-transform", "no transform of the routed output", _is("routed_output_transform", False)),
        Predicate("not-reduced", "the routed output is not reduced yet", _is("routed_output_reduced", False)),
        Predicate("no-sequence-parallel", "sequence parallelism is off", _is("sequence_parallel", False)),
        Predicate("no-dbo", "dual-batch overlap is off", _is("dual_batch_overlap", False)),
        Predicate("all-reduce", "the final all-reduce is not skipped", _is("final_all_reduce_skipped", False)),
        Predicate("shared-unread", "the shared output was not read before", _is("shared_reads", 0)),
        Predicate("kernel", "the candidate's kernel is there", lambda _, around: around.kernel_present),
        Predicate(
            "combined-output",
            "the caller can be told that the output includes the shared one",
            lambda _, around: around.combined_output,
        ),
    )


def _feature(feature: Feature, wanted: bool) -> Predicate:
    return Predicate(
        feature.value,
        f"{feature.value} is {'on' if wanted else 'off'}",
        lambda _, around: around.features.get(feature) is wanted,
    )


# --- the lists --------------------------------------------------------------------------------------------------------

_ON = (
    Feature.BATCHED_EXACT_MOE,
    Feature.FUSED_W1_ROUTE_W2,
    Feature.W1_N64,
    Feature.ROUTE_INTERLEAVE,
    Feature.SHARED_ELEMENTWISE,
    Feature.FIXED_RANK_REDUCTION,
)

_XPU = (
    Predicate("verify", "drafted tokens are verified", _is("stage", "verify")),
    Predicate("verifier-marker", "the marker of an exact target verifier is there", _is("verifier_marker", True)),
    Predicate("experts", "256 experts", _is("num_experts", 256)),
    Predicate("local-experts", "64 experts on this rank", _is("num_local_experts", 64)),
    Predicate("tp", "tensor parallel size 4", _is("tp_size", 4)),
    Predicate("ep", "expert parallel size 4", _is("ep_size", 4)),
    Predicate("dp", "data parallel size 1", _is("dp_size", 1)),
    Predicate("pp", "pipeline parallel size 1", _is("pp_size", 1)),
    *(_feature(one, one in _ON) for one in Feature),
)
"""The list of the original lane. CUDA and the host cannot satisfy it and have lists of their own."""

_ONE_RANK = (
    Predicate(
        "all-local",
        "every expert is on this rank",
        lambda call, _: call.num_experts is not None and call.num_experts == call.num_local_experts,
    ),
    Predicate("tp", "tensor parallel size 1", _is("tp_size", 1)),
    Predicate("ep", "expert parallel size 1", _is("ep_size", 1)),
    Predicate("dp", "data parallel size 1", _is("dp_size", 1)),
    Predicate("pp", "pipeline parallel size 1", _is("pp_size", 1)),
)

_NO_SHARED_STREAM = Predicate(
    "no-shared-stream", "the shared expert runs on the stream of the routed ones", _is("shared_stream", False)
)


PREDICATES: dict[Platform, tuple[Predicate, ...]] = {
    "xpu": (*SCOPE, *_common("xpu"), *_XPU),
    "cuda": (*SCOPE, *_common("cuda"), *_ONE_RANK, _NO_SHARED_STREAM),
    "cpu": (*SCOPE, *_common("cpu"), *_ONE_RANK),
}
"""The whole list of each platform, the scope first."""
