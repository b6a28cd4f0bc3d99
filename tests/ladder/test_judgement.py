"""Every rule of the verdict, the order of the rules, their boundaries, and when agreement is cancellation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import NO_LABELS
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.align import align, exit_status, ladder_settings
from moegauge.jobs.profile_import import import_replay
from moegauge.ladder.judgement import Question, Units, is_cancellation, judge, relative_interval
from moegauge.records.comparison import LadderReport
from moegauge.records.decision import Status, worst
from simulator import NAMES, Recording, RoleTime, TraceBuilder, steady_time

GOOD = Question(
    left_ns=1_000_000,
    right_ns=1_001_000,
    interval=(-0.001, 0.003),
    num_passes=7,
    tolerance=0.02,
    differing=(),
    num_kernel_sets_differ=0,
    num_unmatched=0,
)

RULES: list[tuple[str, Status, dict[str, Any]]] = [
    ("LEFT_IS_ZERO", Status.UNAVAILABLE, {"left_ns": 0}),
    ("TOO_FEW_PASSES", Status.INCONCLUSIVE, {"interval": None, "num_passes": 5}),
    ("CONDITION_DIFFERS", Status.INCONCLUSIVE, {"differing": ("torch", "clocks")}),
    ("KERNEL_SET_DIFFERS", Status.INCONCLUSIVE, {"num_kernel_sets_differ": 3}),
    ("BEYOND_TOLERANCE", Status.DIVERGED, {"interval": (0.03, 0.05)}),
    ("STRADDLES_TOLERANCE", Status.INCONCLUSIVE, {"interval": (0.01, 0.05)}),
    ("NOT_ALL_MATCHED", Status.INCONCLUSIVE, {"num_unmatched": 2}),
    ("WITHIN_TOLERANCE", Status.MATCH, {}),
]
"""In the order in which they are applied."""


@pytest.mark.parametrize(("code", "status", "change"), RULES, ids=[code for code, _, _ in RULES])
def test_each_rule_alone_decides(code: str, status: Status, change: dict[str, Any]) -> None:
    found, why = judge(replace(GOOD, **change))
    assert (found, why.code) == (status, code)
    assert why.sentence


@given(st.sets(st.sampled_from(range(len(RULES))), min_size=1))
def test_where_several_rules_apply_the_first_decides(chosen: set[int]) -> None:
    change: dict[str, Any] = {}
    for index in sorted(chosen, reverse=True):
        change |= RULES[index][2]
    found, why = judge(replace(GOOD, **change))
    code, status, _ = RULES[min(chosen)]
    assert (found, why.code) == (status, code)


def test_a_sentence_names_the_numbers_it_rests_on() -> None:
    def said(**change: Any) -> str:
        return judge(replace(GOOD, **change))[1].sentence

    assert said() == "+0.100% [-0.100%, +0.300%] lies inside ±2.0%"
    assert said(interval=None, num_passes=1) == (
        "1 of 6 passes measured; the point estimate is +0.100%, without an interval"
    )
    assert "torch, clocks differs" in said(differing=("torch", "clocks"))
    assert "3 invocations ran other kernels" in said(num_kernel_sets_differ=3)
    assert "2 captured invocations have no counterpart" in said(num_unmatched=2)


@pytest.mark.parametrize(
    ("interval", "status"),
    [
        ((-0.02, 0.02), Status.MATCH),
        ((0.02, 0.02), Status.MATCH),
        ((0.0, 0.0200001), Status.INCONCLUSIVE),
        ((-0.0200001, 0.0), Status.INCONCLUSIVE),
        ((0.02, 0.03), Status.INCONCLUSIVE),
        ((-0.03, -0.02), Status.INCONCLUSIVE),
        ((0.0200001, 0.03), Status.DIVERGED),
        ((-0.03, -0.0200001), Status.DIVERGED),
        ((-0.5, 0.5), Status.INCONCLUSIVE),
    ],
)
def test_the_tolerance_itself_still_agrees(interval: tuple[float, float], status: Status) -> None:
    assert judge(replace(GOOD, interval=interval))[0] == status


@given(
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(sorted).map(tuple),
    st.floats(0.001, 0.5),
)
def test_match_is_inside_diverged_is_outside_and_everything_else_is_open(
    interval: tuple[float, float], tolerance: float
) -> None:
    low, high = interval
    inside = [-tolerance <= bound <= tolerance for bound in interval]
    apart = low > tolerance or high < -tolerance
    expected = Status.MATCH if all(inside) else Status.DIVERGED if apart else Status.INCONCLUSIVE
    assert judge(replace(GOOD, interval=interval, tolerance=tolerance))[0] == expected
    mirrored = (-high, -low)
    assert judge(replace(GOOD, interval=mirrored, tolerance=tolerance))[0] == expected


def test_the_worst_status_is_diverged_then_unavailable_then_inconclusive_then_match() -> None:
    order = [Status.DIVERGED, Status.UNAVAILABLE, Status.INCONCLUSIVE, Status.MATCH]
    for index, status in enumerate(order):
        assert worst(order[index:]) == status
        assert worst(reversed(order[index:])) == status


def test_no_comparison_at_all_is_unavailable() -> None:
    assert worst([]) == Status.UNAVAILABLE


def passes(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_the_interval_of_a_relative_difference_is_that_of_the_total_over_left() -> None:
    assert relative_interval(1000, [passes(1010, 1010, 1010, 1010, 1010, 1010)]) == (0.01, 0.01)
    # One slow pass of six: resampled means lie between 1000 and 1004 (see timing/test_uncertainty).
    assert relative_interval(1000, [passes(1000, 1000, 1000, 1000, 1000, 1006)]) == (0.0, 0.004)


def test_there_is_no_interval_with_too_few_passes_or_nothing_or_a_left_of_zero() -> None:
    six, five = passes(1, 2, 3, 4, 5, 6), passes(1, 2, 3, 4, 5)
    assert relative_interval(1000, [five]) is None
    assert relative_interval(1000, [six, five]) is None
    assert relative_interval(1000, []) is None
    assert relative_interval(0, [six]) is None


def test_two_measured_sides_differ_by_both_their_spreads() -> None:
    right, left = passes(1010, 1010, 1010, 1010, 1010, 1010), passes(1000, 1000, 1000, 1000, 1000, 1000)
    assert relative_interval(1000, [right], [left]) == (0.01, 0.01)
    wide = relative_interval(1000, [right], [passes(1000, 1000, 1000, 1000, 1000, 1006)])
    assert wide == pytest.approx((0.006, 0.01), abs=5e-4)


# CANCELLATION


def flagged(left: list[int], table: np.ndarray, *, tolerance: float = 0.02) -> bool:
    units = Units(passes(*left), subtract_left=True, samples=[(np.arange(len(left)), table)])
    return is_cancellation(units, tolerance=tolerance)


def steady(differences: list[int], num_passes: int = 7) -> np.ndarray:
    """Passes without noise: each unit (of 1000 ns) always differs by so much."""
    return np.tile(1000 + np.array(differences, dtype=np.int64), (num_passes, 1))


TEN = [1000] * 10
"""Ten units: 2 % of the total are 200 ns, half the tolerance is 100 ns."""


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        (150, 150, True),
        (101, 101, True),
        (100, 100, False),  # together exactly the tolerance
        (101, 100, False),  # the smaller side is exactly half of it
        (100, 101, False),
        (301, 101, True),  # the total is exactly the tolerance
        (302, 101, False),  # the total diverges by itself
        (101, 302, False),
        (500, 0, False),
        (0, 0, False),
    ],
)
def test_cancellation_needs_a_total_within_and_both_sides_beyond_half_the_tolerance(
    positive: int, negative: int, expected: bool
) -> None:
    assert flagged(TEN, steady([positive, -negative] + [0] * 8)) is expected


@given(st.integers(2, 40), st.integers(0, 10**6), st.sampled_from([6, 7, 8]))
def test_planted_cancellation_is_flagged_in_noise(num_units: int, seed: int, num_passes: int) -> None:
    generator = np.random.default_rng(seed)
    left = generator.integers(80_000, 120_000, 2 * num_units)
    shift = np.repeat([0.10, -0.10], num_units)
    shift[num_units:] *= left[:num_units].sum() / left[num_units:].sum()
    table = left * (1 + shift + generator.normal(0, 0.005, (num_passes, 2 * num_units)))
    assert flagged(left.tolist(), np.rint(table).astype(np.int64))


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_a_difference_to_one_side_is_no_cancellation(num_units: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    left = generator.integers(80_000, 120_000, num_units)
    table = left * (1.10 + generator.normal(0, 0.005, (7, num_units)))
    assert not flagged(left.tolist(), np.rint(table).astype(np.int64))


@pytest.mark.parametrize("num_passes", [6, 7])
@pytest.mark.parametrize("num_units", [2, 11, 48])
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03, 0.05])
def test_noise_alone_is_never_flagged(num_passes: int, num_units: int, noise: float) -> None:
    for seed in range(40):
        generator = np.random.default_rng((seed, num_units, num_passes))
        left = generator.integers(50_000, 150_000, num_units)
        table = np.rint(left * (1 + generator.normal(0, noise, (num_passes, num_units)))).astype(np.int64)
        assert not flagged(left.tolist(), table), f"seed {seed}"


def test_drift_that_whole_passes_share_is_never_flagged() -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        left = generator.integers(50_000, 150_000, 48)
        drift = generator.normal(0, 0.05, (7, 1))
        table = np.rint(left * (1 + drift + generator.normal(0, 0.002, (7, 48)))).astype(np.int64)
        assert not flagged(left.tolist(), table), f"seed {seed}"


def test_units_whose_interval_contains_no_difference_do_not_count() -> None:
    wild = np.array([[1600, 400], [400, 1600], [1700, 300], [300, 1700], [1900, 100], [700, 1300], [1500, 500]])
    assert abs(wild.mean(axis=0) - 1000).min() > 100
    assert not flagged([1000, 1000], wild)
    for wild_side, steady_side in ((150, -150), (-150, 150)):
        table = steady([wild_side, steady_side] + [0] * 8)
        assert flagged(TEN, table)
        table[:, 0] += np.array([800, -800, 900, -900, 700, -700, 0])
        assert not flagged(TEN, table)


def test_too_few_passes_or_nothing_measured_flag_nothing() -> None:
    assert flagged(TEN, steady([300, -300] + [0] * 8, num_passes=6))
    assert not flagged(TEN, steady([300, -300] + [0] * 8, num_passes=5))
    assert not is_cancellation(Units(passes(*TEN), subtract_left=True, samples=[]), tolerance=0.02)
    assert not flagged([0, 0], steady([-700, -1300])[:, :2])


def test_a_unit_measured_in_two_strata_is_the_sum_of_both() -> None:
    first = (np.array([0, 1, 2]), np.tile(passes(600, 1000, 850), (7, 1)))
    second = (np.array([0]), np.full((8, 1), 550, dtype=np.int64))
    units = Units(passes(1000, 1000, 1000), subtract_left=True, samples=[first, second])
    assert is_cancellation(units, tolerance=0.02)
    assert not is_cancellation(replace(units, samples=[first]), tolerance=0.02)


def test_two_measured_sides_cancel_like_a_served_and_a_measured_one() -> None:
    right, left = steady([150, -150] + [0] * 8), -steady([0] * 10)
    index = np.arange(10)
    units = Units(passes(*TEN), subtract_left=False, samples=[(index, right), (index, left)])
    assert is_cancellation(units, tolerance=0.02)
    assert not is_cancellation(replace(units, samples=[(index, steady([0] * 10)), (index, left)]), tolerance=0.02)


# The same rules through import and align


def measured(
    capture: CaptureFolder,
    folder: Path,
    replay: Callable[[int], tuple[Recording, float]],
    *,
    num_passes: int = 7,
    change: Callable[[TraceBuilder], object] = lambda trace: None,
) -> LadderReport:
    """The ladder over passes that a function chooses: pass number -> recording and scale."""
    for number in range(num_passes):
        recording, scale = replay(number)
        for kind in ("replay", "graph_replay"):
            trace: TraceBuilder = getattr(recording, kind)(scale=scale, offset_ns=number)
            change(trace)
            path = folder / f"{kind}{number}.json"
            path.write_bytes(trace.data())
            import_replay(capture.path, [path], folder / "profile.db", labels=NO_LABELS)
    return align(capture.path, folder / "profile.db", folder / "report", settings=ladder_settings())


def judged(report: LadderReport) -> list[tuple[str, str]]:
    """(status, code) of the capture-wide pairs of rungs 1 and 2."""
    return [(r.capture_wide.status, r.capture_wide.reason.code) for r in report.rungs[:2] if r.capture_wide]


def other_time(time: Callable[[int, int], float]) -> RoleTime:
    """Role times scaled by iteration and layer."""
    return lambda iteration, layer, rank, role: round(
        steady_time(iteration, layer, rank, role) * time(iteration, layer)
    )


def test_seven_passes_half_a_percent_slower_match_and_claims_stop_at_the_rungs_not_measured(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    report = measured(capture, tmp_path, lambda number: (recording, 1.005 + number / 10_000))
    assert judged(report) == [("MATCH", "WITHIN_TOLERANCE")] * 2
    assert [rung.status for rung in report.rungs] == ["MATCH"] * 2 + ["UNAVAILABLE"] * 3
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (None, 3)
    assert exit_status(report) == 2


def test_seven_passes_ten_percent_slower_diverge_at_rung_1(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    report = measured(capture, tmp_path, lambda number: (recording, 1.10 + number / 10_000))
    assert judged(report) == [("DIVERGED", "BEYOND_TOLERANCE")] * 2
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (1, 1)
    assert exit_status(report) == 1


def test_passes_that_scatter_over_the_tolerance_are_inconclusive(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    report = measured(capture, tmp_path, lambda number: (recording, 0.98 + number / 75))
    assert judged(report) == [("INCONCLUSIVE", "STRADDLES_TOLERANCE")] * 2
    assert exit_status(report) == 2


def test_five_passes_are_too_few(recording: Recording, capture: CaptureFolder, tmp_path: Path) -> None:
    report = measured(capture, tmp_path, lambda number: (recording, 1.10), num_passes=5)
    assert judged(report) == [("INCONCLUSIVE", "TOO_FEW_PASSES")] * 2
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (None, 1)


def test_another_driver_on_the_isolated_side_is_inconclusive_and_named(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    def newer(trace: TraceBuilder) -> None:
        trace.head["cuda_driver_version"] = 13010

    report = measured(capture, tmp_path, lambda number: (recording, 1.0), change=newer)
    assert judged(report) == [("INCONCLUSIVE", "CONDITION_DIFFERS")] * 2
    assert "cuda_driver" in report.rungs[0].reason.sentence
    assert exit_status(report) == 2


def test_another_kernel_of_the_same_role_on_the_isolated_side_is_inconclusive(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    def renamed(trace: TraceBuilder) -> None:
        for event in trace.events:
            if event["name"] == NAMES["gemm"]:
                event["name"] = "fused_moe_kernel_tuned"

    report = measured(capture, tmp_path, lambda number: (recording, 1.0), change=renamed)
    assert judged(report) == [("INCONCLUSIVE", "KERNEL_SET_DIFFERS")] * 2
    assert "9 invocations ran other kernels" in report.rungs[0].reason.sentence


def test_a_slow_prefill_hidden_by_fast_decodes_is_cancellation_and_not_a_match(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    skewed = Recording(time=other_time(lambda iteration, layer: (1.10, 0.95, 0.95)[iteration]))
    report = measured(capture, tmp_path, lambda number: (skewed, 1.0 + number / 20_000))
    wide = report.rungs[1].capture_wide
    assert wide is not None
    assert wide.relative_ratio is not None
    assert abs(wide.relative_ratio) < 0.01
    assert wide.status == Status.MATCH
    assert "CANCELLATION" in wide.flags
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (1, 1)
    assert exit_status(report) == 1


def test_layers_that_cancel_within_the_selected_iteration_are_flagged_on_rung_2(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    skewed = Recording(time=other_time(lambda iteration, layer: (1.06, 1.0, 0.94)[layer]))
    report = measured(capture, tmp_path, lambda number: (skewed, 1.0 + number / 20_000))
    assert report.rungs[1].selected is not None
    assert "CANCELLATION" in report.rungs[1].selected.flags
    assert report.rungs[1].capture_wide is not None
    assert "CANCELLATION" not in report.rungs[1].capture_wide.flags
    assert report.verdict.first_divergence == 2
    assert exit_status(report) == 1


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.4])
def test_noise_alone_is_never_flagged_however_large(noise):
    flagged = []
    for num_passes in (6, 7):
        for num_units in (4, 31, 48):
            for seed in range(60):
                g = np.random.default_rng(seed)
                left = g.integers(50_000, 150_000, num_units)
                table = np.rint(left * (1 + g.normal(0, noise, (num_passes, num_units)))).astype(np.int64)
                if is_cancellation(
                    Units(left, subtract_left=True, samples=[(np.arange(num_units), table)]), tolerance=0.02
                ):
                    flagged.append((num_passes, num_units, seed))
    assert flagged == []
