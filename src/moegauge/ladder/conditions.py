"""What was held fixed: conditions of both sides side by side, and the labelled limits of the isolated side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moegauge.records.comparison import ConditionRow
from moegauge.records.measurement import CONDITIONS, LIMITS, Facts

SAME = "SAME"
DIFFERS = "DIFFERS"
NOT_RECORDED = "NOT_RECORDED"


def condition_rows(left: Facts, right: Iterable[Facts]) -> tuple[ConditionRow, ...]:
    """Compare every condition by name.

    Args:
        left: recorded conditions of the capture.
        right: recorded conditions of each setting the used profile rows were measured under.
    """
    settings = list(right)
    return tuple(_row(name, left, settings) for name in CONDITIONS)


def _row(name: str, left: Facts, settings: list[Facts]) -> ConditionRow:
    one = left[name].value if name in left else None
    values = {facts[name].value if name in facts else None for facts in settings} or {None}
    known = sorted(value for value in values if value is not None)
    other = " | ".join(known) if known else None
    if one is None or None in values:
        verdict = NOT_RECORDED
        if one is not None and any(value != one for value in known):
            verdict = DIFFERS
    else:
        verdict = SAME if known == [one] else DIFFERS
    return ConditionRow(name=name, left=one, right=other, verdict=verdict)


def limits(settings: Iterable[Facts]) -> tuple[str, ...]:
    """What *exact* leaves open on the isolated side: hidden states and weights, as declared or not recorded."""
    every = list(settings)

    def values(name: str) -> str:
        found = {facts[name].value if name in facts else "not recorded" for facts in every} or {"not recorded"}
        return " | ".join(sorted(found))

    return tuple(f"exact routing; {LIMITS[name]}: {values(name)}" for name in LIMITS)


def differing(rows: Iterable[ConditionRow]) -> list[str]:
    """Names of recorded conditions that differ."""
    return [row.name for row in rows if row.verdict == DIFFERS]


def unverified(rows: Iterable[ConditionRow], extra: Mapping[str, bool]) -> list[str]:
    """Names of conditions that were not recorded on at least one side."""
    return [row.name for row in rows if row.verdict == NOT_RECORDED] + [
        name for name, missing in extra.items() if missing
    ]
