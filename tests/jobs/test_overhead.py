"""What a recorder costs, on literal lengths."""

from __future__ import annotations

import pytest

from moegauge.jobs.overhead import overhead_of
from moegauge.records.serving_run import TimedRun


def run(process: int, recorder: str, wall_ns: int, *, take: str | None = None, digest: str = "same") -> TimedRun:
    return TimedRun(process=process, recorder=recorder, take=take, wall_ns=wall_ns, outputs_digest=digest)


FOUR_PROCESSES = [
    run(0, "absent", 100),
    run(0, "absent", 300),
    run(1, "paused", 205),
    run(1, "recording", 220),
    run(1, "paused", 195),
    run(1, "recording", 220),
    run(2, "absent", 80),
    run(2, "absent", 120),
    run(3, "paused", 150),
    run(3, "recording", 180),
    run(3, "paused", 250),
    run(3, "recording", 220),
]


def test_recorded_runs_are_held_against_paused_ones_and_against_processes_without_a_recorder() -> None:
    """Recorded 220, 220, 180, 220: 210. Paused 205, 195, 150, 250: 200. Absent 100, 300, 80, 120: 150."""
    found = overhead_of(FOUR_PROCESSES)
    assert found.recording_ratio == pytest.approx(0.05)
    assert found.ratio == pytest.approx(0.4)
    assert found.runs == tuple(FOUR_PROCESSES)
    assert found.outputs_identical


def test_turns_compare_neighbours_whichever_came_first() -> None:
    """Absent 200, recorded 220, absent 100, recorded 200: 220/200, 220/100, 200/100."""
    assert overhead_of(FOUR_PROCESSES).ratio_by_turn == pytest.approx((0.1, 1.2, 1.0))


def test_a_recorder_that_costs_nothing_may_come_out_below_zero() -> None:
    found = overhead_of([run(0, "absent", 200), run(1, "paused", 100), run(1, "recording", 95)])
    assert (found.ratio, found.recording_ratio) == (pytest.approx(-0.525), pytest.approx(-0.05))


def test_a_take_counts_for_the_outputs_and_not_for_the_time() -> None:
    slow = run(4, "recording", 10**12, take="take-0")
    assert overhead_of([*FOUR_PROCESSES, slow]).ratio == pytest.approx(0.4)
    other = run(4, "recording", 10**12, take="take-0", digest="another")
    assert not overhead_of([*FOUR_PROCESSES, other]).outputs_identical


@pytest.mark.parametrize("recorder", ["absent", "paused", "recording"])
def test_runs_of_one_sort_alone_have_no_ratio(recorder: str) -> None:
    found = overhead_of([run(0, recorder, 100), run(1, recorder, 110)])
    assert (found.ratio, found.recording_ratio, found.ratio_by_turn) == (None, None, ())


def test_paused_runs_alone_beside_none_say_nothing_of_recording() -> None:
    found = overhead_of([run(0, "absent", 100), run(1, "paused", 110)])
    assert (found.ratio, found.recording_ratio, found.ratio_by_turn) == (None, None, ())


def test_no_runs_have_no_ratio_and_no_identical_outputs() -> None:
    found = overhead_of([])
    assert (found.ratio, found.recording_ratio, found.ratio_by_turn, found.outputs_identical) == (None, None, (), False)


def test_one_run_that_generated_other_tokens_is_seen() -> None:
    assert not overhead_of([run(0, "absent", 100), run(1, "recording", 100, digest="another")]).outputs_identical
