"""What was held fixed: conditions of both sides side by side, and the labelled limits of the isolated side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moegauge.records.comparison import ConditionRow
from moegauge.records.measurement import LIMITS, Facts

SAME = "SAME"
DIFFERS = "DIFFERS"
NOT_RECORDED = "NOT_RECORDED"


def condition_rows(names: Sequence[str], left: Facts, right: Iterable[Facts]) -> tuple[ConditionRow, ...]:
    """Compare conditions by name.

    Args:
        names: which.
        left: recorded conditions of the capture.
        right: recorded conditions of each setting the used profile rows were measured under.
    """
    settings = list(right)
    return tuple(_row(name, left, settings) for name in names)


def between_rows(names: Sequence[str], left: Iterable[Facts], right: Iterable[Facts]) -> tuple[ConditionRow, ...]:
    """Compare conditions of two isolated measurements by name, each taken under one or several settings."""
    both = list(left), list(right)
    return tuple(_compared(name, _values(name, both[0]), _values(name, both[1])) for name in names)


def kernel_config_row(pairs: Iterable[tuple[frozenset[str], str | None]]) -> ConditionRow | None:
    """Compare the kernel configuration row by row, since it follows from the executed rows.

    Args:
        pairs: for each measured row the configurations that serving chose for as many rows (empty: not recorded), and
            the one it was measured with (None: not recorded).

    Returns:
        The condition, or None where there is nothing to compare.
    """
    every = list(pairs)
    if not every:
        return None
    different = [1 for served, measured in every if served and measured is not None and served != {measured}]
    missing = any(not served or measured is None for served, measured in every)
    verdict = DIFFERS if different else NOT_RECORDED if missing else SAME
    left = sorted({digest for served, _ in every for digest in served})
    right = sorted({measured for _, measured in every if measured is not None})
    return ConditionRow(name="kernel_config_digest", left=_listed(left), right=_listed(right), verdict=verdict)


def _listed(digests: list[str]) -> str | None:
    if len(digests) > 1:
        return f"{len(digests)} configurations, by executed rows"
    return digests[0] if digests else None


def _row(name: str, left: Facts, settings: list[Facts]) -> ConditionRow:
    return _compared(name, _values(name, [left]), _values(name, settings))


def _values(name: str, settings: list[Facts]) -> set[str | None]:
    return {facts[name].value if name in facts else None for facts in settings} or {None}


def _compared(name: str, left: set[str | None], right: set[str | None]) -> ConditionRow:
    known_left, known_right = ({value for value in side if value is not None} for side in (left, right))
    if None in left or None in right:
        contradicts = bool(known_left and known_right) and known_left != known_right
        verdict = DIFFERS if contradicts else NOT_RECORDED
    else:
        verdict = SAME if known_left == known_right else DIFFERS
    texts = [" | ".join(sorted(side)) if side else None for side in (known_left, known_right)]
    return ConditionRow(name=name, left=texts[0], right=texts[1], verdict=verdict)


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
