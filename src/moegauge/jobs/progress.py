"""How a job tells whoever called it how far it is. The command line draws a bar; a library user may pass nothing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


def silent(label: str, done: int, total: int) -> None:
    """Say nothing."""
