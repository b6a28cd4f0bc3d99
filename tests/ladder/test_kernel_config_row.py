"""The kernel configuration follows from the executed rows, so it is compared row by row."""

from __future__ import annotations

import pytest

from moegauge.ladder.conditions import DIFFERS, NOT_RECORDED, SAME, kernel_config_row
from moegauge.records.comparison import ConditionRow

A, B, C = "digest-a", "digest-b", "digest-c"
TWO = "2 configurations, by executed rows"


@pytest.mark.parametrize(
    ("pairs", "left", "right", "verdict"),
    [
        ([({A}, A)], A, A, SAME),
        ([({A}, A), ({B}, B)], TWO, TWO, SAME),
        ([({A}, B), ({B}, A)], TWO, TWO, DIFFERS),
        ([({A}, A), ({B}, C)], TWO, TWO, DIFFERS),
        ([({A}, A), ({B}, A)], TWO, A, DIFFERS),
        ([({A, B}, A)], TWO, A, DIFFERS),
        ([({A}, None)], A, None, NOT_RECORDED),
        ([(set(), A)], None, A, NOT_RECORDED),
        ([(set(), None)], None, None, NOT_RECORDED),
        ([({A}, A), ({B}, None)], TWO, A, NOT_RECORDED),
        ([({A}, A), (set(), B)], A, TWO, NOT_RECORDED),
        ([({A}, B), (set(), None)], A, B, DIFFERS),
    ],
)
def test_each_row_is_compared_with_serving_of_as_many_rows(
    pairs: list[tuple[set[str], str | None]], left: str | None, right: str | None, verdict: str
) -> None:
    found = kernel_config_row([(frozenset(served), measured) for served, measured in pairs])
    assert found == ConditionRow(name="kernel_config_digest", left=left, right=right, verdict=verdict)


def test_no_rows_have_nothing_to_compare() -> None:
    assert kernel_config_row([]) is None
