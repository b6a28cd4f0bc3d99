"""The ordered door: what it accepts, and every refusal with its sentence."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from lane_builder import COMMIT, LaneBuilder, registration
from moegauge import errors
from moegauge.evidence.digest import record_digest
from moegauge.gate.protocol import Gate
from moegauge.records.lane import AuditFinding, CheckResult, Rehearsed, SourceState
from moegauge.records.verdict import TERMINAL, LaneStatus, VerdictStep

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"


@pytest.fixture
def lane() -> LaneBuilder:
    return LaneBuilder()


def verdict(lane: LaneBuilder, **values: object) -> VerdictStep:
    """The verdict of a run that passes."""
    judged = lane.gate.judge(lane.run())
    packet = lane.gate.packet
    assert packet is not None
    fields = {
        "phase": packet.phase,
        "packet": lane.gate.packet_digest,
        "status": judged.status,
        "devices": judged.devices,
    }
    step: VerdictStep = lane.make(VerdictStep, **(fields | values))
    return step


def refused(action: Callable[[], object], *words: str, error: type[Exception] = errors.MisuseError) -> None:
    with pytest.raises(error) as caught:
        action()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


# --- order ------------------------------------------------------------------------------------------------------------


def test_a_lane_goes_through_every_state_in_order(lane: LaneBuilder) -> None:
    found = [
        lane.register(),
        lane.take(lane.stage0_step()),
        lane.take(lane.audit_step("first", "one")),
        lane.take(lane.audit_step("second", "two")),
        lane.take(lane.freeze_step()),
        lane.take(lane.rehearsal_step()),
        lane.take(lane.packet_step("a")),
    ]
    run = lane.run()
    found.append(lane.take(verdict(lane), run))
    assert found == [
        "REGISTERED",
        "STAGE0_PASS",
        "STAGE0_PASS",
        "STAGE0_PASS",
        "SOURCE_FROZEN",
        "REHEARSED",
        "PHASE_A_AUTHORIZED",
        PENDING,
    ]


def test_nothing_comes_before_registration(lane: LaneBuilder) -> None:
    refused(lambda: lane.take(lane.stage0_step()), "found not registered", "gate status")


def test_a_lane_is_registered_once(lane: LaneBuilder) -> None:
    lane.register()
    refused(lane.register, "expected a lane that is not registered", "found REGISTERED")


def test_a_freeze_without_stage_0_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    refused(lambda: lane.take(lane.freeze_step()), "expected a lane that is STAGE0_PASS", "found REGISTERED")


def test_a_rehearsal_without_a_freeze_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    refused(lambda: lane.take(lane.rehearsal_step()), "expected a lane that is SOURCE_FROZEN", "found STAGE0_PASS")


def test_a_packet_without_a_rehearsal_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two"))
    lane.take(lane.freeze_step())
    refused(lambda: lane.take(lane.packet_step("a")), "REHEARSED", "found SOURCE_FROZEN")


def test_a_verdict_without_a_packet_is_refused(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    step = lane.make(VerdictStep, phase="a", packet="", status=LaneStatus.COMPONENT_FAILED, devices=())
    refused(lambda: lane.take(step, None), "PHASE_A_AUTHORIZED", "found REHEARSED")


def test_a_second_packet_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    refused(lambda: lane.take(lane.packet_step("a")), "found PHASE_A_AUTHORIZED")


def test_phase_b_before_phase_a_is_refused(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    refused(lambda: lane.take(lane.packet_step("b")), "expected a packet of phase a", "found one of phase b")


def test_stage_0_is_not_repeated_after_the_freeze(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    refused(lambda: lane.take(lane.stage0_step()), "REGISTERED or STAGE0_PASS", "found REHEARSED")


def test_a_terminal_state_has_no_exit(lane: LaneBuilder) -> None:
    for status in sorted(TERMINAL):
        lane = LaneBuilder()
        lane.to_authorized()
        lane.gate.status = status
        for step in (
            lane.stage0_step(),
            lane.audit_step("third", "three"),
            lane.freeze_step(),
            lane.rehearsal_step(),
            lane.packet_step("a"),
            lane.packet_step("b"),
        ):
            refused(lambda lane=lane, step=step: lane.take(step), "terminal", "no retry, rescue, source change")


def test_a_step_that_does_not_hold_the_one_before_it_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    step = msgspec.structs.replace(lane.stage0_step(), previous="another")
    refused(lambda: lane.take(step), "A step was removed, replaced or put in", error=errors.Inconsistent)


def test_a_step_out_of_number_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    step = msgspec.structs.replace(lane.stage0_step(), number=7)
    refused(lambda: lane.take(step), "expected step 1", error=errors.Inconsistent)


def test_a_step_earlier_than_the_one_before_it_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    step = msgspec.structs.replace(lane.stage0_step(), at_ns=5)
    refused(lambda: lane.take(step), "The clock of this machine went back", error=errors.Inconsistent)


# --- stage 0, audits, freeze, rehearsal -------------------------------------------------------------------------------


def test_an_empty_set_of_checks_fails(lane: LaneBuilder) -> None:
    lane.register()
    assert lane.take(lane.stage0_step(checks=())) == "REGISTERED"
    assert "an empty set of checks proves nothing" in lane.gate.reasons[0].sentence


def test_a_check_held_against_no_case_fails(lane: LaneBuilder) -> None:
    lane.register()
    checks = tuple(
        CheckResult(name=name, passed=True, num_cases=cases, sentence="")
        for name, cases in (("compile", 1), ("guards", 0))
    )
    assert lane.take(lane.stage0_step(checks=checks)) == "REGISTERED"
    assert [why.sentence for why in lane.gate.reasons] == ["guards: held against no case at all."]


def test_a_required_check_that_was_not_run_fails_stage_0(lane: LaneBuilder) -> None:
    lane.register()
    checks = (CheckResult(name="compile", passed=True, num_cases=1, sentence=""),)
    assert lane.take(lane.stage0_step(checks=checks)) == "REGISTERED"
    assert [why.sentence for why in lane.gate.reasons] == ["guards: required, and not run."]


def test_a_failed_stage_0_takes_an_earlier_pass_back(lane: LaneBuilder) -> None:
    lane.register()
    assert lane.take(lane.stage0_step()) == "STAGE0_PASS"
    assert lane.take(lane.stage0_step(device_libraries=("torch",))) == "REGISTERED"
    assert "torch was loaded" in lane.gate.reasons[0].sentence


def test_a_dirty_tree_fails_stage_0(lane: LaneBuilder) -> None:
    lane.register()
    state = SourceState(name="kernel", commit=COMMIT, changed_paths=(), uncommitted=("note.txt",))
    assert lane.take(lane.stage0_step(sources=(state,))) == "REGISTERED"
    assert [why.code for why in lane.gate.reasons] == ["TREE_DIRTY"]


def test_a_change_outside_the_registered_files_fails_stage_0(lane: LaneBuilder) -> None:
    lane.register()
    state = SourceState(name="kernel", commit=COMMIT, changed_paths=("w2.py",), uncommitted=())
    assert lane.take(lane.stage0_step(sources=(state,))) == "REGISTERED"
    assert "w2.py differs from the starting commit" in lane.gate.reasons[0].sentence


def test_an_audit_with_the_text_of_another_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.audit_step("first", "one"))
    for text in ("one", " One\n", ""):
        refused(lambda text=text: lane.take(lane.audit_step("second", text)), "a text of its own")


def test_an_audit_that_says_nothing_of_what_it_read_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    refused(lambda: lane.take(lane.audit_step("first", "one", read=())), "what was read")


def test_a_freeze_with_one_auditor_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("first", "two"))
    refused(lambda: lane.take(lane.freeze_step()), "1 auditors; 2 independent audits are needed")


def test_a_freeze_over_an_open_finding_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two", findings=(AuditFinding(sentence="reads twice"),)))
    refused(lambda: lane.take(lane.freeze_step()), "second: reads twice")


def test_a_freeze_of_other_commits_than_passed_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    refused(lambda: lane.take(lane.freeze_step(commits={"kernel": COMMIT})), "the commits that passed stage 0")


def test_a_freeze_that_lacks_a_fixture_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two"))
    fixtures = lane.fixtures()
    del fixtures["scale-add"]["random/1"]
    refused(lambda: lane.take(lane.freeze_step(fixtures=fixtures)), "random: 2 fixtures; 3 are registered")


def test_a_failed_rehearsal_takes_the_freeze_back(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two"))
    lane.take(lane.freeze_step())
    passed = lane.rehearsal_step()
    first = msgspec.structs.replace(passed.campaigns[0], found="INFRASTRUCTURE_ABORTED", sentence="no such method")
    failed = msgspec.structs.replace(passed, campaigns=(first, *passed.campaigns[1:]))
    assert lane.take(failed) == "REGISTERED"
    assert "no such method" in lane.gate.reasons[0].sentence
    refused(lambda: lane.take(lane.freeze_step()), "found REGISTERED")


def test_a_rehearsal_that_leaves_a_fault_out_fails(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two"))
    lane.take(lane.freeze_step())
    one = Rehearsed(fault="a/none", expected=PENDING, found=PENDING, sentence="")
    assert lane.take(lane.rehearsal_step(campaigns=(one,))) == "REGISTERED"
    assert "Not rehearsed: a/linear-drift" in lane.gate.reasons[0].sentence


def test_a_rehearsal_of_another_tool_fails(lane: LaneBuilder) -> None:
    lane.register()
    lane.take(lane.stage0_step())
    lane.take(lane.audit_step("first", "one"))
    lane.take(lane.audit_step("second", "two"))
    lane.take(lane.freeze_step())
    assert lane.take(lane.rehearsal_step(tool_digest="other")) == "REGISTERED"


# --- amendments -------------------------------------------------------------------------------------------------------


def test_an_amendment_adds_an_exclusion_and_asks_for_stage_0_again(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    assert lane.amend(registration(exclusions=["services", "network"]), ("exclusions",)) == "REGISTERED"
    refused(lambda: lane.take(lane.freeze_step()), "found REGISTERED")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("subjects__0__timing__min_wins", 20),
        ("subjects__0__timing__min_median_saving_ns", 1),
        ("subjects__0__exactness__incumbent_vs_oracle", "not_compared"),
        ("subjects__0__corpus", [{"name": "random", "num_fixtures": 1}]),
        ("counters__cache_control", "all"),
        ("devices__throttle", "recorded"),
        ("authorizes", "a record"),
        ("question", "Another one?"),
    ],
)
def test_an_amendment_of_what_decides_is_refused(lane: LaneBuilder, path: str, value: object) -> None:
    lane.register()
    field = path.split("__", maxsplit=1)[0]
    refused(lambda: lane.amend(registration(**{path: value}), (field,)), field, "Register another lane")


def test_an_amendment_that_takes_something_out_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    after = registration(contract__predicates=["rows are 8 or 16"])
    refused(lambda: lane.amend(after, ("contract.predicates",)), "'rows are 8' to stay", "it was taken out")


def test_the_contract_is_narrowed_before_the_freeze_and_not_after(lane: LaneBuilder) -> None:
    after = registration(contract__predicates=["rows are 8", "no route map"])
    early = LaneBuilder()
    early.register()
    assert early.amend(after, ("contract.predicates",)) == "REGISTERED"
    lane.to_rehearsed()
    refused(lambda: lane.amend(after, ("contract.predicates",)), "the contract as frozen")


def test_an_amendment_that_changes_nothing_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    refused(lambda: lane.amend(registration(), ()), "expected a change, found none")


def test_an_amendment_without_a_reason_is_refused(lane: LaneBuilder) -> None:
    lane.register()
    after = registration(exclusions=["services", "network"])
    refused(lambda: lane.amend(after, ("exclusions",), reason=" "), "a date, a reason")


def test_an_amendment_after_a_packet_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    after = registration(exclusions=["services", "network"])
    refused(lambda: lane.amend(after, ("exclusions",)), "found PHASE_A_AUTHORIZED")


# --- packets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"commits": {"kernel": COMMIT}}, "the sources are at"),
        ({"uncommitted": ("kernel: kernel.py",)}, "kernel: kernel.py is not as committed"),
        ({"tool_digest": "newer"}, "moegauge is newer; tool was frozen and rehearsed"),
        ({"code": {}}, "the lane's code is not the frozen one"),
    ],
)
def test_a_packet_that_is_not_what_was_frozen_is_refused(
    lane: LaneBuilder, change: dict[str, object], sentence: str
) -> None:
    lane.to_rehearsed()
    devices = {"card0": lane.surroundings("card0", **change)}
    refused(lambda: lane.take(lane.packet_step("a", devices=devices)), sentence)


def test_a_packet_without_a_registered_identity_is_refused(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    device = msgspec.structs.replace(lane.surroundings("card0").device, versions={})
    devices = {"card0": lane.surroundings("card0", device=device)}
    refused(lambda: lane.take(lane.packet_step("a", devices=devices)), "no version of runtime")


def test_a_packet_for_other_devices_is_refused(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    devices = {"card1": lane.surroundings("card1")}
    refused(lambda: lane.take(lane.packet_step("a", devices=devices)), "['card0'] are registered")


def test_one_physical_device_does_not_stand_for_two() -> None:
    lane = LaneBuilder(reg=registration(devices__names=["card0", "card1"])).to_rehearsed()
    devices = {"card0": lane.surroundings("card0"), "card1": lane.surroundings("card0")}
    refused(lambda: lane.take(lane.packet_step("a", devices=devices)), "Two of its devices are one")


def test_phase_b_on_another_binary_than_phase_a_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    run = lane.run()
    lane.take(verdict(lane), run)
    other = msgspec.structs.replace(lane.surroundings("card0", "b").device, libraries={"kernel.so": "other"})
    devices = {"card0": lane.surroundings("card0", "b", device=other)}
    refused(lambda: lane.take(lane.packet_step("b", devices=devices)), "device libraries kernel.so is other")
    assert lane.take(lane.packet_step("b")) == "PHASE_B_AUTHORIZED"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_verdict_that_the_evidence_does_not_lead_to_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    step = verdict(lane)
    worse = lane.run(lane.observations()[:-1])
    refused(lambda: lane.take(step, worse), "the verdict that the evidence leads to", error=errors.Inconsistent)


def test_a_verdict_without_evidence_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    refused(lambda: lane.take(verdict(lane), None), "the evidence it is taken from")


def test_a_verdict_about_another_packet_is_refused(lane: LaneBuilder) -> None:
    lane.to_authorized()
    step = verdict(lane, packet="another")
    refused(lambda: lane.take(step, lane.run()), "the verdict that the evidence leads to", error=errors.Inconsistent)


def test_a_component_pass_of_phase_a_cannot_be_built(lane: LaneBuilder) -> None:
    lane.to_authorized()
    with pytest.raises(ValueError, match="phase a alone"):
        verdict(lane, status=LaneStatus.COMPONENT_PASS)


def test_an_endpoint_is_never_authorized(lane: LaneBuilder) -> None:
    lane.to_authorized()
    packet = lane.gate.packet
    assert packet is not None
    assert (packet.endpoint_authorized, packet.retry_authorized, verdict(lane).endpoint_authorized) == (False,) * 3


def test_a_fresh_gate_accepts_the_recorded_steps_again(lane: LaneBuilder) -> None:
    lane.to_rehearsed()
    again = Gate()
    for step in lane.steps:
        again.accept(step, record_digest(step))
    assert (again.status, again.head, again.number) == (lane.gate.status, lane.gate.head, 6)
