"""Faults that real projects reported, run through the runner and judged: literal words in, status and sentence out.

-0 and NaN: pytorch/pytorch#188680, #137337. Contraction: pytorch/pytorch#163073. Flush to zero: pytorch/pytorch#185878.
Moved rounding: NVIDIA/TensorRT-LLM#16778, pytorch/pytorch#181918. Run-to-run: flashinfer-ai/flashinfer#5221. Wrong
reference: vllm-project/vllm-xpu-kernels#473, intel/intel-xpu-backend-for-triton#7458. Stale output:
gpu-mode/reference-kernels#150, ScalingIntelligence/KernelBench#82. Skipped slot: vllm-project/vllm#46408.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from lane_builder import LaneBuilder, registration
from moegauge.evidence.digest import arrays_digest
from moegauge.gate.ports import Inputs, Outputs, Words
from moegauge.gate.running import Draft, LayoutBreach, phase_a
from moegauge.gate.verdict import Judged
from moegauge.gate.words import values_equal
from moegauge.numerics.words import UInt32Array
from moegauge.records.lane import CheckResult, FixtureDigests
from moegauge.records.observation import ArmName, ArmSample, BindingObservation, BoundaryWords, Unwritten
from moegauge.records.registration import Registration

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"
Arm = Callable[[int, int], int]
"""Word of the last element from the fixture's number and the number of the call, over both arms."""


def words(last: int) -> Words:
    return np.array([[0x3F80, last]], dtype=np.uint16)


@dataclass
class LiteralLane:
    """Two fixtures whose inputs are their numbers; the oracle's last word by fixture."""

    oracle_words: tuple[int, int]

    def checks(self) -> list[CheckResult]:
        return []

    def fixtures(self, subject: str) -> tuple[str, ...]:
        return ("one/0", "one/1")

    def inputs(self, subject: str, fixture: str) -> Inputs:
        return {"x": np.array([int(fixture[-1])], dtype=np.uint16)}

    def oracle(self, subject: str, fixture: str) -> dict[str, Words]:
        return {"final": words(self.oracle_words[int(fixture[-1])])}


@dataclass
class LiteralDevice:
    """Both arms as functions; ``zeroes``: the candidate zeroes its input."""

    incumbent: Arm
    candidate: Arm
    zeroes: bool = False
    calls: dict[str, int] = field(default_factory=lambda: {"incumbent": 0, "candidate": 0})

    def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
        self.calls[arm] += 1
        run = self.candidate if arm == "candidate" else self.incumbent
        after = {"x": np.zeros(1, dtype=np.uint16)} if self.zeroes and arm == "candidate" else inputs
        return Outputs({"final": words(run(int(fixture[-1]), self.calls[arm]))}, inputs, after)

    def values_equal(self, dtype: str, left: Words, right: Words) -> bool:
        return values_equal(dtype, left, right)

    def place(self, subject: str, fixtures: object) -> None:
        pass

    def run_arm(self, subject: str, arm: ArmName, *, num_cycles: int, first_fixture: int) -> ArmSample:
        each, launches = (1_000_000, 94) if arm == "incumbent" else (500_000, 47)
        return ArmSample(elapsed_ns=each * num_cycles, num_launches=launches * num_cycles, throttle="none")

    def close(self) -> None:
        pass


def literal_registration(against: str) -> Registration:
    return registration(
        subjects__0__boundaries=[{"name": "final", "dtype": "bfloat16", "shape": [1, 2]}],
        subjects__0__corpus=[{"name": "one", "num_fixtures": 2}],
        subjects__0__exactness={
            "num_repeats": 256,
            "repeat_fixtures": ["one/1"],
            "poison_words": [0x7FC1, 0xA5A5],
            "incumbent_vs_oracle": against,
        },
    )


def judged(lane: LiteralLane, device: LiteralDevice, *, against: str = "equal") -> tuple[Judged, list[Draft]]:
    """Run phase a in memory and judge it."""

    class Built(LaneBuilder):
        def fixtures(self) -> dict[str, dict[str, FixtureDigests]]:
            return {
                "scale-add": {
                    name: FixtureDigests(
                        inputs=arrays_digest(lane.inputs("scale-add", name)),
                        oracle={"final": arrays_digest(lane.oracle("scale-add", name))},
                    )
                    for name in lane.fixtures("scale-add")
                }
            }

    built = Built(reg=literal_registration(against))
    built.to_authorized()
    drafts = list(phase_a(built.reg, lane, device))
    bound = (BindingObservation, {"surroundings": built.surroundings("card0")})
    return built.gate.judge(built.run([bound, *((one.kind, one.fields) for one in drafts)])), drafts


