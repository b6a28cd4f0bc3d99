"""Calls that the contract has to let through, one a platform, and every corruption of one field of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from moegauge.lanes.laguna_m8.contract import CONTRACTS, TREATMENT, ContractBroken, Dispatch
from moegauge.lanes.laguna_m8.facts import Call, Environment, Feature, Platform, TensorFacts
from moegauge.lanes.laguna_m8.tensors import CANDIDATE_TENSORS, TENSORS
from moegauge.records.lane import CheckResult

_ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}
_OFF = ("remote-", "native-", "router-", "w1-n128", "fused-transaction", "auxiliary-")


Record = TypeVar("Record", Call, Environment, TensorFacts)


@dataclass(frozen=True)
class Corruption:
    """A call that differs from the matching one in one field.

    Attributes:
        label: the field and what it became.
        broken: predicate that an error has to name; None where the incumbent has to run.
    """

    label: str
    call: Call
    environment: Environment
    broken: str | None


def matching(platform: Platform) -> tuple[Call, Environment]:
    """The call that a platform's contract is about."""
    sharded = platform == "xpu"
    tensors = {}
    for place, name in enumerate(CANDIDATE_TENSORS, start=1):
        dtype, shape = TENSORS[name]
        tensors[name] = TensorFacts(
            dtype=dtype,
            shape=shape,
            contiguous=True,
            device=f"{platform}:0",
            address=place << 24,
            num_bytes=shape[0] * shape[1] * _ELEMENT_BYTES[dtype],
        )
    call = Call(
        architecture="LagunaForCausalLM",
        role="target",
        stage="verify",
        execution="eager",
        lora=False,
        num_tokens=8,
        hidden_size=3072,
        top_k=10,
        verifier_marker=True,
        num_experts=256,
        num_local_experts=64 if sharded else 256,
        num_shared_experts=1,
        tp_size=4 if sharded else 1,
        ep_size=4 if sharded else 1,
        dp_size=1,
        pp_size=1,
        routed_scale=2.5,
        routed_output_transform=False,
        routed_output_reduced=False,
        sequence_parallel=False,
        dual_batch_overlap=False,
        final_all_reduce_skipped=False,
        shared_stream=False,
        rows_weighted=False,
        route_map=False,
        shared_reads=0,
        rows=tensors["rows"],
        weights=tensors["weights"],
        shared=tensors["shared"],
        out=tensors["out"],
    )
    environment = Environment(
        platform=platform,
        selectors={CONTRACTS[platform].selector: "1"},
        features={one: not one.value.startswith(_OFF) for one in Feature} if sharded else {},
        aot_compile=False,
        kernel_present=True,
        combined_output=True,
    )
    return call, environment


_INCUMBENT: tuple[tuple[str, Any], ...] = (
    ("architecture", "LlamaForCausalLM"),
    ("role", "draft"),
    ("stage", "prefill"),
    ("execution", "graph"),
    ("execution", "compiled"),
    ("lora", True),
    *(("num_tokens", tokens) for tokens in (0, 1, 2, 3, 4, 5, 6, 7, 9, 16)),
    ("hidden_size", 2048),
    ("top_k", 8),
)
"""Changes that make it another call."""

_BROKEN: tuple[tuple[str, Any, str], ...] = (
    ("num_shared_experts", 0, "shared-expert"),
    ("num_shared_experts", None, "shared-expert"),
    ("dp_size", 2, "dp"),
    ("pp_size", 2, "pp"),
    ("routed_scale", 2.4999999, "scale"),
    ("routed_scale", 1.0, "scale"),
    ("routed_scale", None, "scale"),
    ("routed_output_transform", True, "no-transform"),
    ("routed_output_reduced", True, "not-reduced"),
    ("sequence_parallel", True, "no-sequence-parallel"),
    ("dual_batch_overlap", True, "no-dbo"),
    ("dual_batch_overlap", None, "no-dbo"),
    ("final_all_reduce_skipped", True, "all-reduce"),
    ("rows_weighted", True, "unweighted-rows"),
    ("route_map", True, "canonical-rows"),
    ("shared_reads", 1, "shared-unread"),
    ("shared_reads", None, "shared-unread"),
)
"""Changes that break a predicate of every platform."""

_BROKEN_ON: dict[Platform, tuple[tuple[str, Any, str], ...]] = {
    "xpu": (
        ("stage", "decode", "verify"),
        ("verifier_marker", False, "verifier-marker"),
        ("verifier_marker", None, "verifier-marker"),
        ("num_experts", 128, "experts"),
        ("num_local_experts", 256, "local-experts"),
        ("tp_size", 1, "tp"),
        ("ep_size", 1, "ep"),
    ),
    "cuda": (
        ("shared_stream", True, "no-shared-stream"),
        ("shared_stream", None, "no-shared-stream"),
        ("num_experts", 128, "all-local"),
        ("num_local_experts", 64, "all-local"),
        ("tp_size", 4, "tp"),
        ("ep_size", 4, "ep"),
    ),
    "cpu": (
        ("num_experts", None, "all-local"),
        ("num_local_experts", 64, "all-local"),
        ("tp_size", 4, "tp"),
        ("ep_size", 4, "ep"),
    ),
}


