"""Three lanes with gates unlike each other are registrations, and no code: absolute and relative, joint, no time."""

from __future__ import annotations

from typing import Any

from test_verdict import codes

from lane_builder import LaneBuilder, block, registration
from moegauge.records.observation import BlockObservation
from moegauge.records.registration import Registration

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"


def blocks(lane: LaneBuilder, savings_ns: dict[str, int], incumbent_ns: dict[str, int]) -> Any:
    """A passing run whose blocks save so much per cycle, by subject."""
    found = []
    for kind, fields in lane.observations():
        if kind is not BlockObservation:
            found.append((kind, fields))
            continue
        subject = lane.reg.subject(fields["subject"])
        assert subject.timing is not None
        cycles = subject.timing.cycles_per_arm
        a = incumbent_ns[subject.name] * cycles
        made = block(
            subject.name, fields["block"], fields["first_fixture"], a=a, b=a - savings_ns[subject.name] * cycles
        )
        for name, arm in (("a1", "incumbent"), ("a2", "incumbent"), ("b1", "candidate"), ("b2", "candidate")):
            launches = getattr(subject, arm).launches_per_cycle * cycles
            made[name] = type(made[name])(elapsed_ns=made[name].elapsed_ns, num_launches=launches, throttle="none")
        found.append((kind, made))
    return lane.run(found)


def tile_lane() -> Registration:
    """A wider tile: 24 wins, 0.15 ms and 2 %, the same number of launches, geometry by counter."""
    return registration(
        subjects__0__candidate__launches_per_cycle=94,
        subjects__0__timing={
            "warmup_cycles": 20,
            "num_blocks": 31,
            "cycles_per_arm": 64,
            "min_wins": 24,
            "min_median_saving_ns": 150_000,
            "min_median_saving_ratio": "0.02",
        },
        counters__quantities=[
            {"name": "grid", "metrics": ["launch__grid_size"], "unit": "", "over_launches": "max"},
            {"name": "read_bytes", "metrics": ["bytes.sum"], "unit": "byte", "over_launches": "sum_per_cycle"},
        ],
        counters__rules=[
            {"quantity": "grid", "rule": "equal", "limit": "128"},
            {"quantity": "read_bytes", "rule": "at_most_ratio", "limit": "1.02"},
        ],
    )


def test_a_lane_with_an_absolute_and_a_relative_bound_needs_both() -> None:
    lane = LaneBuilder(reg=tile_lane()).to_authorized()
    saving = {"scale-add": 160_000}
    assert str(lane.gate.judge(blocks(lane, saving, {"scale-add": 8_000_000})).status) == PENDING  # exactly 2 %
    judged = lane.gate.judge(blocks(lane, saving, {"scale-add": 8_000_001}))
    assert (str(judged.status), codes(judged)) == ("COMPONENT_FAILED", ["SAVING_TOO_SMALL"])
    judged = lane.gate.judge(blocks(lane, {"scale-add": 149_999}, {"scale-add": 1_000_000}))
    assert codes(judged) == ["SAVING_TOO_SMALL"]


def portfolio_lane() -> Registration:
    """Two kernels, 15 blocks of 40 cycles, 1.1 times as fast each, 0.3 ms together."""
    first = registration().subjects[0]
    timing = {
        "warmup_cycles": 200,
        "num_blocks": 15,
        "cycles_per_arm": 40,
        "min_wins": 15,
        "min_median_saving_ratio": "1/11",
    }
    tail, grouped = (
        {
            "name": name,
            "incumbent": {"description": name, "kernels": [name], "launches_per_cycle": launches},
            "candidate": {"description": name, "kernels": [f"{name}_new"], "launches_per_cycle": 48},
            "calls_per_cycle": 48,
            "boundaries": [{"name": "out", "dtype": "bfloat16", "shape": [12, 64]}],
            "corpus": [{"name": "random", "num_fixtures": 12}],
            "exactness": {
                "num_repeats": first.exactness.num_repeats,
                "repeat_fixtures": ["random/3"],
                "poison_words": [1, 2],
                "incumbent_vs_oracle": "equal",
            },
            "timing": timing,
        }
        for name, launches in (("tail", 96), ("grouped", 48))
    )
    return registration(subjects=[tail, grouped], joint={"min_sum_of_median_savings_ns": 300_000})


def test_a_portfolio_passes_by_the_sum_of_its_savings() -> None:
    lane = LaneBuilder(reg=portfolio_lane()).to_authorized()
    before = {"tail": 699_566, "grouped": 400_000}
    assert str(lane.gate.judge(blocks(lane, {"tail": 257_275, "grouped": 50_977}, before)).status) == PENDING
    judged = lane.gate.judge(blocks(lane, {"tail": 249_022, "grouped": 50_977}, before))
    assert (str(judged.status), codes(judged)) == ("COMPONENT_FAILED", ["JOINT_SAVING_TOO_SMALL"])


def test_a_portfolio_does_not_rescue_a_kernel_that_misses_its_own_bound() -> None:
    lane = LaneBuilder(reg=portfolio_lane()).to_authorized()
    judged = lane.gate.judge(blocks(lane, {"tail": 300_000, "grouped": 10_000}, {"tail": 699_566, "grouped": 400_000}))
    assert codes(judged) == ["SAVING_TOO_SMALL"]


def untimed_lane() -> Registration:
    """A reused buffer: bits on four devices and a counter of allocations; no time is claimed."""
    return registration(
        subjects__0__timing=None,
        subjects__0__candidate__launches_per_cycle=94,
        subjects__0__exactness__incumbent_vs_oracle="not_compared",
        devices={"names": ["card0", "card1", "card2", "card3"], "throttle": "recorded"},
        counters__quantities=[
            {"name": "allocated", "metrics": ["allocated_bytes"], "unit": "byte", "over_launches": "sum_per_cycle"}
        ],
        counters__rules=[{"quantity": "allocated", "rule": "at_most", "limit": "0"}],
    )


def test_a_lane_without_timing_passes_on_bits_alone_and_has_no_time_figure() -> None:
    lane = LaneBuilder(reg=untimed_lane()).to_authorized()
    runs = [lane.run(lane.observations(name), name) for name in lane.reg.devices.names]
    whole = type(runs[0])(
        runs[0].marker, runs[0].marker_digest, {name: seen for run in runs for name, seen in run.devices.items()}
    )
    judged = lane.gate.judge(whole)
    assert str(judged.status) == PENDING
    assert [one.figures[0].num_wins for one in judged.devices] == [None] * 4
