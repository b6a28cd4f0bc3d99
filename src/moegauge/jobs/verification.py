"""What verifying something came to."""

from __future__ import annotations

from dataclasses import dataclass


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
