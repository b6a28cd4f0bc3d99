"""The closing sentence of the live demo says what the intervals allow, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moegauge.records.decision import Status
from moegauge.records.explanation import Effect, Explanation
from moegauge.render.live_text import live_conclusion, live_rows


def report(status: Status, relative: float) -> Any:
    pair = SimpleNamespace(status=status, relative_ratio=relative, interval_ratio=(relative - 0.01, relative + 0.01))
    return SimpleNamespace(rungs=[None, SimpleNamespace(capture_wide=pair)])


def explained(effect: int, interval: tuple[int, int] | None) -> Explanation:
    found = Effect(
        condition="cache_state", base="warm", changed_to="cold", effect_ns=effect, share_ratio=effect / -1000,
        interval_ns=interval, unavailable=None,
    )  # fmt: skip
    return Explanation(
        num_invocations=1, num_captured_invocations=1, left_ns=2000, right_ns=1000, diff_ns=-1000, effects=(found,),
        residual_ns=-1000 - effect, residual_interval_ns=None, padded_rows=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((-900, -600), "explains most of what the warm replay misses (in order)"),
        ((-900, -400), "explains a part, not established as most (in order)"),
        ((-900, 10), "INCONCLUSIVE"),
        (None, "INCONCLUSIVE"),
        ((100, 900), "no cache state explains it"),
    ],
)
def test_a_share_counts_only_with_its_whole_interval(interval: tuple[int, int] | None, words: str) -> None:
    others = [("in order", report(Status.MATCH, 0.01), explained(-750, interval))]
    assert words in live_conclusion(report(Status.DIVERGED, -0.5), others)


def test_without_an_established_difference_nothing_is_explained() -> None:
    others = [("cold", report(Status.MATCH, 0.01), explained(-750, (-900, -600)))]
    text = live_conclusion(report(Status.INCONCLUSIVE, -0.5), others)
    assert "INCONCLUSIVE, so there is no established difference" in text
    assert "most" not in text


def test_the_row_of_a_replay_shows_its_share() -> None:
    rows = live_rows(report(Status.DIVERGED, -0.5), [("cold", report(Status.MATCH, 0.01), explained(-750, None))])
    assert rows[1] == ("cold", "+1.000%", "[+0.000%, +2.000%]", "+75.000%", "none", "MATCH")
