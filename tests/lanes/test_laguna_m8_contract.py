"""The contract of laguna_m8: one call takes the treatment, and no call that differs from it in one field does."""

from dataclasses import fields, replace

import pytest

from moegauge.lanes.laguna_m8 import contract_cases
from moegauge.lanes.laguna_m8.contract import CONTRACTS, INCUMBENT, TREATMENT, ContractBroken, check_tensors, select
from moegauge.lanes.laguna_m8.contract_cases import Corruption, check_contract, corruptions, matching, outcome
from moegauge.lanes.laguna_m8.facts import Call, Environment, Feature, Platform

PLATFORMS: tuple[Platform, ...] = ("xpu", "cuda", "cpu")
CASES = [(platform, one) for platform in PLATFORMS for one in corruptions(platform)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_matching_call_takes_the_treatment(platform: Platform) -> None:
    assert select(*matching(platform)) is TREATMENT


@pytest.mark.parametrize(("platform", "case"), CASES, ids=[f"{platform}-{one.label}" for platform, one in CASES])
def test_one_corrupted_field_is_the_incumbent_or_an_error_that_names_it(platform: Platform, case: Corruption) -> None:
    assert outcome(platform, case.call, case.environment) == (case.broken or INCUMBENT)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_field_of_a_call_is_corrupted_somewhere(platform: Platform) -> None:
    call, around = matching(platform)
    cases = list(corruptions(platform))
    same = {
        one.name for one in fields(Call) if all(getattr(c.call, one.name) == getattr(call, one.name) for c in cases)
    }
    assert (
        same
        == {"xpu": {"shared_stream"}, "cuda": {"verifier_marker"}, "cpu": {"verifier_marker", "shared_stream"}}[
            platform
        ]
    )
    unchanged = {
        one.name
        for one in fields(Environment)
        if all(getattr(c.environment, one.name) == getattr(around, one.name) for c in cases)
    }
    assert unchanged == (set() if platform == "xpu" else {"features"})


@pytest.mark.parametrize("platform", PLATFORMS)
def test_stage_0_holds_all_of_it(platform: Platform) -> None:
    result = check_contract(platform)
    assert (result.passed, result.name) == (True, f"contract-{platform}")
    assert result.num_cases == 1 + sum(one == platform for one, _ in CASES)


def test_stage_0_fails_where_a_predicate_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = CONTRACTS["cuda"]
    weaker = replace(contract, predicates=tuple(one for one in contract.predicates if one.name != "scale"))
    monkeypatch.setitem(CONTRACTS, "cuda", weaker)
    result = check_contract("cuda")
    assert not result.passed
    assert "routed_scale=1.0" in result.sentence


def test_stage_0_fails_where_no_case_breaks_a_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_cases, "_BROKEN", contract_cases._BROKEN[2:])
    result = check_contract("cpu")
    assert not result.passed
    assert "dp" not in result.sentence
    assert "shared-expert: broken by nothing" in result.sentence


def test_the_selector_of_another_platform_is_an_error_and_no_way_back() -> None:
    call, around = matching("cuda")
    both = replace(around, selectors={one.selector: "1" for one in CONTRACTS.values()})
    with pytest.raises(ContractBroken) as broken:
        select(call, both)
    assert broken.value.predicate == "platform"


def test_the_error_says_what_was_expected_and_that_nothing_was_launched() -> None:
    call, around = matching("xpu")
    with pytest.raises(ContractBroken) as broken:
        select(replace(call, routed_scale=1.0), around)
    said = broken.value.as_dict()
    assert said["where"] == "VLLM_XPU_LAGUNA_M8_GATHER_FINALIZE=1, predicate scale"
    assert said["expected"] == "the routed scale is exactly 2.5"
    assert said["remedy"].startswith("Nothing was launched.")


def test_the_xpu_list_is_that_of_the_original_lane() -> None:
    on = [one for one in Feature if matching("xpu")[1].features[one]]
    assert on == [
        "batched-exact-moe",
        "fused-w1-route-parallel-w2",
        "w1-n64",
        "route-interleave",
        "shared-elementwise",
        "fixed-rank-reduction",
    ]
    assert len(CONTRACTS["xpu"].predicates) == 8 + 32 + 8 + 14
    assert len({one.name for one in CONTRACTS["xpu"].predicates}) == len(CONTRACTS["xpu"].predicates)


def test_cuda_and_the_host_do_not_claim_the_xpu_list() -> None:
    for platform in PLATFORMS[1:]:
        call, around = matching(platform)
        xpu = replace(around, selectors={"VLLM_XPU_LAGUNA_M8_GATHER_FINALIZE": "1"})
        with pytest.raises(ContractBroken) as broken:
            select(call, xpu)
        assert broken.value.predicate == "platform"


def test_tensors_of_a_kernel_are_held_against_each_other() -> None:
    call, _ = matching("cpu")
    assert call.rows is not None
    assert call.out is not None
    check_tensors(outputs={"out": call.out}, inputs={"rows": call.rows})
    with pytest.raises(ContractBroken) as broken:
        check_tensors(outputs={"out": call.out}, inputs={"rows": replace(call.rows, device="cpu:1")})
    assert broken.value.predicate == "one-device"
    with pytest.raises(ContractBroken) as broken:
        check_tensors(outputs={"out": call.out, "scaled": call.out}, inputs={"rows": call.rows})
    assert broken.value.predicate == "no-overlap"
