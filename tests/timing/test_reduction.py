"""From rank rows to the critical rank of an invocation, from layers to totals, and the lower median."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moegauge.timing.reduction import critical_rank, lower_median_index, total_by

times = st.integers(0, 1 << 50)
rank_rows = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 3)), times, max_size=16)
"""(invocation, rank) -> busy ns."""


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def reduced(rows: list[tuple[tuple[int, int], int]], num_invocations: int = 5) -> list[tuple[int, int, int]]:
    found = critical_rank(
        ints([invocation for (invocation, _), _ in rows]),
        ints([rank for (_, rank), _ in rows]),
        ints([busy for _, busy in rows]),
        num_invocations=num_invocations,
    )
    return list(zip(found.busy_ns.tolist(), found.rank.tolist(), found.num_ranks.tolist(), strict=True))


def test_the_critical_rank_is_the_slowest() -> None:
    assert reduced([((0, 0), 70), ((0, 1), 95), ((0, 2), 80)], 1) == [(95, 1, 3)]


def test_a_tie_goes_to_the_lowest_rank() -> None:
    assert reduced([((0, 3), 95), ((0, 1), 95), ((0, 2), 80)], 1) == [(95, 1, 3)]


def test_an_invocation_without_ranks_has_no_critical_rank() -> None:
    assert reduced([((1, 0), 5)], 3) == [(0, -1, 0), (5, 0, 1), (0, -1, 0)]


def test_a_rank_declared_empty_counts_as_a_rank_of_zero_ns() -> None:
    assert reduced([((0, 0), 0), ((0, 1), 0)], 1) == [(0, 0, 2)]


def test_a_rank_that_stands_twice_in_an_invocation_is_refused() -> None:
    with pytest.raises(ValueError, match="a rank stands twice"):
        reduced([((0, 1), 5), ((0, 1), 6)], 1)


@given(rank_rows)
def test_the_critical_time_is_the_largest_of_the_ranks(rows: dict[tuple[int, int], int]) -> None:
    found = reduced(list(rows.items()))
    for invocation in range(5):
        mine = {rank: busy for (number, rank), busy in rows.items() if number == invocation}
        if not mine:
            assert found[invocation] == (0, -1, 0)
            continue
        largest = max(mine.values())
        assert found[invocation] == (largest, min(r for r, busy in mine.items() if busy == largest), len(mine))


@given(rank_rows, st.randoms(use_true_random=False))
def test_the_order_of_rank_rows_does_not_matter(rows: dict[tuple[int, int], int], order: random.Random) -> None:
    shuffled = list(rows.items())
    order.shuffle(shuffled)
    assert reduced(shuffled) == reduced(list(rows.items()))


def test_totals_are_exact_where_a_double_is_not() -> None:
    assert total_by(ints([0, 0, 1]), ints([1 << 60, 1, 7]), num_groups=3).tolist() == [(1 << 60) + 1, 7, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(1 << 58), 1 << 58)), max_size=12))
def test_totals_of_the_groups_add_up_to_the_total_of_everything(rows: list[tuple[int, int]]) -> None:
    found = total_by(ints([group for group, _ in rows]), ints([ns for _, ns in rows]), num_groups=4)
    assert found.tolist() == [sum(ns for number, ns in rows if number == group) for group in range(4)]
    assert int(found.sum()) == sum(ns for _, ns in rows)


def test_the_median_of_an_even_number_is_the_lower_of_the_two() -> None:
    assert lower_median_index(ints([40, 10, 30, 20])) == 3


def test_the_median_of_equal_times_is_the_first_of_them() -> None:
    assert lower_median_index(ints([9, 5, 5, 5, 1])) == 1


def test_there_is_no_median_of_nothing() -> None:
    with pytest.raises(ValueError, match="the median of nothing"):
        lower_median_index(ints([]))


@given(st.lists(times, min_size=1, max_size=15))
def test_the_lower_median_has_at_least_half_on_each_side(values: list[int]) -> None:
    index = lower_median_index(ints(values))
    median = values[index]
    assert median not in values[:index]
    assert 2 * sum(value <= median for value in values) >= len(values)
    assert 2 * sum(value >= median for value in values) > len(values)
