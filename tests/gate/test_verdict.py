"""A phase judged from what was observed: each reason, its status and its sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lane_builder import LaneBuilder, block, registration
from moegauge.gate.verdict import STATUS_OF, Judged, RunEvidence
from moegauge.records.observation import (
    BlockObservation,
    BoundaryWords,
    EndObservation,
    ExactnessObservation,
    FailureObservation,
    FixtureObservation,
    Mismatch,
    Observation,
    RepeatObservation,
    Unwritten,
)
from moegauge.records.schema import canonical_bytes
from moegauge.records.verdict import TERMINAL, LaneStatus

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"
Drafts = list[tuple[type[Observation], dict[str, Any]]]


@pytest.fixture
def lane() -> LaneBuilder:
    return LaneBuilder().to_authorized()


def sentences(judged: Judged) -> str:
    return " ".join(why.sentence for device in judged.devices for why in device.reasons)


def codes(judged: Judged) -> list[str]:
    return [why.code for device in judged.devices for why in device.reasons]


def with_fixture(
    drafts: Drafts, moment: str, fixture: str, change: Callable[[FixtureObservation], FixtureObservation]
) -> Drafts:
    """The drafts with one fixture of one moment changed."""
    found: Drafts = []
    for kind, fields in drafts:
        if kind is ExactnessObservation and fields["moment"] == moment:
            fixtures = tuple(change(one) if one.fixture == fixture else one for one in fields["fixtures"])
            found.append((kind, fields | {"fixtures": fixtures}))
        else:
            found.append((kind, fields))
    return found


def with_words(**changes: Any) -> Callable[[FixtureObservation], FixtureObservation]:
    def change(one: FixtureObservation) -> FixtureObservation:
        words = msgspec.structs.replace(one.boundaries["final"], **changes)
        return msgspec.structs.replace(one, boundaries={"final": words})

    return change


def with_blocks(drafts: Drafts, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Drafts:
    return [(kind, change(fields["block"], fields) if kind is BlockObservation else fields) for kind, fields in drafts]


MISMATCH = Mismatch(
    num_words=1, first_index=(1, 0), incumbent_word="0x0000", candidate_word="0x8000", word_class="signed zero"
)


def test_a_run_that_meets_everything_is_pending_counters_and_no_more(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(lane.run())
    assert (str(judged.status), codes(judged)) == (PENDING, ["EXACT_AND_FAST_ENOUGH"])
    figures = judged.devices[0].figures[0]
    assert (figures.num_wins, figures.num_blocks, figures.median_saving_ns) == (31, 31, "156250")  # 10 ms / 64
    assert (figures.incumbent_launches, figures.candidate_launches) == ("94", "47")


# --- exactness --------------------------------------------------------------------------------------------------------


def test_a_word_that_differs_fails_the_component_and_names_index_and_both_words(lane: LaneBuilder) -> None:
    change = with_words(candidate=("other", "other"), mismatch=MISMATCH)
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert judged.status == "COMPONENT_FAILED"
    assert "edges/0, final: 1 words differ, first at [1, 0]: incumbent 0x0000, candidate 0x8000" in sentences(judged)


def test_a_candidate_that_returns_stale_outputs_after_timing_fails_by_the_replay(lane: LaneBuilder) -> None:
    change = with_words(candidate=("first", "first"), mismatch=MISMATCH)
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "post", "random/2", change)))
    assert judged.status == "COMPONENT_FAILED"
    assert "post, random/2" in sentences(judged)


def test_an_incumbent_that_gives_other_words_than_the_oracle_cannot_be_judged(lane: LaneBuilder) -> None:
    change = with_words(incumbent=("device", "device"), candidate=("device", "device"))
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "random/0", change)))
    assert judged.status == "NOT_EVALUABLE"
    assert "the incumbent does not give the oracle's words" in sentences(judged)


def test_where_the_oracle_is_not_compared_the_incumbents_own_words_decide() -> None:
    lane = LaneBuilder(reg=registration(subjects__0__exactness__incumbent_vs_oracle="not_compared")).to_authorized()
    change = with_words(incumbent=("device", "device"), candidate=("device", "device"))
    drafts = with_fixture(lane.observations(), "pre", "random/0", change)
    judged = lane.gate.judge(lane.run(with_fixture(drafts, "post", "random/0", change)))
    assert str(judged.status) == PENDING


def test_an_incumbent_with_other_words_after_timing_cannot_be_judged() -> None:
    lane = LaneBuilder(reg=registration(subjects__0__exactness__incumbent_vs_oracle="not_compared")).to_authorized()
    change = with_words(incumbent=("device", "device"), candidate=("device", "device"))
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "post", "random/0", change)))
    assert judged.status == "NOT_EVALUABLE"
    assert "other words after timing than before it" in sentences(judged)


def test_an_incumbent_that_gives_two_outputs_cannot_be_judged_even_if_the_candidate_differs(lane: LaneBuilder) -> None:
    change = with_words(incumbent=("words-final-random-1", "flipped"), candidate=("x", "x"), mismatch=MISMATCH)
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "random/1", change)))
    assert judged.status == "NOT_EVALUABLE"


def test_a_candidate_whose_words_depend_on_the_poison_fails(lane: LaneBuilder) -> None:
    change = with_words(candidate=("words-final-edges-0", "poisoned"))
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert judged.status == "COMPONENT_FAILED"
    assert "depend on what its output held before" in sentences(judged)


def test_an_arm_that_changes_its_inputs_fails(lane: LaneBuilder) -> None:
    def change(one: FixtureObservation) -> FixtureObservation:
        return msgspec.structs.replace(one, inputs_after="a row was zeroed")

    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "random/1", change)))
    assert (judged.status, codes(judged)) == ("COMPONENT_FAILED", ["INPUT_CHANGED"])


def test_inputs_that_are_not_the_frozen_ones_are_no_evidence(lane: LaneBuilder) -> None:
    def change(one: FixtureObservation) -> FixtureObservation:
        return msgspec.structs.replace(one, inputs_before="other", inputs_after="other")

    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "random/1", change)))
    assert (judged.status, codes(judged)) == ("INVALID_EVIDENCE", ["INPUT_NOT_REGISTERED"])


def test_a_nan_that_equals_itself_in_bits_passes_with_torch_equal_inapplicable(lane: LaneBuilder) -> None:
    drafts = lane.observations()
    for moment in ("pre", "post"):
        drafts = with_fixture(drafts, moment, "edges/0", with_words(contains_nan=True, torch_equal=None))
    assert str(lane.gate.judge(lane.run(drafts)).status) == PENDING


def test_evidence_that_counted_no_classes_is_read_and_judged_as_it_was(lane: LaneBuilder) -> None:
    before = b"""{
  "candidate": [
    "other",
    "other"
  ],
  "contains_nan": false,
  "incumbent": [
    "words-final-edges-0",
    "words-final-edges-0"
  ],
  "mismatch": {
    "candidate_word": "0x8000",
    "first_index": [
      1,
      0
    ],
    "incumbent_word": "0x0000",
    "num_words": 1,
    "word_class": "signed zero"
  },
  "torch_equal": true
}
"""
    words = msgspec.json.decode(before, type=BoundaryWords)
    assert canonical_bytes(words) == before
    change = with_words(**{name: getattr(words, name) for name in words.__struct_fields__})
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert [why.sentence for why in judged.devices[0].reasons] == [
        "scale-add, pre, edges/0, final: 1 words differ, first at [1, 0]: incumbent 0x0000, candidate 0x8000 "
        "(signed zero)."
    ]
    change = with_words(candidate=("words-final-edges-0", "poisoned"))
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert [why.sentence for why in judged.devices[0].reasons] == [
        "scale-add, pre, edges/0, final: words of the candidate depend on what its output held before."
    ]


def test_unwritten_words_of_an_arm_whose_calls_agree_are_no_evidence(lane: LaneBuilder) -> None:
    change = with_words(unwritten={"candidate": Unwritten(num_words=1, first_index=(0, 0))})
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert judged.status == "INVALID_EVIDENCE"
    assert "digests and comparison contradict each other" in sentences(judged)


@pytest.mark.parametrize("counts", [{}, {"signed zero": 2}, {"other": 1}])
def test_classes_that_do_not_add_up_or_lack_that_of_the_first_word_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="num_by_class: counts that add up to num_words"):
        msgspec.structs.replace(MISMATCH, num_by_class=counts)


def test_no_unwritten_word_is_no_record_of_unwritten_words() -> None:
    with pytest.raises(ValueError, match="num_words: at least 1"):
        Unwritten(num_words=0, first_index=())


def test_equal_digests_with_a_recorded_mismatch_are_no_evidence(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(
        lane.run(with_fixture(lane.observations(), "pre", "edges/0", with_words(mismatch=MISMATCH)))
    )
    assert judged.status == "INVALID_EVIDENCE"
    assert "digests and comparison contradict each other" in sentences(judged)


def test_unequal_digests_without_a_recorded_mismatch_are_no_evidence(lane: LaneBuilder) -> None:
    change = with_words(candidate=("other", "other"))
    judged = lane.gate.judge(lane.run(with_fixture(lane.observations(), "pre", "edges/0", change)))
    assert judged.status == "INVALID_EVIDENCE"


def test_a_fixture_that_was_left_out_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = [
        (kind, fields | {"fixtures": fields["fixtures"][:-1]} if kind is ExactnessObservation else fields)
        for kind, fields in lane.observations()
    ]
    judged = lane.gate.judge(lane.run(drafts))
    assert judged.status == "INVALID_EVIDENCE"
    assert "2 fixtures were compared; 4 are frozen" in sentences(judged)


def test_timing_without_the_replay_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = [draft for draft in lane.observations() if draft[1].get("moment") != "post"]
    judged = lane.gate.judge(lane.run(drafts))
    assert judged.status == "INVALID_EVIDENCE"
    assert "post: 0 fixtures were compared" in sentences(judged)


@pytest.mark.parametrize(
    ("arm", "status", "code"),
    [
        ("candidate", "COMPONENT_FAILED", "CANDIDATE_NOT_REPEATABLE"),
        ("incumbent", "NOT_EVALUABLE", "INCUMBENT_NOT_REPEATABLE"),
    ],
)
def test_an_arm_with_two_outputs_over_its_repeats(lane: LaneBuilder, arm: str, status: str, code: str) -> None:
    drafts = [
        (kind, fields | {"digests": {"one": 3, "two": 1}} if fields.get("arm") == arm else fields)
        for kind, fields in lane.observations()
    ]
    judged = lane.gate.judge(lane.run(drafts))
    assert (judged.status, codes(judged)) == (status, [code])
    assert f"4 identical calls of the {arm} gave 2 different outputs" in sentences(judged)


def test_fewer_repeats_than_registered_are_no_evidence(lane: LaneBuilder) -> None:
    drafts = [
        (kind, fields | {"digests": {"one": 1}} if kind is RepeatObservation else fields)
        for kind, fields in lane.observations()
    ]
    assert lane.gate.judge(lane.run(drafts)).status == "INVALID_EVIDENCE"


# --- timing -----------------------------------------------------------------------------------------------------------


def losses(num: int, **slow: int) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
    """The first blocks of a run replaced."""

    def change(number: int, fields: dict[str, Any]) -> dict[str, Any]:
        return block(fields["subject"], number, fields["first_fixture"], **slow) if number < num else fields

    return change


@pytest.mark.parametrize(("num_lost", "status"), [(3, PENDING), (4, "COMPONENT_FAILED")])
def test_28_of_31_wins_pass_and_27_do_not(lane: LaneBuilder, num_lost: int, status: str) -> None:
    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), losses(num_lost, b=41_000_000))))
    assert str(judged.status) == status
    assert judged.devices[0].figures[0].num_wins == 31 - num_lost


def test_a_block_without_any_saving_is_no_win(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), losses(4, b=40_000_000))))
    assert codes(judged) == ["TOO_FEW_WINS"]
    assert "the candidate won 27 of 31 blocks; 28 are registered" in sentences(judged)


@pytest.mark.parametrize(("b", "status"), [(30_400_000, PENDING), (30_400_001, "COMPONENT_FAILED")])
def test_a_median_saving_of_exactly_150_us_passes_and_a_fraction_of_a_ns_less_does_not(
    lane: LaneBuilder, b: int, status: str
) -> None:
    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), losses(31, b=b))))
    assert str(judged.status) == status
    assert judged.devices[0].figures[0].median_saving_ns == {30_400_000: "150000", 30_400_001: "9599999/64"}[b]


def test_the_median_of_the_original_figures_is_too_small_though_every_block_was_won(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), losses(31, b=40_000_000 - 64 * 120_856))))
    assert (judged.status, codes(judged)) == ("COMPONENT_FAILED", ["SAVING_TOO_SMALL"])
    assert "the median saving is 120856.0 ns per cycle; at least 150000 ns is registered" in sentences(judged)


def test_a_linear_drift_cancels_in_every_block(lane: LaneBuilder) -> None:
    def drifted(number: int, fields: dict[str, Any]) -> dict[str, Any]:
        arms = {}
        for position, name in enumerate(("a1", "b1", "b2", "a2")):
            sample = fields[name]
            drift = 5_000_000 * (4 * number + position)
            arms[name] = msgspec.structs.replace(sample, elapsed_ns=sample.elapsed_ns + drift)
        return fields | arms

    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), drifted)))
    assert judged.devices[0].figures[0].median_saving_ns == "156250"


def test_one_launch_too_many_in_one_arm_of_one_block_fails(lane: LaneBuilder) -> None:
    def change(number: int, fields: dict[str, Any]) -> dict[str, Any]:
        if number != 30:
            return fields
        return fields | {"b2": msgspec.structs.replace(fields["b2"], num_launches=47 * 64 + 1)}

    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), change)))
    assert (judged.status, codes(judged)) == ("COMPONENT_FAILED", ["LAUNCHES_DIFFER"])
    assert "1 candidate arms made 3009 launches in 64 cycles; 3008 are registered" in sentences(judged)


def test_a_throttled_arm_is_no_evidence_where_throttling_is_forbidden(lane: LaneBuilder) -> None:
    def change(number: int, fields: dict[str, Any]) -> dict[str, Any]:
        return fields | ({"a1": msgspec.structs.replace(fields["a1"], throttle="hw_thermal")} if number == 9 else {})

    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), change)))
    assert (judged.status, codes(judged)) == ("INVALID_EVIDENCE", ["THROTTLED"])
    assert "block 9, a1: the device ran slower for hw_thermal" in sentences(judged)


def test_a_time_of_0_is_no_evidence(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(lane.run(with_blocks(lane.observations(), losses(1, b=0))))
    assert judged.status == "INVALID_EVIDENCE"
    assert "b1: 0 ns is no time" in sentences(judged)


def test_a_missing_block_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = [draft for draft in lane.observations() if draft[1].get("block") != 12]
    judged = lane.gate.judge(lane.run(drafts))
    assert judged.status == "INVALID_EVIDENCE"
    assert "30 blocks; 31 are registered" in sentences(judged)


# --- the run itself ---------------------------------------------------------------------------------------------------


def test_a_run_without_an_end_was_aborted(lane: LaneBuilder) -> None:
    judged = lane.gate.judge(lane.run(lane.observations()[:5]))
    assert (judged.status, codes(judged)) == ("INFRASTRUCTURE_ABORTED", ["RUN_ENDED_EARLY"])


def test_a_run_that_is_stopped_after_a_mismatch_was_written_stays_a_failure(lane: LaneBuilder) -> None:
    change = with_words(candidate=("other", "other"), mismatch=MISMATCH)
    drafts = with_fixture(lane.observations(), "pre", "random/0", change)[:3]
    assert lane.gate.judge(lane.run(drafts)).status == "COMPONENT_FAILED"


def test_a_run_that_stopped_at_nothing_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = [*lane.observations()[:5], (EndObservation, {"stopped_before": "timing"})]
    assert lane.gate.judge(lane.run(drafts)).status == "INVALID_EVIDENCE"


def test_an_output_of_another_layout_cannot_be_judged(lane: LaneBuilder) -> None:
    failure = (FailureObservation, {"what": "layout", "sentence": "final: uint16 [4], not uint16 [2, 2]"})
    judged = lane.gate.judge(lane.run([lane.observations()[0], failure]))
    assert (judged.status, codes(judged)) == ("NOT_EVALUABLE", ["LAYOUT_BREACH"])


def test_a_runner_that_failed_was_aborted_with_its_own_words(lane: LaneBuilder) -> None:
    failure = (FailureObservation, {"what": "runner", "sentence": "no attribute _raw_equal"})
    judged = lane.gate.judge(lane.run([lane.observations()[0], failure]))
    assert judged.status == "INFRASTRUCTURE_ABORTED"
    assert "no attribute _raw_equal" in sentences(judged)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"boot_id": "another"}, "boot_id is another; the packet froze boot"),
        ({"argv": ("python",)}, "argv is [python]"),
        ({"environment": {}}, "environment LC_ALL is not there; the packet froze C.UTF-8"),
        ({"uncommitted": ("kernel: kernel.py",)}, "uncommitted is [kernel: kernel.py]"),
        ({"tool_digest": "another"}, "tool_digest is another"),
    ],
)
def test_surroundings_that_are_not_the_packets_fail_the_preflight(
    lane: LaneBuilder, change: dict[str, Any], sentence: str
) -> None:
    kind, fields = lane.observations()[0]
    other = msgspec.structs.replace(fields["surroundings"], **change)
    judged = lane.gate.judge(lane.run([(kind, {"surroundings": other})]))
    assert judged.status == "PREFLIGHT_FAILED"
    assert sentence in sentences(judged)


def test_another_device_fails_the_preflight(lane: LaneBuilder) -> None:
    kind, fields = lane.observations()[0]
    device = msgspec.structs.replace(fields["surroundings"].device, uuid="GPU-other")
    other = msgspec.structs.replace(fields["surroundings"], device=device)
    judged = lane.gate.judge(lane.run([(kind, {"surroundings": other})]))
    assert "device uuid is GPU-other; the packet froze GPU-card0" in sentences(judged)


def test_a_clock_that_went_back_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = lane.observations()
    drafts[6] = (drafts[6][0], drafts[6][1] | {"at_ns": 3})
    judged = lane.gate.judge(lane.run(drafts))
    assert (judged.status, codes(judged)) == ("INVALID_EVIDENCE", ["CLOCK_WENT_BACK"])


def test_observations_that_were_reordered_are_no_evidence(lane: LaneBuilder) -> None:
    run = lane.run()
    seen = list(run.devices["card0"])
    seen[8], seen[9] = seen[9], seen[8]
    judged = lane.gate.judge(RunEvidence(run.marker, run.marker_digest, {"card0": seen}))
    assert (judged.status, codes(judged)) == ("INVALID_EVIDENCE", ["CHAIN_BROKEN"])


def test_a_run_that_goes_on_behind_its_end_is_no_evidence(lane: LaneBuilder) -> None:
    drafts = lane.observations()
    judged = lane.gate.judge(lane.run([drafts[0], drafts[-1], *drafts[1:]]))
    assert "the run goes on behind its end" in sentences(judged)


def test_a_run_without_a_consumed_marker_is_no_evidence(lane: LaneBuilder) -> None:
    run = lane.run()
    judged = lane.gate.judge(RunEvidence(None, run.marker_digest, run.devices))
    assert judged.status == "INVALID_EVIDENCE"


def test_a_run_under_another_packets_marker_is_no_evidence(lane: LaneBuilder) -> None:
    run = lane.run()
    assert run.marker is not None
    marker = msgspec.structs.replace(run.marker, packet="another")
    judged = lane.gate.judge(RunEvidence(marker, run.marker_digest, run.devices))
    assert "CHAIN_BROKEN" in codes(judged)


def test_a_damaged_file_outweighs_everything_else(lane: LaneBuilder) -> None:
    run = lane.run()
    judged = lane.gate.judge(
        RunEvidence(run.marker, run.marker_digest, run.devices, problems=("card0/00003.json: missing",))
    )
    assert judged.status == "INVALID_EVIDENCE"
    assert "card0/00003.json: missing" in sentences(judged)


# --- several devices --------------------------------------------------------------------------------------------------


def both(lane: LaneBuilder, first: Drafts | None, second: Drafts | None) -> RunEvidence:
    one, two = lane.run(first, "card0"), lane.run(second, "card1")
    return RunEvidence(one.marker, one.marker_digest, {**one.devices, **two.devices})


def test_one_device_that_fails_stops_the_lane_though_the_other_passes() -> None:
    lane = LaneBuilder(reg=registration(devices__names=["card0", "card1"])).to_authorized()
    slow = with_blocks(lane.observations("card1"), losses(31, b=39_000_000))
    judged = lane.gate.judge(both(lane, None, slow))
    assert judged.status == "DEVICE_FAILED_STOP"
    assert [str(device.status) for device in judged.devices] == [PENDING, "COMPONENT_FAILED"]


def test_a_device_after_the_one_that_failed_need_not_run() -> None:
    lane = LaneBuilder(reg=registration(devices__names=["card0", "card1"])).to_authorized()
    slow = with_blocks(lane.observations("card0"), losses(31, b=39_000_000))
    judged = lane.gate.judge(lane.run(slow, "card0"))
    assert (judged.status, [device.device for device in judged.devices]) == ("DEVICE_FAILED_STOP", ["card0"])


def test_a_device_that_did_not_run_after_one_that_passed_was_aborted() -> None:
    lane = LaneBuilder(reg=registration(devices__names=["card0", "card1"])).to_authorized()
    judged = lane.gate.judge(lane.run(None, "card0"))
    assert (judged.status, judged.devices[1].device) == ("INFRASTRUCTURE_ABORTED", "card1")


# --- tables -----------------------------------------------------------------------------------------------------------


def test_every_reason_of_a_run_leads_to_a_terminal_state() -> None:
    assert {status for status in STATUS_OF.values() if status not in TERMINAL} == set()


def test_invalid_evidence_stands_lowest_and_a_component_pass_highest() -> None:
    assert (LaneStatus.COMPONENT_PASS.standing, LaneStatus.INVALID_EVIDENCE.standing) == (0, len(LaneStatus) - 1)


def test_no_words_at_all_are_not_equal_words() -> None:
    with pytest.raises(TypeError):
        BoundaryWords(torch_equal=True, contains_nan=False, mismatch=None)  # type: ignore[call-arg]
