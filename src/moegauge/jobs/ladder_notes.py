"""What a report says beside its rungs: facts of the passes, drift between them, and the identity of rungs 3 to 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from moegauge.adapters.profile_db import ProfileRow
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.pass_facts import readings_of
from moegauge.ladder.alignment import Alignment
from moegauge.records.comparison import Rung
from moegauge.records.measurement import TOGETHER, Fact, Facts
from moegauge.records.profile import PassRecord

_RANGES = {"sm_clock_mhz": "SM clock", "power_mw": "power", "temperature_c": "temperature"}
_UNITS = {"sm_clock_mhz": "MHz", "power_mw": "mW", "temperature_c": "°C"}


def pass_conditions(record: PassRecord) -> Facts:
    """Conditions that were read around a pass: device identity by rank, and every throttle reason that was seen."""
    found: Facts = {}
    uuids = readings_of(record, "device_uuids")
    if uuids:
        by_rank = [", ".join(sorted(set(uuids[rank]))) for rank in sorted(uuids, key=lambda rank: rank or 0)]
        found["device_uuids"] = Fact(value=", ".join(by_rank), source="trace")
    reasons = [reason for readings in readings_of(record, "throttle").values() for reason in readings]
    if reasons:
        found["throttle"] = Fact(value=", ".join(sorted(set(reasons) - {"none"}) or ["none"]), source="trace")
    return found


def pass_clocks(record: PassRecord) -> str | None:
    """Clocks that were read around a pass, as ``SM 1935 to 1980 MHz, memory 3201 MHz``; None where none was."""
    parts = []
    for name, words in (("sm_clock_mhz", "SM"), ("memory_clock_mhz", "memory")):
        read = {record.facts[key] for key in (f"{name}.before", f"{name}.after") if key in record.facts}
        if read:
            parts.append(f"{words} {' to '.join(sorted(read, key=lambda text: (len(text), text)))} MHz")
    return ", ".join(parts) or None


def capture_notes(capture: CaptureFolder, work: Alignment) -> tuple[str, ...]:
    """What the capture itself says."""
    notes = ["one serving capture: serving variation is not included in any interval"]
    both = (work.left_rank >= 0) & (work.right_rank >= 0) & work.covered
    if capture.record.topology.world_size > 1 and both.any():
        same = int((work.left_rank == work.right_rank)[both].sum())
        notes.append(f"same critical rank on both sides in {same} of {int(both.sum())} invocations")
    if capture.record.partial:
        notes.append("the capture is partial: a declared rank was not recorded")
    notes += [f"{finding.code}: {finding.num} {finding.sentence}" for finding in capture.record.findings]
    return tuple(notes)


def pass_notes(passes: Mapping[int, PassRecord], samples: pl.DataFrame, used: Sequence[ProfileRow]) -> tuple[str, ...]:
    """Drift between the passes of each set of rows measured together, and the range of what was read around them."""
    mine = samples.filter(pl.col("row_id").is_in([row.row_id for row in used]))
    if mine.is_empty():
        return ()
    by_row = mine.group_by("row_id").agg(pl.col("pass_id").unique().sort().alias("passes"))
    totals = mine.join(by_row, on="row_id").group_by("passes", "pass_id").agg(pl.col("busy_ns").sum())
    drift = totals.group_by("passes").agg(
        ((pl.col("busy_ns").max() - pl.col("busy_ns").min()) / pl.col("busy_ns").mean()).alias("spread"), pl.len()
    )
    worst = drift.filter(pl.col("len") > 1)["spread"].max()
    numbers = set(mine["pass_id"].to_list())
    notes = [f"isolated passes: {len(numbers)}", *device_note([passes[number] for number in sorted(numbers)])]
    ranks = mine.group_by("pass_id").agg(pl.col("rank").n_unique())["rank"].max()
    if mine["rank"].n_unique() > 1 and ranks == 1:
        notes.append("ranks were measured one at a time; their passes are paired by order, not by having run together")
    if any(fact.value == TOGETHER for row in used if (fact := row.key.setting.conditions.get("ranks"))):
        notes.append("ranks ran together, in processes and on devices of their own")
    if isinstance(worst, float):
        notes.append(f"drift between passes: totals of rows measured together spread by at most {worst:.2%}")
    for name, words in _RANGES.items():
        values = [
            float(reading)
            for number in numbers
            for readings in readings_of(passes[number], name).values()
            for reading in readings
        ]
        if values:
            notes.append(f"isolated passes, {words}: {min(values):.0f} to {max(values):.0f} {_UNITS[name]}")
    return tuple(notes)


def device_note(records: Sequence[PassRecord]) -> tuple[str, ...]:
    """On how many devices some passes ran; nothing where none says it.

    Args:
        records: of the passes that are used.
    """
    seen = [readings for record in records if (readings := readings_of(record, "device_uuids"))]
    if not seen:
        return ()
    uuids = {uuid for by_rank in seen for readings in by_rank.values() for uuid in readings}
    devices = "one device" if len(uuids) == 1 else f"{len(uuids)} devices"
    silent = len(records) - len(seen)
    unsaid = f" ({silent} of {len(records)} do not say)" if silent else ""
    return (f"isolated passes ran on {devices}{unsaid}: other devices of the model are not included in any interval",)


def rung_identity(rungs: Sequence[Rung]) -> tuple[str, ...]:
    """d3 + d4 = full-run minus vLLM, in whole ns, where rungs 3 to 5 cover the same invocations."""
    third, fourth, fifth = (rung.capture_wide for rung in rungs[2:5])
    if third is None or fourth is None or fifth is None:
        return ()
    if third.diff_ns is None or fourth.diff_ns is None or fifth.diff_ns is None:
        return ()
    if len({pair.num_invocations for pair in (third, fourth, fifth)}) != 1:
        return ()
    return (
        f"d3 + d4 = {third.diff_ns} + {fourth.diff_ns} = {third.diff_ns + fourth.diff_ns} ns; full-run minus vLLM = "
        f"{fifth.diff_ns} ns",
    )
