"""What was read around the chunks of a pass: kept as the first and the last reading, and how far the others went."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from moegauge.adapters.runners.work import ClockTimes, ProfiledTimes
from moegauge.records.profile import PassRecord

_NUMBER = re.compile(r"^-?[0-9]+(?:\.[0-9]+)?\Z")
_RANK = re.compile(r"^rank([0-9]+)\Z")
_APART = " | "


@dataclass
class PassFacts:
    """Readings of one pass (of one of its ranks), in the order they were taken.

    Attributes:
        readings: texts by name, two a chunk. instruments: ns that two instruments give, by name, added up.
    """

    readings: dict[str, list[str]] = field(default_factory=dict)
    instruments: dict[str, int] = field(default_factory=dict)

    def add(self, before: Mapping[str, str], after: Mapping[str, str], instruments: Mapping[str, int]) -> None:
        """Take what was read around one chunk."""
        for reading in (before, after):
            for name, value in reading.items():
                self.readings.setdefault(name, []).append(value)
        for name, ns in instruments.items():
            self.instruments[name] = self.instruments.get(name, 0) + ns

    def facts(self, prefix: str = "") -> dict[str, str]:
        """Facts of the pass so far, as its record keeps them.

        Args:
            prefix: put between name and ending; which rank, where several ran together.
        """
        found: dict[str, str] = {}
        for name, readings in self.readings.items():
            found |= {f"{name}{prefix}.{when}": value for when, value in _ends_and_range(readings).items()}
        return found | {f"{name}{prefix}.after": str(ns) for name, ns in self.instruments.items()}


def _ends_and_range(readings: list[str]) -> dict[str, str]:
    """First and last reading; smallest and largest, or every text, where some lie outside of those two."""
    ends = {"before": readings[0], "after": readings[-1]}
    if all(_NUMBER.match(reading) for reading in readings):
        least, most = min(readings, key=float), max(readings, key=float)
        outside = float(least) < min(map(float, ends.values())) or float(most) > max(map(float, ends.values()))
        return ends | ({"min": least, "max": most} if outside else {})
    seen = list(dict.fromkeys(readings))
    return ends | ({"seen": _APART.join(seen)} if set(seen) - set(ends.values()) else {})


def cross_check(times: ClockTimes | ProfiledTimes) -> dict[str, int]:
    """Device events around a chunk beside the profiler's first start to last end: two instruments of one span."""
    if isinstance(times, ClockTimes):
        return {}
    ops = times.trace.ops
    return {"event_ns": times.event_ns, "profiler_span_ns": int(ops.end_ns.max() - ops.start_ns.min())}


def readings_of(record: PassRecord, name: str) -> dict[int | None, list[str]]:
    """Values of a fact that a pass holds, by rank; under None where its ranks did not run together."""
    found: dict[int | None, list[str]] = {}
    for fact, value in record.facts.items():
        own, *rest = fact.split(".")
        if own == name:
            rank = _RANK.match(rest[0]) if rest else None
            found.setdefault(int(rank[1]) if rank else None, []).extend(value.split(_APART))
    return found
