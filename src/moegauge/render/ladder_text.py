"""What the terminal and the Markdown view of a ladder both say, as rows of plain text."""

from __future__ import annotations

from moegauge.records.comparison import LadderReport, Pair, Rung, Unmatched
from moegauge.render.units import interval_text, ratio_text, signed_time_text, time_text

HEADINGS = (
    "rung",
    "left → right",
    "which",
    "left",
    "right",
    "difference",
    "relative",
    "95 % interval",
    "covered",
    "status",
)


def ladder_rows(report: LadderReport) -> list[tuple[str, ...]]:
    """One row a pair; rungs beyond the one where claims stop are marked."""
    stop = report.verdict.claims_stop_at
    rows = []
    for rung in report.rungs:
        beyond = " (beyond)" if stop is not None and rung.rung > stop else ""
        pairs = [pair for pair in (rung.selected, rung.capture_wide) if pair is not None]
        if not pairs:
            rows.append((str(rung.rung), f"{rung.left} → {rung.right}", "-", *["-"] * 6, f"{rung.status}{beyond}"))
        for index, pair in enumerate(pairs):
            head = (str(rung.rung), f"{rung.left} → {rung.right}") if index == 0 else ("", "")
            rows.append((*head, *_pair_cells(pair), f"{pair.status}{beyond}"))
    return rows


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    return (
        _which(pair),
        time_text(pair.left_ns) if pair.left_ns is not None else _bound(pair),
        time_text(pair.right_ns),
        signed_time_text(pair.diff_ns),
        ratio_text(pair.relative_ratio),
        interval_text(pair.interval_ratio),
        f"{pair.num_invocations}/{pair.num_captured_invocations.left}",
    )


def _which(pair: Pair) -> str:
    iteration, layer = pair.selection.iteration, pair.selection.layer
    if iteration is None:
        return "whole capture"
    return f"iteration {iteration}" + (f", layer {layer}" if layer is not None else "")


def _bound(pair: Pair) -> str:
    return "-" if pair.lower_bound_ns.left is None else f"≥ {time_text(pair.lower_bound_ns.left)}"


def reasons(report: LadderReport) -> list[tuple[str, str]]:
    """(heading, sentence) for each rung."""
    return [(f"rung {rung.rung} {rung.status} / {rung.reason.code}", _reason(rung)) for rung in report.rungs]


def _reason(rung: Rung) -> str:
    flags = f" [{', '.join(rung.flags)}]" if rung.flags else ""
    return f"{rung.reason.sentence}{flags}"


def unmatched_lines(report: LadderReport) -> list[str]:
    """Every unmatched piece of work, once."""
    found: dict[Unmatched, None] = {}
    for rung in report.rungs:
        for pair in (rung.selected, rung.capture_wide):
            found |= dict.fromkeys(pair.unmatched if pair is not None else ())
    return [
        f"{u.side}: {u.num} {u.what}: {u.why}" + (f" ({time_text(u.ns)})" if u.ns is not None else "") for u in found
    ]


def served_line(report: LadderReport) -> str:
    """Busy time, spans and co-running foreign work of the served side."""
    served = report.served
    return (
        f"MoE busy {time_text(served.busy_ns)} in spans of {time_text(served.span_ns)} over all rank invocations; "
        f"foreign work on other streams inside those spans {time_text(served.foreign_ns)}"
    )


def rank_rows(report: LadderReport) -> list[tuple[str, ...]]:
    """Corresponding ranks over the whole capture; empty with one rank."""
    pair = report.rungs[1].capture_wide
    ranks = pair.corresponding_ranks if pair is not None else None
    return [
        (str(r.rank), time_text(r.left_ns), time_text(r.right_ns), ratio_text(r.relative_ratio), r.identity)
        for r in ranks or ()
    ]


RANK_HEADINGS = ("rank", "left", "right", "relative", "tied by")
CONDITION_HEADINGS = ("condition", "served", "isolated", "verdict")


def condition_cells(report: LadderReport) -> list[tuple[str, ...]]:
    """Conditions of both sides."""
    return [
        (row.name, row.left or "not recorded", row.right or "not recorded", row.verdict) for row in report.conditions
    ]
