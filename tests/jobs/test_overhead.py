"""What a recorder costs, on literal lengths."""

from __future__ import annotations

import pytest

from moegauge.jobs.overhead import overhead_of
from moegauge.records.serving_run import TimedRun


def run(process: int, wall_ns: int, *, recorder: bool, take: str | None = None, digest: str = "same") -> TimedRun:
    return TimedRun(process=process, recorder=recorder, take=take, wall_ns=wall_ns, outputs_digest=digest)


OFF_ON_OFF_ON = [
    run(0, 100, recorder=False),
    run(0, 300, recorder=False),
    run(1, 220, recorder=True),
    run(1, 220, recorder=True),
    run(2, 160, recorder=False),
    run(2, 240, recorder=False),
    run(3, 210, recorder=True),
    run(3, 230, recorder=True),
]


def test_the_ratio_is_mean_with_over_mean_without_minus_one() -> None:
    """(220 + 220 + 210 + 230) / (100 + 300 + 160 + 240) = 880 / 800."""
    found = overhead_of(OFF_ON_OFF_ON)
    assert found.ratio == pytest.approx(0.1)
    assert found.runs == tuple(OFF_ON_OFF_ON)
    assert found.outputs_identical


def test_turns_compare_neighbours_whichever_came_first() -> None:
    """Means 200, 220, 200, 220: each turn with the recorder over the one beside it without."""
    assert overhead_of(OFF_ON_OFF_ON).ratio_by_turn == pytest.approx((0.1, 0.1, 0.1))


def test_turns_keep_their_own_numbers() -> None:
    """200 / 100, 200 / 160 (the second pair runs the other way round), 120 / 160."""
    runs = [run(0, 100, recorder=False), run(1, 200, recorder=True), run(2, 160, recorder=False),
            run(3, 120, recorder=True)]  # fmt: skip
    found = overhead_of(runs)
    assert found.ratio_by_turn == pytest.approx((1.0, 0.25, -0.25))
    assert found.ratio == pytest.approx(320 / 260 - 1)


def test_a_recorder_that_costs_nothing_may_come_out_below_zero() -> None:
    runs = [run(0, 200, recorder=False), run(1, 190, recorder=True)]
    assert overhead_of(runs).ratio == pytest.approx(-0.05)


def test_a_take_counts_for_the_outputs_and_not_for_the_time() -> None:
    slow = run(4, 10**12, recorder=True, take="take-0")
    assert overhead_of([*OFF_ON_OFF_ON, slow]).ratio == pytest.approx(0.1)
    other = run(4, 10**12, recorder=True, take="take-0", digest="another")
    assert not overhead_of([*OFF_ON_OFF_ON, other]).outputs_identical


@pytest.mark.parametrize("recorder", [True, False])
def test_runs_of_one_sort_alone_have_no_ratio(recorder: bool) -> None:
    found = overhead_of([run(0, 100, recorder=recorder), run(1, 110, recorder=recorder)])
    assert (found.ratio, found.ratio_by_turn) == (None, ())


def test_no_runs_have_no_ratio_and_no_identical_outputs() -> None:
    found = overhead_of([])
    assert (found.ratio, found.ratio_by_turn, found.outputs_identical) == (None, (), False)


def test_one_run_that_generated_other_tokens_is_seen() -> None:
    runs = [run(0, 100, recorder=False), run(1, 100, recorder=True, digest="another")]
    assert not overhead_of(runs).outputs_identical
