"""Notes on the devices that isolated passes ran on: an interval covers passes of those devices and no other."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fake_runner import FakeRunner
from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.runners.work import RunCondition
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.fill import Group, fill
from moegauge.jobs.ladder_notes import device_note, pass_notes
from moegauge.jobs.profile_specs import EXACT, InputChoice, SpecSource
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile import PassRecord
from simulator import Recording

ONE = "isolated passes ran on one device: other devices of the model are not included in any interval"


def record(**facts: str) -> PassRecord:
    return PassRecord(
        source="run", capture_digest=None, runner="r", tag=None, launch_mode=None, declared={}, traces={},
        facts=facts, tool_version="0", recorded_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def on(before: str, after: str) -> PassRecord:
    return record(**{"device_uuids.before": before, "device_uuids.after": after})


@pytest.mark.parametrize(
    ("records", "note"),
    [
        ([on("GPU-a", "GPU-a")], (ONE,)),
        ([on("GPU-a", "GPU-a"), on("GPU-a", "GPU-a")], (ONE,)),
        (
            [on("GPU-a", "GPU-a"), on("GPU-b", "GPU-b")],
            ("isolated passes ran on 2 devices: other devices of the model are not included in any interval",),
        ),
        ([record(), record(threads="2")], ()),
        (
            [on("GPU-a", "GPU-a"), record()],
            (ONE.replace(":", " (1 of 2 do not say):"),),
        ),
    ],
    ids=["one", "one in two passes", "two", "none recorded", "recorded in part"],
)
def test_the_note_says_on_how_many_devices_passes_ran(records: list[PassRecord], note: tuple[str, ...]) -> None:
    assert device_note(records) == note


def test_only_the_passes_that_are_used_count(recording: Recording, capture: CaptureFolder, tmp_path: Path) -> None:
    condition = RunCondition(launch_mode=LaunchMode.EAGER, cache_state="in_order")
    groups = [Group(specs=SpecSource(capture).specs(InputChoice(type=EXACT)), condition=condition)]
    with open_profile_db(tmp_path / "profile.db", create=True) as database:
        fill(database, SpecSource(capture), FakeRunner(recording), groups, num_passes=2)
        passes, samples, rows = database.passes(), database.samples(), database.rows()
    other = passes | {99: on("GPU-9", "GPU-9")}
    assert ONE in pass_notes(other, samples, rows)
    assert pass_notes(other, samples.filter(pl.lit(value=False)), rows) == ()
