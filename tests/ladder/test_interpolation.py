"""Interpolation stays inside what was measured, and knows its error."""

from __future__ import annotations

import numpy as np

from moegauge.ladder.predict import Measured, interpolate, leave_one_out
from moegauge.routing.load_features import load_features


def measured(num: int = 60, seed: int = 0) -> Measured:
    """Rows whose time is 2 us plus 1 us a padded block and 0.5 us an active expert."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(1, 64, num).astype(float)
    active = np.minimum(128, rows * 5 + generator.integers(0, 5, num))
    features = np.stack([rows, active, active + rows / 4, rows / 4, rows / 2, rows], axis=1)
    return Measured(features, 1.0 * (1 + features[:, 1] + features[:, 2]) * 1000, np.arange(num) + 100)


def test_a_measured_point_is_predicted_as_it_was_measured() -> None:
    rows = measured()
    found = interpolate(rows, rows.features[:5])
    np.testing.assert_allclose(found.time_ns, rows.time_ns[:5], rtol=1e-6)
    assert (found.rows[:, 0] >= 100).all()
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)


def test_outside_the_measured_range_there_is_no_time() -> None:
    rows = measured()
    far = rows.features[:1] * 10
    found = interpolate(rows, far)
    assert not found.inside[0]
    assert np.isnan(found.time_ns[0])


def test_leave_one_out_never_lets_a_row_see_itself() -> None:
    rows = measured()
    odd = Measured(rows.features, rows.time_ns.copy(), rows.row_id)
    odd.time_ns[7] *= 3
    assert leave_one_out(odd)[7] > 0.5
    assert np.median(leave_one_out(rows)) < 0.05


def test_features_are_rows_active_experts_padded_blocks_and_load_quantiles() -> None:
    ids = np.array([[0, 1], [0, 2], [0, -1]] + [[0, 3]] * 15, dtype=np.int32)
    found = load_features(ids, None, num_experts=4)
    assert found[:3].tolist() == [18.0, 4.0, 5.0]
    assert found[5] == 18.0


def test_experts_of_other_ranks_do_not_count() -> None:
    ids = np.array([[0, 1], [2, 3]], dtype=np.int32)
    expert_map = np.array([0, 1, -1, -1], dtype=np.int32)
    assert load_features(ids, expert_map, num_experts=4)[1] == 2.0
