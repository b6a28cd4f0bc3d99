"""Three lanes with gates unlike each other are files of examples/lanes, and no code: two bounds, joint, no time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_verdict import codes

from lane_builder import LaneBuilder, block
from moegauge.evidence.toml import read_toml
from moegauge.records.observation import BlockObservation
from moegauge.records.registration import Registration

LANES = Path(__file__).parents[2] / "examples" / "lanes"
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
    return read_toml(LANES / "wider_tile.toml", Registration)


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
    return read_toml(LANES / "portfolio.toml", Registration)


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
    return read_toml(LANES / "counters_only.toml", Registration)


def test_a_lane_without_timing_passes_on_bits_alone_and_has_no_time_figure() -> None:
    lane = LaneBuilder(reg=untimed_lane()).to_authorized()
    runs = [lane.run(lane.observations(name), name) for name in lane.reg.devices.names]
    whole = type(runs[0])(
        runs[0].marker, runs[0].marker_digest, {name: seen for run in runs for name, seen in run.devices.items()}
    )
    judged = lane.gate.judge(whole)
    assert str(judged.status) == PENDING
    assert [one.figures[0].num_wins for one in judged.devices] == [None] * 4
