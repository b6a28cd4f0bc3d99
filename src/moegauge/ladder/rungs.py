"""The five rungs as a table: what stands on each side, and what a difference means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RungDefinition:
    """One rung.

    Attributes:
        number: 1 to 5. left, right: labels of the sides. isolates: what a difference means.
        input_type: representation that feeds the right side (and, on rung 4, differs from the left's).
        has_selected: whether the rung has a selected pair beside the capture-wide one.
    """

    number: int
    left: str
    right: str
    isolates: str
    input_type: str
    has_selected: bool


RUNGS = (
    RungDefinition(
        1,
        "vLLM, one layer",
        "exact input, isolated",
        "serving environment versus isolated execution",
        "exact",
        True,
    ),
    RungDefinition(
        2,
        "vLLM, one iteration",
        "exact inputs, isolated, added up",
        "whether that difference persists over a real iteration",
        "exact",
        True,
    ),
    RungDefinition(
        3,
        "vLLM, one iteration",
        "iteration popularity, isolated",
        "iteration-level input compression",
        "iteration_popularity",
        True,
    ),
    RungDefinition(
        4,
        "iteration popularity, isolated",
        "full-run popularity, isolated",
        "temporal information lost by the full-run summary",
        "full_run_popularity",
        True,
    ),
    RungDefinition(
        5,
        "vLLM, full capture",
        "full-run popularity, isolated",
        "coverage and generalisation over the capture",
        "full_run_popularity",
        False,
    ),
)