def outcome(lane: LiteralLane, device: LiteralDevice, *, against: str = "equal") -> tuple[str, str]:
    found, _ = judged(lane, device, against=against)
    return str(found.status), found.devices[0].reasons[0].sentence


def always(first: int, second: int | None = None) -> Arm:
    return lambda fixture, _: first if fixture == 0 or second is None else second


def boundary(drafts: list[Draft]) -> BoundaryWords:
    found: BoundaryWords = drafts[0].fields["fixtures"][0].boundaries["final"]
    return found


@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        (0x0000, 0x8000, "signed zero"),  # a sum that starts at slot 0 instead of +0
        (0x0000, 0xB1FF, "other"),  # multiply and add contracted
        (0x0002, 0x0000, "subnormal"),  # 2.5 units, tie to even; flushed
        (0x0001, 0x0000, "subnormal"),
        (0x4384, 0x4380, "other"),  # 264: one rounding; 256: a rounding for each term
        (0x0000, 0x3C20, "other"),  # both BF16 roundings left out
        (0x7FC1, 0x7FC0, "NaN payload"),
        (0x4000, 0x7FC1, "NaN"),  # a skipped slot that was never written leaks its poison
    ],
)
def test_one_wrong_word_fails_with_its_index_and_both_words(right: int, wrong: int, kind: str) -> None:
    status, sentence = outcome(LiteralLane((right, right)), LiteralDevice(always(right), always(wrong, right)))
    assert status == "COMPONENT_FAILED"
    assert (
        f"one/0, final: 1 words differ, first at [0, 1]: incumbent 0x{right:04X}, candidate 0x{wrong:04X} ({kind})"
        in sentence
    )


def test_a_mismatch_at_a_tie_is_called_one_where_the_lane_says_what_was_rounded() -> None:
    class Rounding(LiteralLane):
        def before_rounding(self, subject: str, fixture: str) -> dict[str, UInt32Array]:
            return {"final": np.array([[0x3F800000, 0x3F808000]], dtype=np.uint32)}

    device = LiteralDevice(always(0x3F80), always(0x3F81, 0x3F80))
    sentence = "one/0, final: 1 words differ, first at [0, 1]: incumbent 0x3F80, candidate 0x3F81"
    assert f"{sentence} (tie)." in outcome(Rounding((0x3F80, 0x3F80)), device)[1]
    assert f"{sentence} (other)." in outcome(LiteralLane((0x3F80, 0x3F80)), device)[1]


