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
        return "whole capture" if pair.num_captured_invocations.left else "nothing to select"
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
EXPLANATION_HEADINGS = ("condition", "from", "to", "effect", "95 % interval", "share of the difference")
CONDITION_HEADINGS = ("condition", "served", "isolated", "verdict")


def condition_cells(report: LadderReport) -> list[tuple[str, ...]]:
    """Conditions of both sides."""
    return [(row.name, _value(row.left), _value(row.right), row.verdict) for row in report.conditions]


def _value(text: str | None) -> str:
    """A condition's value; several long ones are counted, report.json has them."""
    if text is None:
        return "not recorded"
    values = text.split(" | ")
    return text if len(text) <= 60 else f"{len(values)} values" if len(values) > 1 else f"{text[:57]}..."


def explanation_rows(report: LadderReport) -> list[tuple[str, ...]]:
    """Difference, effect of each changed condition, and residual; they add up. Empty where nothing was asked."""
    found = report.explanation
    if found is None:
        return []
    whole = found.diff_ns
    rows = [("isolated minus served", "", "", signed_time_text(whole), "", "100.0%" if whole else "-")]
    rows += [
        (
            effect.condition,
            effect.base,
            effect.changed_to,
            *(
                ("-", "-", "UNAVAILABLE")
                if effect.effect_ns is None
                else (
                    signed_time_text(effect.effect_ns),
                    _times(effect.interval_ns),
                    _share(effect.effect_ns, whole),
                )
            ),
        )
        for effect in found.effects
    ]
    residual = (_times(found.residual_interval_ns), _share(found.residual_ns, whole))
    return [*rows, ("unexplained residual", "", "", signed_time_text(found.residual_ns), *residual)]


def unavailable_lines(report: LadderReport) -> list[str]:
    """Why a changed condition has no effect in the table, one line each."""
    effects = report.explanation.effects if report.explanation is not None else ()
    return [f"{one.condition}: {one.unavailable.sentence}" for one in effects if one.unavailable is not None]


def padded_line(report: LadderReport) -> str | None:
    """What padded rows cost, in one sentence; None where that was not measured."""
    padded = report.explanation.padded_rows if report.explanation is not None else None
    if padded is None:
        return None
    return (
        f"padded rows are {padded.rows_ratio:.1%} of the rows of {padded.num_invocations} padded invocations "
        f"({padded.padded_rows} of {padded.executed_rows}) and cost {padded.time_ratio:.1%} "
        f"{interval_text(padded.interval_ratio)} of their time"
    )


def _times(interval: tuple[int, int] | None) -> str:
    return "none" if interval is None else f"[{signed_time_text(interval[0])}, {signed_time_text(interval[1])}]"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}".replace("-", "−") if whole else "-"
