"""Which cache state explains the difference between a warm replay and serving, in rows and in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from moegauge.records.comparison import LadderReport, Pair
from moegauge.records.decision import Status
from moegauge.records.explanation import Explanation
from moegauge.render.units import bytes_text, interval_text, ratio_text

LIVE_HEADINGS = (
    "replay",
    "relative to serving",
    "95 % interval",
    "share of warm's difference",
    "95 % interval",
    "rung 2",
)
_MOST = 0.5


def live_rows(warm: LadderReport, others: Sequence[tuple[str, LadderReport, Explanation]]) -> list[tuple[str, ...]]:
    """One row a replay: rung 2 over the whole capture, and what its cache state accounts for.

    Args:
        warm: the warm replay's report.
        others: name, report of that replay, and the explanation of the warm one by its cache state. Shares of a
            difference that is not established are not shown.
    """
    rows: list[tuple[str, ...]] = [("warm", *_against_serving(warm), "", "", str(_pair(warm).status))]
    for name, report, found in others:
        established = _pair(warm).status is Status.DIVERGED
        cells = (ratio_text(_share(found)), interval_text(share_interval(found))) if established else ("-", "-")
        rows.append((name, *_against_serving(report), *cells, str(_pair(report).status)))
    return rows


def share_interval(found: Explanation) -> tuple[float, float] | None:
    """Interval of the one effect as a share of the difference; that the difference varies too is left out."""
    (effect,) = found.effects
    if effect.interval_ns is None or not found.diff_ns:
        return None
    low, high = sorted(bound / found.diff_ns for bound in effect.interval_ns)
    return low, high


def live_conclusion(warm: LadderReport, others: Sequence[tuple[str, LadderReport, Explanation]]) -> str:
    """The sentence that the measured numbers allow. A share counts only where its whole interval lies above a half."""
    pair = _pair(warm)
    start = (
        f"The warm replay takes {ratio_text(pair.relative_ratio)} {interval_text(pair.interval_ratio)} against serving"
    )
    if pair.status is not Status.DIVERGED:
        return (
            f"{start}: {pair.status}, so there is no established difference to explain. Measure on a quieter machine."
        )
    told, most, part = [], [], []
    for name, _, found in others:
        interval = share_interval(found)
        told.append(f"{name} replay accounts for {ratio_text(_share(found))} {interval_text(interval)} of it")
        if interval is not None and interval[0] > _MOST:
            most.append(name)
        elif interval is not None and interval[0] > 0:
            part.append(name)
    if most:
        end = f"the cache state explains most of what the warm replay misses ({' and '.join(most)})"
    elif part:
        end = f"the cache state explains a part, not established as most ({' and '.join(part)})"
    elif all(interval is not None and interval[1] < 0 for interval in (share_interval(one[2]) for one in others)):
        end = "no cache state explains it: the other replays lie farther from serving than the warm one"
    else:
        end = "INCONCLUSIVE: no share is wholly above zero; nothing here explains the difference"
    return f"{start}; {'; '.join(told)}. Therefore: {end}."


def weights_line(num_layers: int, num_bytes: int, cache_bytes: int | None) -> str:
    """What was served, against the cache."""
    cache = "a last-level cache of unknown size"
    if cache_bytes:
        cache = f"{num_bytes / cache_bytes:.1f} times the last-level cache ({bytes_text(cache_bytes)})"
    return f"served: tiny-qwen3-moe, {num_layers} layers, {bytes_text(num_bytes)} of expert weights; {cache}"


def _pair(report: LadderReport) -> Pair:
    pair = report.rungs[1].capture_wide
    assert pair is not None  # noqa: S101 - every row was measured
    return pair


def _share(found: Explanation) -> float | None:
    return found.effects[0].share_ratio


def _against_serving(report: LadderReport) -> tuple[str, str]:
    pair = _pair(report)
    return ratio_text(pair.relative_ratio), interval_text(pair.interval_ratio)
