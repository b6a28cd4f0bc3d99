"""Where ranks wait for each other: on nobody who is past, and no longer than until they are sent away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from moegauge.jobs.start_line import GivenUp, StartLine


def steps(line: StartLine, index: int, numbers: list[int], told: Callable[[int, int], object]) -> None:
    for number in numbers:
        with line.step(index, number):
            told(index, number)
    line.leave(index)


@pytest.mark.parametrize(
    "numbers", [[[0, 1, 2], [0, 1, 2], [0, 1, 2]], [[0, 2], [1, 2], [0]], [[], [0, 1], [5]]], ids=str
)
def test_no_rank_begins_a_step_before_all_have_ended_earlier_ones(numbers: list[list[int]]) -> None:
    line, seen = StartLine(3), list[tuple[int, int]]()
    ranks = [
        threading.Thread(target=steps, args=(line, rank, mine, lambda index, number: seen.append((number, index))))
        for rank, mine in enumerate(numbers)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [number for number, _ in seen] == sorted(number for mine in numbers for number in mine)


@pytest.mark.parametrize("inside", [False, True], ids=["before a step", "at its end"])
def test_a_rank_that_waits_is_sent_away_when_the_others_cannot_come(inside: bool) -> None:
    line, ended = StartLine(2), list[str]()

    def wait() -> None:
        with suppress(GivenUp):
            steps(line, 0, [0], lambda *_: ended.append("begun"))
            ended.append("done")

    rank = threading.Thread(target=wait)
    rank.start()
    if inside:
        step = line.step(1, 0)
        step.__enter__()
        while not ended:
            pass
    line.give_up()
    rank.join()
    assert ended == (["begun"] if inside else [])


def test_a_rank_that_comes_when_all_is_given_up_is_sent_away_too() -> None:
    line = StartLine(2)
    line.give_up()
    with pytest.raises(GivenUp), line.step(0, 0):
        pass


def test_what_fails_inside_a_step_waits_for_nobody() -> None:
    line = StartLine(2)
    line.leave(1)

    def fail(*_: int) -> None:
        line.reset()  # as though the other rank had not come to the end of this step
        raise MemoryError

    with pytest.raises(MemoryError):
        steps(line, 0, [0], fail)


def test_after_a_reset_the_line_begins_anew() -> None:
    line = StartLine(1)
    for _ in range(2):
        steps(line, 0, [0, 1], lambda *_: None)
        line.reset()
