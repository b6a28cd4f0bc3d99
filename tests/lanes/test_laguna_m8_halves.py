"""The lane's two halves and its registrations: the host arithmetic in torch, the guards, what is registered."""

import tomllib
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from moegauge import errors
from moegauge.adapters.lanes.laguna_m8 import device, host
from moegauge.gate.ports import RoundingLane, Words
from moegauge.gate.words import first_mismatch
from moegauge.lanes.laguna_m8 import registrations
from moegauge.lanes.laguna_m8.contract import CONTRACTS, ContractBroken
from moegauge.lanes.laguna_m8.corpus import FAMILIES, corpus
from moegauge.lanes.laguna_m8.facts import Platform
from moegauge.lanes.laguna_m8.host_halves import CPU, CUDA, XPU
from moegauge.numerics import bf16
from moegauge.numerics.words import WordClass, word_class
from moegauge.records.observation import ArmName
from moegauge.records.registration import Registration

ARMS: tuple[ArmName, ArmName] = ("incumbent", "candidate")
FIXTURES = [name for name in CPU.fixtures("") if not name.startswith(("random/", "routed-finite/"))]


def registration(platform: str) -> Registration:
    name = f"laguna_m8_gather_finalize_{platform}.toml"
    return msgspec.convert(tomllib.loads(files(registrations).joinpath(name).read_text()), Registration)


def tensor(dtype: str, words: Words) -> torch.Tensor:
    signed = np.array(words).view(f"i{words.dtype.itemsize}")
    return torch.from_numpy(signed).view(getattr(torch, dtype))


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("fixture", [*FIXTURES, "random/random-cancelling-003", "random/random-wide-002"])
def test_arms_in_torch_give_the_oracles_words(fixture: str, arm: ArmName) -> None:
    arms = device.CPU.arms
    inputs = {name: tensor(arms.input_dtypes[name], one) for name, one in CPU.inputs("", fixture).items()}
    buffers = {
        name: torch.full(shape, 7.0, dtype=getattr(torch, dtype))
        for name, (dtype, shape) in arms.buffers("", arm).items()
    }
    arms.call("", arm, inputs, buffers)
    found = {
        name: one.view(torch.int16).numpy().view(np.uint16)
        for name, one in arms.boundaries("", arm, inputs, buffers).items()
    }
    expected = CPU.oracle("", fixture)
    assert set(found) == set(expected) == {"routed", "scaled", "final", "diagnostic", "rank_sum"}
    assert {name: int((found[name] != expected[name]).sum()) for name in found} == dict.fromkeys(found, 0)


@pytest.mark.parametrize("fixture", ["tie-final/tie-final-chunk0", "nan/nan-words", "random/random-wide-002"])
def test_the_words_said_to_be_rounded_round_to_the_oracles(fixture: str) -> None:
    assert isinstance(CPU, RoundingLane)
    before, expected = CPU.before_rounding("", fixture), CPU.oracle("", fixture)
    assert set(before) == set(expected)
    for name, words in before.items():
        assert np.array_equal(bf16.rounded(words), expected[name]), name


def test_a_word_rounded_the_other_way_at_a_tie_is_called_a_tie() -> None:
    fixture = "tie-final/tie-final-chunk0"
    before, right = CPU.before_rounding("", fixture)["final"], CPU.oracle("", fixture)["final"]
    low = (before >> 16).astype(np.uint16)
    wrong = np.where(bf16.is_tie(before) & (word_class(low) == WordClass.NORMAL), low + (right == low), right)
    found = first_mismatch("bfloat16", right, wrong.astype(np.uint16), before=before)
    assert found is not None
    assert found.num_by_class == {"tie": found.num_words}


def test_a_slot_of_minus_one_adds_nothing_on_the_host() -> None:
    rows = torch.full((80, 3072), float("inf"), dtype=torch.bfloat16)
    rows[7] = 3.0
    weights = torch.zeros(8, 10)
    weights[:, 4] = 2.0
    route_map = torch.full((8, 10), -1, dtype=torch.int32)
    route_map[:, 4] = 7
    routed = torch.empty(8, 3072, dtype=torch.bfloat16)
    host.moe_gather(routed, rows, weights, route_map)
    assert routed.unique().tolist() == [6.0]


def test_the_host_refuses_a_tensor_before_it_writes() -> None:
    out = torch.zeros(8, 3072, dtype=torch.bfloat16)
    with pytest.raises(ContractBroken) as broken:
        host.scale_add(out, out.float(), torch.zeros_like(out))
    assert broken.value.predicate == "shared-dtype"
    assert not out.any()


@pytest.mark.parametrize(("platform", "lane"), [("cuda", CUDA), ("xpu", XPU)])
def test_what_is_registered_is_what_the_code_checks(platform: Platform, lane: Any) -> None:
    found = registration(platform)
    contract = CONTRACTS[platform]
    assert found.contract.platform == platform
    assert found.contract.selector == f"{contract.selector}=1"
    assert found.contract.predicates == tuple(f"{one.name}: {one.sentence}" for one in contract.predicates)
    (subject,) = found.subjects
    assert {one.name for one in subject.boundaries} == set(lane.oracle("", "sum-fma/sum-fma"))
    counted = {family: sum(spec.family == family for spec in corpus()) for family in FAMILIES}
    assert {one.name: one.num_fixtures for one in subject.corpus} == counted
    assert {one.mutant for one in subject.kills} == {one.name for one in lane.mutants("")}
    assert set(subject.exactness.repeat_fixtures) <= set(lane.fixtures(""))
    assert (subject.incumbent.launches_per_cycle, subject.candidate.launches_per_cycle) == (94, 47)
    assert set(found.stage0.required_checks) == {"manifest", f"contract-{platform}"}


def test_the_protocol_is_the_originals_and_the_bounds_are_each_platforms_own() -> None:
    bounds = {}
    for platform in ("cuda", "xpu"):
        timing = registration(platform).subjects[0].timing
        assert timing is not None
        assert (timing.warmup_cycles, timing.num_blocks, timing.cycles_per_arm, timing.min_wins) == (20, 31, 64, 28)
        bounds[platform] = (timing.min_median_saving_ns, timing.launch_mode)
    assert bounds == {"cuda": (30_000, "graph"), "xpu": (150_000, "eager")}
    assert registration("xpu").devices.names == ("b70-0", "b70-1", "b70-2", "b70-3")
    assert any("never run" in one for one in registration("xpu").disclosures)


def test_the_xpu_device_half_says_that_it_was_never_tried() -> None:
    with pytest.raises(errors.MisuseError) as refused:
        device.XPU.open(registration("xpu"), "b70-0")
    assert "none for Intel XPU" in str(refused.value)


def test_the_guards_are_part_of_stage_0() -> None:
    # The manifest of three fixtures is not the registered one; the contract does not depend on the corpus.
    found = {one.name: one.passed for one in type(CUDA)("cuda", corpus()[:3]).checks()}
    assert found == {"manifest": False, "contract-cuda": True}
