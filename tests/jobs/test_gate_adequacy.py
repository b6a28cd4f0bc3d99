"""Stage 0 holds the corpus against every wrong candidate and every registered count; taking a killer away fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lane_builder import LaneBuilder, registration
from moegauge.gate.checks import stage0_failures
from moegauge.jobs.gate_draft import register
from moegauge.jobs.gate_stage0 import check
from moegauge.jobs.stage0_process import mutation_result
from moegauge.lanes.laguna_m8.corpus import corpus
from moegauge.lanes.laguna_m8.host import LANE, LagunaM8, fixture_name
from moegauge.lanes.laguna_m8.kills import KILLS
from moegauge.records.registration import Registration
from tiny_lane import TinyLane, commit

NAMES = {spec.name: fixture_name(spec) for spec in corpus()}


def laguna() -> Registration:
    """A registration with every kill of laguna_m8, and two of its coverage bounds."""
    kills = [
        {
            "mutant": one.mutant,
            "fixture": NAMES[one.fixture],
            "boundary": one.boundary,
            "first_index": list(one.first_index),
            "expected_word": one.expected_word,
            "found_word": one.found_word,
        }
        for one in KILLS
    ]
    bounds = [{"what": "finite words at the shared boundary", "at_least": 65_280}]
    return registration(subjects__0__kills=kills, subjects__0__coverage=bounds)


def found(reg: Registration, lane: LagunaM8, counted: dict[str, int]) -> list[tuple[str, str]]:
    builder = LaneBuilder(reg=reg)
    builder.register()
    result = mutation_result(lane, reg.subjects[0])
    step = builder.stage0_step(mutations={"scale-add": result}, coverage={"scale-add": counted})
    return [(why.code, why.sentence) for why in stage0_failures(reg, step)]


ALL = {"finite words at the shared boundary": 65_280}


def test_every_mutant_of_laguna_m8_is_killed_through_the_comparison_that_judges_candidates() -> None:
    assert found(laguna(), LANE, ALL) == []


@pytest.mark.parametrize("killer", sorted({one.fixture for one in KILLS}))
def test_taking_the_killer_of_a_mutant_away_fails_stage_0(killer: str) -> None:
    killers = {one.fixture for one in KILLS} - {killer}
    left = LagunaM8(spec for spec in corpus() if spec.name in killers)
    codes = {code for code, _ in found(laguna(), left, ALL)}
    sentence = found(laguna(), left, ALL)[0][1]
    assert codes == {"KILLER_MISSING"}
    assert f"The corpus has no fixture {NAMES[killer]}" in sentence


def test_other_literal_words_than_the_registered_ones_fail_stage_0() -> None:
    reg = laguna()
    kills = [
        {"mutant": "fma", "fixture": NAMES["sum-fma"], "boundary": "final", "first_index": [0, 0]}
        | {"expected_word": "0x0000", "found_word": "0x3021"}
    ]
    reg = registration(subjects__0__kills=kills)
    codes = [code for code, _ in found(reg, LagunaM8(s for s in corpus() if s.name == "sum-fma"), {})]
    assert (codes[0], set(codes[1:])) == ("KILL_DIFFERS", {"KILL_NOT_REGISTERED"})


def test_a_count_that_is_short_or_was_not_made_fails_stage_0() -> None:
    reg = registration(subjects__0__coverage=[{"what": "words", "at_least": 65_280}])
    lane = LagunaM8(())
    lane.mutants = lambda subject: ()  # type: ignore[method-assign]
    assert found(reg, lane, {"words": 65_279}) == [("COVERAGE_SHORT", "scale-add, words: 65,279 of 65,280.")]
    assert found(reg, lane, {}) == [("COVERAGE_SHORT", "scale-add, words: not counted; 65,280 needed.")]


def test_a_stage_0_that_did_not_run_the_mutants_fails() -> None:
    reg = laguna()
    builder = LaneBuilder(reg=reg)
    builder.register()
    reasons = stage0_failures(reg, builder.stage0_step(mutations={}, coverage={}))
    assert [why.code for why in reasons] == ["CHECK_MISSING"]


def test_a_lane_on_disk_without_its_killer_stays_registered_and_names_it(tmp_path: Path) -> None:
    lane = TinyLane(tmp_path).start()
    register(lane.open())
    host = lane.repository / "tiny" / "host.py"
    host.write_text(host.read_text().replace('"random/1", ', ""))
    commit(lane.repository, "one fixture less")
    assert str(check(lane.open())) == "REGISTERED"
    assert "The corpus has no fixture random/1, which has to kill two more." in [
        why.sentence.partition(": ")[2] for why in lane.open().gate.reasons
    ]
