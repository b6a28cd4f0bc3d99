"""Effects, residual and padded rows: what was planted is recovered within its interval, and everything adds up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from moegauge.ladder.alignment import CHOSEN_BY, Alignment, Choice, MeasuredWork, ServedWork, align_work
from moegauge.ladder.explain import Changed, explain, padded_cost
from moegauge.records.explanation import Explanation

NUM = 40
PASSES = 7
LAYERS = 10


def aligned(
    served_ns: np.ndarray, mean_ns: np.ndarray, *, seed: int, spread: float = 0.002, first_pass: int = 1
) -> Alignment:
    """Invocations served in ``served_ns`` and measured around ``mean_ns`` in seven passes with common drift."""
    generator = np.random.default_rng(seed)
    places = [(index // LAYERS, index % LAYERS) for index in range(NUM)]
    iteration, layer = (pl.Series([p[i] for p in places], dtype=pl.Int32) for i in range(2))
    served = pl.DataFrame(
        {
            "iteration": iteration,
            "layer": layer,
            "rank": pl.Series([0] * NUM, dtype=pl.Int32),
            "busy_ns": pl.Series(served_ns, dtype=pl.Int64),
            "zero_tokens": [False] * NUM,
            "timing_code": pl.Series([None] * NUM, dtype=pl.String),
            "routed_code": pl.Series([None] * NUM, dtype=pl.String),
            "launch_mode": ["eager"] * NUM,
            "match": [f"m{index}" for index in range(NUM)],
            "kernels_digest": ["k"] * NUM,
        }
    )
    rows = pl.DataFrame(
        {
            "row_id": list(range(NUM)),
            "match": [f"m{index}" for index in range(NUM)],
            "launch_mode": ["eager"] * NUM,
            "cache_state": pl.Series(["warm"] * NUM, dtype=pl.String),
            "co_running": pl.Series([None] * NUM, dtype=pl.String),
            "kernel_config": pl.Series([None] * NUM, dtype=pl.String),
            "ranks": pl.Series([None] * NUM, dtype=pl.String),
        }
    )
    samples = pl.DataFrame(
        [
            (index, first_pass + number, *places[index], 0, round(mean * drift * generator.normal(1, spread)), "k")
            for number in range(PASSES)
            for drift in [generator.normal(1, spread)]
            for index, mean in enumerate(mean_ns)
        ],
        schema=["row_id", "pass_id", "iteration", "layer", "rank", "busy_ns", "kernels_digest"],
        orient="row",
    ).with_columns(clocks=pl.lit(None, dtype=pl.String))
    return align_work(ServedWork(served, 1, (), ""), MeasuredWork(rows, samples), Choice("as-served", None))


def add_up(found: Explanation) -> int:
    return sum(effect.effect_ns for effect in found.effects) + found.residual_ns


def test_a_planted_cache_effect_is_recovered_within_its_interval_and_leaves_no_residual() -> None:
    warm = np.full(NUM, 100_000)
    cold = np.full(NUM, 118_000)
    served = np.full(NUM, 118_000)
    base = aligned(served, warm, seed=1)
    found = explain(base, [Changed("cache_state", "warm", "cold", aligned(served, cold, seed=2, first_pass=20))], None)
    assert found is not None
    (effect,) = found.effects
    assert effect.interval_ns is not None
    assert effect.interval_ns[0] <= -18_000 * NUM <= effect.interval_ns[1]
    assert found.residual_interval_ns is not None
    assert found.residual_interval_ns[0] <= 0 <= found.residual_interval_ns[1]
    assert add_up(found) == found.diff_ns


def test_two_conditions_and_an_unexplained_part_are_told_apart() -> None:
    base_ns, cold_ns, graph_ns, served_ns = 100_000, 110_000, 104_000, 117_000
    served = np.full(NUM, served_ns)
    base = aligned(served, np.full(NUM, base_ns), seed=18)
    changed = [
        Changed("cache_state", "warm", "cold", aligned(served, np.full(NUM, cold_ns), seed=4, first_pass=20)),
        Changed("launch_mode", "eager", "graph", aligned(served, np.full(NUM, graph_ns), seed=19, first_pass=40)),
    ]
    found = explain(base, changed, None)
    assert found is not None
    for effect, planted in zip(found.effects, (-10_000, -4_000), strict=True):
        assert effect.interval_ns is not None
        assert effect.interval_ns[0] <= planted * NUM <= effect.interval_ns[1]
    assert found.residual_interval_ns is not None
    assert found.residual_interval_ns[0] <= -3_000 * NUM <= found.residual_interval_ns[1]
    assert add_up(found) == found.diff_ns
    assert sum(e.share_ratio or 0 for e in found.effects) + found.residual_ns / found.diff_ns == pytest.approx(1.0)


def test_a_condition_that_changes_nothing_has_an_effect_of_exactly_nothing() -> None:
    served = np.full(NUM, 101_000)
    base = aligned(served, np.full(NUM, 100_000), seed=6)
    found = explain(base, [Changed("launch_mode", "eager", "as-served", base)], None)
    assert found is not None
    assert (found.effects[0].effect_ns, found.effects[0].interval_ns) == (0, (0, 0))
    assert found.residual_ns == found.diff_ns


def test_nothing_measured_both_ways_explains_nothing() -> None:
    served = np.full(NUM, 101_000)
    base = aligned(served, np.full(NUM, 100_000), seed=7)
    nothing = align_work(
        _served_again(served),
        MeasuredWork(_no_rows(), _no_samples()),
        Choice("as-served", None),
    )
    assert explain(base, [Changed("cache_state", "warm", "cold", nothing)], None) is None


def _served_again(served_ns: np.ndarray) -> ServedWork:
    places = [(index // LAYERS, index % LAYERS) for index in range(NUM)]
    rows = [
        (iteration, layer, 0, int(ns), False, None, None, "eager", f"m{number}", "k")
        for number, ((iteration, layer), ns) in enumerate(zip(places, served_ns, strict=True))
    ]
    schema = {
        "iteration": pl.Int32, "layer": pl.Int32, "rank": pl.Int32, "busy_ns": pl.Int64, "zero_tokens": pl.Boolean,
        "timing_code": pl.String, "routed_code": pl.String, "launch_mode": pl.String, "match": pl.String,
        "kernels_digest": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return ServedWork(frame, 1, (), "")


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema={"row_id": pl.Int64} | dict.fromkeys(CHOSEN_BY, pl.String))


def _no_samples() -> pl.DataFrame:
    whole = dict.fromkeys(("row_id", "pass_id", "iteration", "layer", "rank", "busy_ns"), pl.Int64)
    return pl.DataFrame(schema=whole | {"kernels_digest": pl.String, "clocks": pl.String})


def test_padded_rows_are_counted_and_timed_over_padded_invocations_only() -> None:
    served = np.full(NUM, 100_000)
    base = aligned(served, np.full(NUM, 100_000), seed=8, spread=0.0)
    without = aligned(served, np.full(NUM, 80_000), seed=9, spread=0.0, first_pass=20)
    executed = np.full(NUM, 24)
    logical = np.where(np.arange(NUM) < 10, 18, 24)
    found = padded_cost(base, without, executed, logical)
    assert found is not None
    assert (found.num_invocations, found.padded_rows, found.executed_rows) == (10, 60, 240)
    assert (found.rows_ratio, found.time_ratio) == (0.25, 0.2)
    assert padded_cost(base, without, executed, executed) is None