def test_words_of_several_classes_are_counted_by_class() -> None:
    class Both(LiteralDevice):
        def outputs(self, subject: str, arm: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
            out = super().outputs(subject, arm, fixture, inputs, poison)
            found = np.array([[0x8000, 0x0001]], dtype=np.uint16) if arm == "candidate" else out.words["final"]
            return Outputs({"final": found}, out.inputs_before, out.inputs_after)

    _, sentence = outcome(LiteralLane((0, 0)), Both(always(0), always(0)))
    assert (
        "2 words differ, first at [0, 0]: incumbent 0x3F80, candidate 0x8000 (other; 1 subnormal, 1 other)." in sentence
    )


@pytest.mark.parametrize(("arm", "status"), [("candidate", "COMPONENT_FAILED"), ("incumbent", "NOT_EVALUABLE")])
def test_words_that_nobody_wrote_are_told_with_the_first_index(arm: str, status: str) -> None:
    class Leaves(LiteralDevice):
        def outputs(self, subject: str, called: ArmName, fixture: str, inputs: Inputs, poison: int) -> Outputs:
            out = super().outputs(subject, called, fixture, inputs, poison)
            if called == arm:
                out.words["final"][0, 1] = poison
            return out

    found, drafts = judged(LiteralLane((0x4000, 0x4000)), Leaves(always(0x4000), always(0x4000)))
    assert str(found.status) == status
    assert f"one/0, final: the {arm} left 1 words unwritten, first at [0, 1]." in found.devices[0].reasons[0].sentence
    assert boundary(drafts).unwritten == {arm: Unwritten(num_words=1, first_index=(0, 1))}


def test_arms_that_write_every_word_leave_none_and_that_is_recorded() -> None:
    _, drafts = judged(LiteralLane((0, 0)), LiteralDevice(always(0), always(0)))
    assert boundary(drafts).unwritten == {}


def test_a_flipped_sign_of_zero_fails_though_torch_equal_says_equal() -> None:
    found, drafts = judged(LiteralLane((0, 0)), LiteralDevice(always(0x0000), always(0x8000)))
    assert (str(found.status), boundary(drafts).torch_equal) == ("COMPONENT_FAILED", True)


def test_a_nan_equal_to_itself_passes_and_torch_equal_does_not_apply() -> None:
    found, drafts = judged(LiteralLane((0x7FC1, 0x7FC1)), LiteralDevice(always(0x7FC1), always(0x7FC1)))
    assert (str(found.status), boundary(drafts).torch_equal) == (PENDING, None)


def test_an_incumbent_that_contracts_too_is_the_reference_where_the_oracle_is_not_compared() -> None:
    device = LiteralDevice(always(0xB1FF), always(0xB1FF))
    assert outcome(LiteralLane((0, 0)), device, against="not_compared")[0] == PENDING


def test_an_oracle_that_the_incumbent_contradicts_stops_the_lane_and_fails_no_kernel() -> None:
    status, sentence = outcome(LiteralLane((3, 3)), LiteralDevice(always(0), always(3)))
    assert (status, "does not give the oracle's words" in sentence) == ("NOT_EVALUABLE", True)


@pytest.mark.parametrize("first_flip", [6, 100])
def test_a_candidate_that_flips_a_bit_between_identical_calls_fails(first_flip: int) -> None:
    def flips(_: int, call: int) -> int:
        return 0x4001 if call >= first_flip and call % 2 else 0x4000

    status, sentence = outcome(LiteralLane((0x4000, 0x4000)), LiteralDevice(always(0x4000), flips))
    assert status == "COMPONENT_FAILED"
    assert "256 identical calls of the candidate gave 2 different outputs" in sentence


def test_an_incumbent_that_flips_a_bit_leaves_nothing_to_judge() -> None:
    def flips(_: int, call: int) -> int:
        return 0x4001 if call == 200 else 0x4000

    status, sentence = outcome(LiteralLane((0x4000, 0x4000)), LiteralDevice(flips, always(0x4000)))
    assert status == "NOT_EVALUABLE"
    assert "256 identical calls of the incumbent gave 2 different outputs" in sentence


def test_a_candidate_that_returns_its_first_output_after_timing_fails_by_the_fixture_that_changed() -> None:
    def stale(fixture: int, call: int) -> int:
        return (0x4000, 0x4080)[fixture if call <= 4 + 256 else 0]

    status, sentence = outcome(LiteralLane((0x4000, 0x4080)), LiteralDevice(always(0x4000, 0x4080), stale))
    assert status == "COMPONENT_FAILED"
    assert "post, one/1, final: 1 words differ" in sentence


def test_a_candidate_that_zeroes_an_input_row_fails() -> None:
    device = LiteralDevice(always(0x4000), always(0x4000), zeroes=True)
    status, sentence = outcome(LiteralLane((0x4000, 0x4000)), device)
    assert (status, "one/1: an arm changed its inputs" in sentence) == ("COMPONENT_FAILED", True)


def test_nothing_is_timed_after_a_mismatch() -> None:
    _, drafts = judged(LiteralLane((0, 0)), LiteralDevice(always(0), always(1)))
    assert drafts[-1].fields == {"stopped_before": "timing"}
    assert not any(one.kind.kind == "gate-block" for one in drafts)


def test_an_output_of_another_type_is_a_breach_of_layout() -> None:
    class Wide(LiteralDevice):
        def outputs(self, *given: object) -> Outputs:
            out = super().outputs(*given)  # type: ignore[arg-type]
            return Outputs({"final": out.words["final"].astype(np.uint32)}, out.inputs_before, out.inputs_after)

    with pytest.raises(LayoutBreach, match=r"uint32 \[1, 2\], not uint16 \[1, 2\]"):
        judged(LiteralLane((0, 0)), Wide(always(0), always(0)))


def test_an_observation_without_a_comparison_cannot_be_built() -> None:
    with pytest.raises(TypeError, match="mismatch"):
        BoundaryWords(incumbent=("a", "a"), candidate=("a", "a"), torch_equal=True, contains_nan=False)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"incumbent": ["a", "a"]}, BoundaryWords)
