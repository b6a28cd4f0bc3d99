"""The registry: every kind closes on its own kernels, no two kinds can be taken for each other, nothing is guessed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from cases.literal_bundle import moegauge, write_bundle
from moegauge import errors
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.jobs.attributed_trace import AttributedTrace, attributed_trace
from moegauge.kernels.attribution import Plan
from moegauge.kernels.classification import OpClass
from moegauge.kernels.detection import fitting_kinds, kind_in
from moegauge.kernels.registry import KINDS, KernelKind, Variant
from moegauge.kernels.scopes import SERVING_TAGS
from moegauge.kernels.trace import Trace
from simulator import BASE_NS, NAMES, TraceBuilder

KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
EVERY_NAME = sorted({name for kind in KINDS.values() for role in kind.roles for name in role.names})
CONFIRMED = ("vllm_triton_moe", "vllm_cpu_moe")

# Rows, top_k, experts and expert map under which each variant of vLLM's alignment runs; read from its conditions.
SHAPES = {
    "naive_block_assignment": (1, 2, 64, False),
    "small_batch_expert_map": (100, 2, 64, True),
    "small_batch": (100, 2, 64, False),
    "align_sort_expert_map": (1000, 2, 128, True),
    "align_sort": (1000, 2, 128, False),
}


def names_of(kind: KernelKind, variant: Variant) -> list[str]:
    """The first name of each kernel of an invocation, in order."""
    first = {role.name: role.names[0] for role in kind.roles}
    return [first[name] for name in (*variant.prefix, *kind.core)]


def recorded(layers: list[list[str]]) -> Trace:
    """An annotated iteration 0 of so many layers, their kernels one behind the other."""
    trace, now = TraceBuilder(), BASE_NS
    for names in layers:
        for name in names:
            trace.kernel(name, now, 1_000)
            now += 1_500
    trace.device_scope("iteration I0", BASE_NS, now - BASE_NS)
    return parse_kineto(trace.data(), source="trace.json")


def attributed(kind: KernelKind, trace: Trace, variant: Variant, num_layers: int) -> AttributedTrace:
    rows, top_k, experts, mapped = SHAPES.get(variant.name, (100, 2, 64, False))
    plan = Plan(
        iteration=np.zeros(num_layers, dtype=np.int64),
        layer=np.arange(num_layers, dtype=np.int64),
        executed_rows=np.full(num_layers, rows, dtype=np.int64),
        top_k=top_k,
        num_experts=experts,
        has_expert_map=mapped,
    )
    return attributed_trace(trace, kind, plan, SERVING_TAGS)


def test_every_backend_of_the_known_ones_has_a_kind() -> None:
    assert list(KINDS) == [
        "vllm_triton_moe",
        "vllm_triton_moe_fp8",
        "vllm_triton_moe_fp8_block",
        "vllm_triton_moe_int8",
        "vllm_triton_moe_wna16",
        "vllm_triton_moe_batched",
        "triton_kernels_moe",
        "vllm_cutlass_moe_fp8",
        "vllm_cutlass_moe_w4a8",
        "vllm_cutlass_moe_nvfp4",
        "vllm_deep_gemm_moe_fp8",
        "deep_gemm_mega_moe",
        "flashinfer_trtllm_moe_fp8_block",
        "flashinfer_trtllm_moe",
        "flashinfer_cutlass_moe",
        "flashinfer_cutedsl_moe",
        "vllm_marlin_moe",
        "vllm_wna16_cuda_moe",
        "aiter_moe_1stage",
        "aiter_moe_2stage",
        "vllm_xpu_moe",
        "vllm_cpu_moe",
    ]


def test_only_what_real_recordings_have_shown_is_called_confirmed() -> None:
    assert tuple(name for name, kind in KINDS.items() if kind.confirmed) == CONFIRMED
    loose = {kind.name for kind in KINDS.values() if any(variant.confirmed_by_trace for variant in kind.variants)}
    assert loose == set(CONFIRMED)


@KIND
def test_a_kind_says_where_its_names_come_from_and_each_pattern_finds_its_own_names(kind: KernelKind) -> None:
    assert len(kind.source) > 20
    for role in kind.roles:
        assert role.names, role.name
        assert [name for name in role.names if not role.pattern.search(name)] == []


@KIND
def test_the_stages_of_the_kernels_are_those_of_the_boundary(kind: KernelKind) -> None:
    used = {stage for role in kind.roles for stage in (role.stage, *role.covers)}
    assert used == set(kind.boundary)


@KIND
def test_communication_is_in_no_boundary_and_in_no_role(kind: KernelKind) -> None:
    moving = [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int)",
        "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<__nv_bfloat16>(int)",
    ]
    if kind.name != "deep_gemm_mega_moe":  # one kernel that communicates too, and says so
        assert not {"dispatch", "combine"} & set(kind.boundary)
    for name in moving:
        assert not any(role.pattern.search(name) for role in kind.roles), name
        if kind.host_operation is None:
            assert any(pattern.search(name) for pattern in kind.outside.values()), name


@KIND
def test_every_variant_closes_with_exactly_its_kernels(kind: KernelKind) -> None:
    for variant in kind.variants:
        names = names_of(kind, variant)
        found = attributed(kind, recorded([names, names, names]), variant, 3)
        assert found.attribution.unavailable == {}, variant.name
        assert found.rows["num_kernels"].to_list() == [len(names)] * 3
        assert found.rows["busy_ns"].to_list() == [1_000 * len(names)] * 3


@KIND
def test_a_missing_kernel_leaves_the_iteration_open(kind: KernelKind) -> None:
    variant = kind.variants[-1]
    names = names_of(kind, variant)
    found = attributed(kind, recorded([names, names[:-1], names]), variant, 3)
    assert list(found.attribution.unavailable) == [0]


@KIND
def test_one_name_for_two_gemms_is_told_apart_by_order(kind: KernelKind) -> None:
    twice = {name for name in kind.core if kind.core.count(name) > 1}
    assert set(kind.told_apart) == twice
    if "gemm" in twice:
        assert kind.told_apart["gemm"] == ("gate and up", "down")


def overlaps(one: KernelKind, other: KernelKind) -> list[tuple[str, int]]:
    """Where the core of ``other`` could be read inside an invocation of ``one``: (variant, place).

    Some name stands at every place that the patterns of both kinds find; the names are those of the whole registry.
    Two invocations stand behind one another, so that a core across their border is seen too.
    """
    mine = {role.name: role.pattern for role in one.roles}
    theirs = {role.name: role.pattern for role in other.roles}
    both = {
        (left, right): any(mine[left].search(name) and theirs[right].search(name) for name in EVERY_NAME)
        for left, right in itertools.product(mine, theirs)
    }
    found = []
    for variant in one.variants:
        sequence = (*variant.prefix, *one.core) * 2
        for place in range(len(sequence) - len(other.core) + 1):
            window = sequence[place : place + len(other.core)]
            if all(both[pair] for pair in zip(window, other.core, strict=True)):
                found.append((variant.name, place))
    return found


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(KINDS.values(), 2)), ids=lambda kind: kind.name)
def test_no_kind_is_read_in_the_kernels_of_another(one: KernelKind, other: KernelKind) -> None:
    assert overlaps(one, other) == []


def test_two_kinds_that_could_be_taken_for_each_other_would_be_seen() -> None:
    kind = KINDS["vllm_triton_moe"]
    assert ("align_sort", 2) in overlaps(kind, kind)


@KIND
def test_a_trace_of_a_kind_is_told_from_all_others_and_taken_unnamed_only_where_confirmed(kind: KernelKind) -> None:
    for variant in kind.variants:
        trace = recorded([names_of(kind, variant)] * 2)
        assert [found.name for found in fitting_kinds(KINDS.values(), [trace])] == [kind.name]
        assert kind_in(kind.name, [trace]) is kind
        if kind.confirmed:
            assert kind_in(None, [trace]) is kind
        else:
            with pytest.raises(errors.Incomplete, match=f"kernels of {kind.name}, a kind that no real trace has"):
                kind_in(None, [trace])


def test_a_capture_of_an_unconfirmed_kind_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = KINDS["vllm_marlin_moe"]
    trace, now = TraceBuilder(), BASE_NS
    for name in names_of(kind, kind.variants[-1]):
        trace.kernel(name, now, 1_000)
        now += 1_500
    trace.device_scope("iteration I0", BASE_NS, now - BASE_NS)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [[3, 7]])]],
        traces=[trace],
        num_experts=128,
        numeric_format="int4_w4a16",
    )
    given = ("capture", "import", "bundle", bundle, "--json", "--out")
    refused = moegauge(capsys, *given, tmp_path / "refused")
    assert (refused.status, refused.json["error"]["code"]) == (2, "INCOMPLETE")
    assert "it is taken only by --kind" in refused.json["error"]["found"]
    taken = moegauge(capsys, *given, tmp_path / "capture", "--kind", kind.name).json["capture"]
    assert taken["kernel"]["numeric_format"] == "int4_w4a16"
    assert taken["coverage"]["busy_ns"] == 6_000
    assert [(one["code"], one["num"]) for one in taken["findings"]] == [("KIND_NOT_CONFIRMED", 1)]


def test_a_mixture_that_names_and_sequences_do_not_decide_is_refused() -> None:
    names = [names_of(KINDS[name], KINDS[name].variants[-1]) for name in ("vllm_triton_moe", "vllm_triton_moe_fp8")]
    with pytest.raises(errors.Incomplete, match=r"several: \['vllm_triton_moe', 'vllm_triton_moe_fp8'\]"):
        kind_in(None, [recorded(names)])


@pytest.mark.parametrize(
    "name",
    [
        "fused_moe_nvfp4_emulation_kernel",
        "_mxfp8_grouped_gemm_kernel",
        "void some_new_expert_gemm<float>",
        "bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x256",
        "_p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x64x1",
    ],
)
def test_a_kernel_that_looks_like_moe_work_and_is_in_no_role_is_reported_as_unknown(name: str) -> None:
    kind = KINDS["vllm_triton_moe"]
    variant = kind.variants[-1]
    found = attributed(kind, recorded([names_of(kind, variant), [name]]), variant, 1)
    assert found.attribution.op_class.tolist()[-1] == OpClass.UNKNOWN


def test_a_dense_gemm_of_deep_gemm_is_no_expert() -> None:
    gemm = next(role for role in KINDS["vllm_deep_gemm_moe_fp8"].roles if role.name == "gemm")
    dense = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, (deep_gemm::GemmType){}>"
    assert [number for number in range(7) if gemm.pattern.search(dense.format(number))] == [1, 2, 5]


def test_a_router_kernel_is_a_known_stage_and_no_subject() -> None:
    kind = KINDS["vllm_triton_moe_fp8"]
    variant = kind.variants[-1]
    found = attributed(kind, recorded([[NAMES["router"], *names_of(kind, variant)]]), variant, 1)
    assert found.attribution.op_class.tolist()[0] == OpClass.OUTSIDE_BOUNDARY