def _changed(record: Record, field: str, value: Any) -> Record:
    """The record with another value in one field."""
    given: dict[str, Any] = {field: value}
    return replace(record, **given)


def corruptions(platform: Platform) -> Iterator[Corruption]:
    """Every corruption of the matching call of a platform."""
    call, around = matching(platform)
    for field, value in _INCUMBENT:
        yield Corruption(f"{field}={value}", _changed(call, field, value), around, None)
    for field, value, broken in (*_BROKEN, *_BROKEN_ON[platform]):
        yield Corruption(f"{field}={value}", _changed(call, field, value), around, broken)
    yield from _of_tensors(call, around)
    yield from _of_environment(platform, call, around)


def _of_tensors(call: Call, around: Environment) -> Iterator[Corruption]:
    for name in CANDIDATE_TENSORS:
        tensor: TensorFacts = getattr(call, name)
        changes: tuple[tuple[str, Any, str], ...] = (
            ("dtype", "float16", f"{name}-dtype"),
            ("shape", (tensor.shape[0], tensor.shape[1] - 1), f"{name}-shape"),
            ("shape", (1, *tensor.shape), f"{name}-shape"),
            ("contiguous", False, f"{name}-contiguous"),
            ("address", tensor.address + 2, f"{name}-aligned"),
            ("address", 0, f"{name}-aligned"),
            ("device", "meta", "one-device"),
        )
        for field, value, broken in changes:
            changed = _changed(tensor, field, value)
            yield Corruption(f"{name}.{field}={value}", _changed(call, name, changed), around, broken)
        yield Corruption(f"{name}=None", _changed(call, name, None), around, f"{name}-dtype")
        if name != "out" and call.out is not None:
            inside = replace(call.out, address=tensor.address + tensor.num_bytes - 16)
            yield Corruption(f"out over {name}", replace(call, out=inside), around, "no-overlap")


def _of_environment(platform: Platform, call: Call, around: Environment) -> Iterator[Corruption]:
    selector = CONTRACTS[platform].selector
    for value in ("0", "", "true", " 1", "01"):
        yield Corruption(f"selector={value!r}", call, replace(around, selectors={selector: value}), None)
    yield Corruption("no selector", call, replace(around, selectors={}), None)
    changes: tuple[tuple[str, Any, str], ...] = (
        ("aot_compile", True, "no-aot"),
        ("aot_compile", None, "no-aot"),
        ("kernel_present", False, "kernel"),
        ("combined_output", False, "combined-output"),
        *(("platform", other, "platform") for other in CONTRACTS if other != platform),
    )
    for field, value, broken in changes:
        yield Corruption(f"{field}={value}", call, _changed(around, field, value), broken)
    for feature, on in around.features.items():
        turned = replace(around, features={**around.features, feature: not on})
        yield Corruption(f"{feature}={not on}", call, turned, feature.value)
        unknown = {one: value for one, value in around.features.items() if one != feature}
        yield Corruption(f"{feature} unknown", call, replace(around, features=unknown), feature.value)


def outcome(platform: Platform, call: Call, environment: Environment) -> Dispatch | str:
    """What a platform's contract says: the arm, or the name of the predicate that broke."""
    try:
        return CONTRACTS[platform].dispatch(call, environment)
    except ContractBroken as broken:
        return broken.predicate


def check_contract(platform: Platform) -> CheckResult:
    """The matching call takes the treatment, no corruption of it does, and every predicate is broken by one of them."""
    found = [(one, outcome(platform, one.call, one.environment)) for one in corruptions(platform)]
    wrong = [one.label for one, got in found if got != (one.broken or Dispatch.INCUMBENT)]
    if outcome(platform, *matching(platform)) != TREATMENT:
        wrong.append("the matching call")
    predicates = CONTRACTS[platform].predicates
    seen = {one.broken for one, _ in found}
    untested = [one.name for one in predicates if not one.scope and one.name not in seen]
    untested += [
        one.name for one in predicates if one.scope and all(one.holds(case.call, case.environment) for case, _ in found)
    ]
    problems = [*(f"{label}: another outcome" for label in wrong), *(f"{name}: broken by nothing" for name in untested)]
    sentence = "; ".join(problems) or "the matching call alone takes the treatment; every predicate is broken by a case"
    return CheckResult(name=f"contract-{platform}", passed=not problems, num_cases=1 + len(found), sentence=sentence)
