"""What was read around the chunks of a pass: both ends are kept, and whatever lay outside of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fake_runner import FakeRunner
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import RunCondition
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.fill import Group, fill
from moegauge.jobs.ladder_notes import device_note, pass_conditions, pass_notes
from moegauge.jobs.pass_facts import PassFacts, readings_of
from moegauge.jobs.profile_specs import EXACT, InputChoice, SpecSource
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile import PassRecord
from simulator import Recording

EAGER = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="in_order")


def facts_of(name: str, *chunks: tuple[str, str]) -> dict[str, str]:
    facts = PassFacts()
    for before, after in chunks:
        facts.add({name: before}, {name: after}, {})
    return facts.facts()


@pytest.mark.parametrize(
    ("chunks", "kept"),
    [
        ([("1.50", "2.25")], {"before": "1.50", "after": "2.25"}),
        ([("1.50", "1.75"), ("2.00", "2.25")], {"before": "1.50", "after": "2.25"}),
        ([("1.50", "9.00"), ("10.00", "2.25")], {"before": "1.50", "after": "2.25", "min": "1.50", "max": "10.00"}),
        ([("1.50", "0.75"), ("2.00", "2.25")], {"before": "1.50", "after": "2.25", "min": "0.75", "max": "2.25"}),
        ([("none", "none")], {"before": "none", "after": "none"}),
        ([("none", "hot"), ("hot", "hot")], {"before": "none", "after": "hot"}),
        (
            [("none", "hot"), ("capped, hot", "none")],
            {"before": "none", "after": "none", "seen": "none | hot | capped, hot"},
        ),
    ],
)
def test_the_ends_are_kept_and_what_lies_outside_of_them(chunks: list[tuple[str, str]], kept: dict[str, str]) -> None:
    assert facts_of("fact", *chunks) == {f"fact.{when}": value for when, value in kept.items()}


def test_ns_of_two_instruments_are_added_up_over_the_chunks() -> None:
    facts = PassFacts()
    facts.add({}, {}, {"event_ns": 70, "profiler_span_ns": 60})
    facts.add({}, {}, {"event_ns": 7, "profiler_span_ns": 6})
    assert facts.facts() == {"event_ns.after": "77", "profiler_span_ns.after": "66"}


def record(**facts: str) -> PassRecord:
    return PassRecord(
        source="run", capture_digest=None, runner="r", tag=None, launch_mode=None, declared={}, traces={},
        facts=facts, tool_version="0", recorded_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def test_readings_are_found_by_rank_and_no_other_fact_is_among_them() -> None:
    kept = record(
        **{
            "power_mw.before": "1", "power_mw.after": "2", "power_mw.max": "9", "power_limit_mw.before": "7",
            "throttle.rank0.before": "none", "throttle.rank1.after": "hot", "throttle.rank1.seen": "none | hot",
            "threads": "2",
        }
    )  # fmt: skip
    assert readings_of(kept, "power_mw") == {None: ["1", "2", "9"]}
    assert readings_of(kept, "throttle") == {0: ["none"], 1: ["hot", "none", "hot"]}
    assert readings_of(kept, "threads") == {None: ["2"]}
    assert readings_of(kept, "power") == {}


def test_a_throttle_between_the_ends_of_a_pass_is_a_condition_of_it() -> None:
    quiet = facts_of("throttle", ("none", "none"), ("none", "none"))
    capped = facts_of("throttle", ("none", "sw_power_cap"), ("none", "none"))
    assert pass_conditions(record(**quiet))["throttle"].value == "none"
    assert pass_conditions(record(**capped))["throttle"].value == "sw_power_cap"


def test_the_devices_of_ranks_that_ran_together_are_one_condition_by_rank_and_two_devices() -> None:
    facts = {f"device_uuids.rank{rank}.{when}": f"GPU-{10 - rank}" for rank in (0, 1) for when in ("before", "after")}
    assert pass_conditions(record(**facts))["device_uuids"].value == "GPU-10, GPU-9"
    (note,) = device_note([record(**facts)])
    assert note.startswith("isolated passes ran on 2 devices:")


@dataclass
class Clocked(FakeRunner):
    """Reads the clocks a test gives, two a chunk."""

    clocks: Iterator[int] = field(default_factory=lambda: iter(()))

    def surroundings(self) -> dict[str, str]:
        return {"sm_clock_mhz": str(next(self.clocks))}


def filled(
    recording: Recording, capture: CaptureFolder, db: Path, clocks: Sequence[int], works_at_once: int
) -> PassRecord:
    groups = [Group(specs=SpecSource(capture).specs(InputChoice(type=EXACT)), condition=EAGER)]
    runner = Clocked(recording, works_at_once=works_at_once, clocks=iter(clocks))
    with open_profile_db(db, create=True) as database:
        fill(database, SpecSource(capture), runner, groups, num_passes=1)
        (found,) = database.passes().values()
        notes = pass_notes(database.passes(), database.samples(), database.rows())
        assert f"isolated passes, SM clock: {min(clocks)} to {max(clocks)} MHz" in notes
    return found


def test_what_is_read_around_every_chunk_of_a_pass_is_in_its_record(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    clocks = [1980, 1970, 1960, 1200, 1950, 1940]
    record = filled(recording, capture, tmp_path / "three.db", clocks, works_at_once=3)
    assert record.facts == {
        "sm_clock_mhz.before": "1980",
        "sm_clock_mhz.after": "1940",
        "sm_clock_mhz.min": "1200",
        "sm_clock_mhz.max": "1980",
        "event_ns.after": str(3 * 77),
        "profiler_span_ns.after": record.facts["profiler_span_ns.after"],
    }
    whole = filled(recording, capture, tmp_path / "one.db", [1980, 1970], works_at_once=9)
    assert set(whole.facts) == {"sm_clock_mhz.before", "sm_clock_mhz.after", "event_ns.after", "profiler_span_ns.after"}


def test_a_pass_that_is_cut_off_says_what_was_read_until_then(
    recording: Recording, capture: CaptureFolder, tmp_path: Path
) -> None:
    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    runner = Clocked(recording, works_at_once=3, clocks=iter([1980, 1970, 1400, 1300, 1200]), before=interrupt)
    groups = [Group(specs=SpecSource(capture).specs(InputChoice(type=EXACT)), condition=EAGER)]
    with open_profile_db(tmp_path / "profile.db", create=True) as database:
        with pytest.raises(KeyboardInterrupt):
            fill(database, SpecSource(capture), runner, groups, num_passes=1)
        (found,) = database.passes().values()
        assert database.samples().height == 6
    assert (found.facts["sm_clock_mhz.before"], found.facts["sm_clock_mhz.after"]) == ("1980", "1300")
