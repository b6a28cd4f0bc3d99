"""The busy union, the span, the gaps and covered time against a bitmap of single nanoseconds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moegauge.timing.intervals import busy_union, covered_within, occupancy, union_segments

BASES_NS = (0, 1, 5_108_314_524_917_962, 1_700_000_000_000_000_000, 1_900_000_000_123_456_789)
"""Where time may begin; a double cannot tell neighbouring ns apart from the third one on."""

moments = st.integers(0, 40)
interval = st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair)))
intervals = st.lists(interval, max_size=12)
grouped = st.lists(st.tuples(st.integers(0, 4), interval), max_size=16)
bases = st.sampled_from(BASES_NS)


def columns(rows: list[tuple[int, int]], base_ns: int = 0) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2) + base_ns
    return table[:, 0].copy(), table[:, 1].copy()


def bitmap(rows: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in rows for moment in range(start, end)}


def test_overlap_counts_once_and_a_gap_does_not_count() -> None:
    assert busy_union(*columns([(10, 30), (20, 40), (60, 65)])) == 35


def test_touching_intervals_neither_overlap_nor_leave_a_gap() -> None:
    taken = occupancy(np.zeros(2, dtype=np.int64), *columns([(10, 20), (20, 30)]), num_groups=1)
    assert (taken.busy_ns[0], taken.span_ns[0], taken.gap_ns[0]) == (20, 20, 0)


def test_an_interval_inside_another_adds_nothing() -> None:
    assert busy_union(*columns([(0, 100), (10, 20), (30, 40)])) == 100


def test_no_interval_is_no_busy_time() -> None:
    assert busy_union(*columns([])) == 0


def test_a_group_without_intervals_reads_as_none_and_not_as_a_time() -> None:
    taken = occupancy(np.array([2], dtype=np.int64), *columns([(7, 9)]), num_groups=4)
    assert taken.num_intervals.tolist() == [0, 0, 1, 0]
    assert taken.busy_ns.tolist() == [0, 0, 2, 0]


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it starts"):
        busy_union(np.array([5], dtype=np.int64), np.array([4], dtype=np.int64))


@given(intervals, bases)
def test_busy_time_is_the_number_of_busy_nanoseconds_wherever_time_begins(
    rows: list[tuple[int, int]], base_ns: int
) -> None:
    assert busy_union(*columns(rows, base_ns)) == len(bitmap(rows))


@given(intervals, st.randoms(use_true_random=False))
def test_the_order_of_the_intervals_does_not_matter(rows: list[tuple[int, int]], order: random.Random) -> None:
    shuffled = rows.copy()
    order.shuffle(shuffled)
    assert busy_union(*columns(shuffled)) == busy_union(*columns(rows))


@given(st.lists(interval, min_size=1, max_size=12), bases)
def test_busy_time_is_at_most_the_sum_and_at_least_the_longest(rows: list[tuple[int, int]], base_ns: int) -> None:
    lengths = [end - start for start, end in rows]
    assert max(lengths) <= busy_union(*columns(rows, base_ns)) <= sum(lengths)


@given(grouped, bases)
def test_every_group_is_reduced_as_if_it_were_alone(rows: list[tuple[int, tuple[int, int]]], base_ns: int) -> None:
    group = np.array([number for number, _ in rows], dtype=np.int64)
    taken = occupancy(group, *columns([one for _, one in rows], base_ns), num_groups=5)
    for number in range(5):
        mine = [one for group_number, one in rows if group_number == number]
        assert taken.num_intervals[number] == len(mine)
        if not mine:
            assert taken.busy_ns[number] == taken.sum_ns[number] == taken.span_ns[number] == taken.gap_ns[number] == 0
            continue
        first, last = min(start for start, _ in mine), max(end for _, end in mine)
        assert taken.start_ns[number] == first + base_ns
        assert taken.end_ns[number] == last + base_ns
        assert taken.span_ns[number] == last - first
        assert taken.busy_ns[number] == len(bitmap(mine))
        assert taken.gap_ns[number] == last - first - len(bitmap(mine))
        assert taken.sum_ns[number] == sum(end - start for start, end in mine)


@given(grouped, st.randoms(use_true_random=False))
def test_grouped_reduction_does_not_depend_on_the_order_of_rows(
    rows: list[tuple[int, tuple[int, int]]], order: random.Random
) -> None:
    shuffled = rows.copy()
    order.shuffle(shuffled)
    one, other = (
        occupancy(
            np.array([number for number, _ in table], dtype=np.int64),
            *columns([each for _, each in table], 1_700_000_000_000_000_000),
            num_groups=5,
        )
        for table in (rows, shuffled)
    )
    for name in ("busy_ns", "sum_ns", "start_ns", "end_ns", "num_intervals"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1 << 61), st.integers(0, 1 << 61)), max_size=16))
def test_groups_that_lie_years_apart_do_not_overflow_into_each_other(rows: list[tuple[int, int, int]]) -> None:
    group = np.array([number for number, _, _ in rows], dtype=np.int64)
    start, end = columns([(min(a, b), max(a, b)) for _, a, b in rows])
    taken = occupancy(group, start, end, num_groups=8)
    for number in range(8):
        reach, busy = None, 0
        for first, last in sorted((min(a, b), max(a, b)) for n, a, b in rows if n == number):
            begin = first if reach is None else max(first, reach)
            busy += max(last - begin, 0)
            reach = last if reach is None else max(reach, last)
        assert int(taken.busy_ns[number]) == busy


def test_eight_groups_of_seventy_years_each_fit() -> None:
    span = 1 << 61
    group = np.repeat(np.arange(8, dtype=np.int64), 2)
    start = np.tile(np.array([0, span - 1], dtype=np.int64), 8)
    taken = occupancy(group, start, start + 1, num_groups=8)
    assert taken.busy_ns.tolist() == [2] * 8
    assert taken.gap_ns.tolist() == [span - 2] * 8


@given(intervals, bases)
def test_segments_are_disjoint_ascending_and_hold_exactly_the_busy_time(
    rows: list[tuple[int, int]], base_ns: int
) -> None:
    start, end = union_segments(*columns(rows, base_ns))
    assert (start[1:] > end[:-1]).all()
    found = zip((start - base_ns).tolist(), (end - base_ns).tolist(), strict=True)
    assert bitmap(list(found)) == bitmap(rows)
    assert int((end - start).sum()) == len(bitmap(rows))


@given(intervals, st.lists(interval, max_size=6), bases)
def test_covered_time_of_a_window_is_the_number_of_busy_nanoseconds_in_it(
    rows: list[tuple[int, int]], windows: list[tuple[int, int]], base_ns: int
) -> None:
    covered = covered_within(*columns(rows, base_ns), *columns(windows, base_ns))
    busy = bitmap(rows)
    assert covered.tolist() == [len(busy & set(range(start, end))) for start, end in windows]


@given(intervals)
def test_a_window_over_everything_covers_the_busy_union(rows: list[tuple[int, int]]) -> None:
    assert covered_within(*columns(rows), *columns([(0, 40)])).tolist() == [busy_union(*columns(rows))]
