"""The interval of a mean over whole passes: exact enumeration, width, coverage, refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moegauge.timing.uncertainty import MIN_PASSES, mean_interval, resamples

passes = st.lists(st.integers(0, 10**9), min_size=6, max_size=8)


def stratum(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)[:, None]


def interval(values: list[int]) -> tuple[float, float]:
    return mean_interval([stratum(*values)])[0]


def plain_percentiles(values: list[int]) -> tuple[float, float]:
    """The 2.5 % and 97.5 % percentiles of the mean over every ordered resample of six passes."""
    every = np.sort(np.array(list(itertools.product(values, repeat=len(values)))).mean(axis=1))
    return float(every[math.ceil(0.025 * len(every)) - 1]), float(every[math.ceil(0.975 * len(every)) - 1])


@pytest.mark.parametrize(("num_passes", "num_resamples"), [(6, 462), (7, 1716), (8, 6435), (9, 24310), (10, 92378)])
def test_every_resample_of_up_to_ten_passes_is_enumerated_once(num_passes: int, num_resamples: int) -> None:
    table = resamples(num_passes)
    assert table.counts.shape == (num_resamples, num_passes)
    assert len(np.unique(table.counts, axis=0)) == num_resamples
    assert (table.counts.sum(axis=1) == num_passes).all()
    assert table.weight.sum() == pytest.approx(1, abs=1e-12)


def test_the_weight_of_a_resample_is_its_multinomial_probability() -> None:
    table = resamples(6)
    for counts, weight in zip(table.counts.astype(int).tolist(), table.weight, strict=True):
        ways = Fraction(math.factorial(6), math.prod(map(math.factorial, counts)))
        assert weight == pytest.approx(float(ways / 6**6), rel=1e-12)


def test_beyond_ten_passes_a_fixed_sample_is_drawn() -> None:
    table = resamples(11)
    assert table.counts.shape == (20_000, 11)
    assert (table.counts.sum(axis=1) == 11).all()
    assert table.weight.sum() == pytest.approx(1, abs=1e-12)
    resamples.cache_clear()
    assert (resamples(11).counts == table.counts).all()


def test_six_passes_with_one_slow_give_the_quantiles_of_a_binomial() -> None:
    # The mean of a resample of (0, 0, 0, 0, 0, 6) is how often the slow pass was drawn: Binomial(6, 1/6), whose
    # distribution function is 0.3349, 0.7368, 0.9377, 0.9913, 0.9993, 1.0000. The upper tail is
    # Phi(-2.571 * sqrt(6 / 5)) = 0.0024, so the bound is 4; the plain 97.5 % percentile would be 3.
    assert interval([0, 0, 0, 0, 0, 6]) == (0.0, 4.0)
    assert plain_percentiles([0, 0, 0, 0, 0, 6]) == (0.0, 3.0)


def test_passes_that_all_agree_leave_no_width() -> None:
    assert interval([463_950] * 6) == (463_950.0, 463_950.0)


@pytest.mark.parametrize("num_passes", range(1, MIN_PASSES))
def test_fewer_than_six_passes_are_refused(num_passes: int) -> None:
    with pytest.raises(ValueError, match=f"{num_passes} passes; an interval needs 6"):
        interval([1] * num_passes)


def test_one_stratum_with_too_few_passes_is_refused_whatever_the_others_have() -> None:
    with pytest.raises(ValueError, match="5 passes; an interval needs 6"):
        mean_interval([stratum(*range(9)), stratum(*range(5))])


@given(passes)
def test_the_interval_contains_the_mean_of_the_passes(values: list[int]) -> None:
    low, high = interval(values)
    mean = sum(values) / len(values)
    assert min(values) <= low <= mean * (1 + 1e-12)
    assert mean * (1 - 1e-12) <= high <= max(values)


@given(st.lists(st.integers(0, 10**9), min_size=11, max_size=14))
def test_a_drawn_interval_contains_the_mean_too(values: list[int]) -> None:
    low, high = interval(values)
    assert min(values) <= low <= sum(values) / len(values) * (1 + 1e-12)
    assert sum(values) / len(values) * (1 - 1e-12) <= high <= max(values)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 10**9), min_size=6, max_size=6))
def test_the_interval_is_never_narrower_than_the_plain_percentile_interval(values: list[int]) -> None:
    low, high = interval(values)
    plain_low, plain_high = plain_percentiles(values)
    assert low <= plain_low * (1 + 1e-12)
    assert high >= plain_high * (1 - 1e-12)


def test_the_interval_is_wider_than_the_plain_percentile_interval() -> None:
    values = [1_003_000, 998_000, 1_010_000, 995_500, 1_001_000, 999_250]
    low, high = interval(values)
    plain_low, plain_high = plain_percentiles(values)
    assert low < plain_low < plain_high < high


@given(passes, st.randoms(use_true_random=False))
def test_the_order_of_the_passes_does_not_matter(values: list[int], order) -> None:  # type: ignore[no-untyped-def]
    shuffled = values.copy()
    order.shuffle(shuffled)
    assert interval(shuffled) == pytest.approx(interval(values), rel=1e-9)


@given(passes, st.integers(0, 10**12))
def test_a_constant_added_to_every_pass_moves_the_interval_by_it(values: list[int], constant: int) -> None:
    low, high = interval(values)
    moved = interval([value + constant for value in values])
    assert moved == pytest.approx((low + constant, high + constant), rel=1e-12, abs=1e-3)


def test_units_are_resampled_together_so_that_drift_cancels_in_their_difference() -> None:
    drift = np.array([0, 40, 10, 80, 30, 60], dtype=np.int64)
    table = np.stack([1000 + drift, 2000 - drift, np.full(6, 3000)], axis=1)
    first, second, total = mean_interval([np.concatenate([table[:, :2], table[:, :2].sum(axis=1)[:, None]], axis=1)])
    assert first[1] - first[0] > 30
    assert second[1] - second[0] > 30
    assert total == (3000.0, 3000.0)


def test_strata_add_up_and_are_drawn_the_same_way_every_time() -> None:
    eager, graph = stratum(100, 104, 98, 101, 99, 103), stratum(50, 50, 50, 50, 50, 50, 50)
    (low, high), again = mean_interval([eager, graph])[0], mean_interval([eager, graph])[0]
    assert (low, high) == again
    alone = mean_interval([eager])[0]
    assert (low, high) == pytest.approx((alone[0] + 50, alone[1] + 50), abs=1.0)
    assert low < 100.8 + 50 < high


def test_the_stratum_with_the_fewest_passes_decides_how_wide_the_tails_are() -> None:
    slow = [0, 0, 0, 0, 0, 6]
    constant = stratum(*([0] * 60))
    low, high = mean_interval([stratum(*slow), constant])[0]
    assert (low, high) == (0.0, 4.0)


def test_the_interval_covers_the_true_mean_in_about_95_of_100_experiments() -> None:
    generator = np.random.default_rng(20)
    table = np.rint(generator.normal(1_000_000, 5_000, size=(7, 3000))).astype(np.int64)
    bounds = np.array(mean_interval([table]))
    covered = ((bounds[:, 0] <= 1_000_000) & (bounds[:, 1] >= 1_000_000)).mean()
    assert 0.93 < covered < 0.98
