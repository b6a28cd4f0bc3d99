"""What verifying something came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHOWN = 5
"""Most sentences about one kind of difference."""


@dataclass(frozen=True)
class Verification:
    """What was derived again, and what differs.

    Attributes:
        path: what was verified. kind: capture, report or profile database.
        checked: one line a kind of number, with how many.
        differences: one sentence each, naming file and row; empty where everything was derived again.
    """

    path: str
    kind: str
    checked: tuple[str, ...]
    differences: tuple[str, ...]


def invocation(row: Mapping[str, object]) -> str:
    """Pass, iteration, layer and rank of a sample, in words."""
    return f"pass {row['pass_id']}, iteration {row['iteration']}, layer {row['layer']}, rank {row['rank']}"
