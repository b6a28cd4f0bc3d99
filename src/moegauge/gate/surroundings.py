"""Holding the surroundings of a run against those its packet froze, field by field."""

from __future__ import annotations

import msgspec

from moegauge.records.packet import Surroundings


def surroundings_differences(frozen: Surroundings, found: Surroundings) -> list[str]:
    """One sentence for each field that differs, with both values; empty where nothing does."""
    old, new = _leaves(msgspec.to_builtins(frozen), ""), _leaves(msgspec.to_builtins(found), "")
    return [
        f"{path} is {_shown(new.get(path))}; the packet froze {_shown(old.get(path))}."
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(one) for one in value)}]"
    return "not there" if value is None else str(value)


def _leaves(value: object, path: str) -> dict[str, object]:
    if isinstance(value, dict):
        return {
            leaf: part
            for name, inner in value.items()
            for leaf, part in _leaves(inner, f"{path} {name}".strip()).items()
        }
    return {path: value}
