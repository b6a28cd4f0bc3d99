"""The ladder as one HTML file: the verdict first, then five bars, then where the difference lies."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from moegauge.records.comparison import LadderReport, Pair, Rung
from moegauge.render.html.columns import PageTables, chart_columns, rank_totals, timeline_lanes
from moegauge.render.ladder_text import (
    CONDITION_HEADINGS,
    EXPLANATION_HEADINGS,
    condition_cells,
    explanation_rows,
    reasons,
    served_line,
    unmatched_lines,
)
from moegauge.render.units import interval_text, ratio_text, signed_time_text, time_text

_MARKS = {"MATCH": "=", "DIVERGED": "≠", "INCONCLUSIVE": "?", "UNAVAILABLE": "–"}
"""A status is told by its word and by a mark, never by colour alone."""


def ladder_page(report: LadderReport, tables: PageTables, *, report_path: str) -> str:
    """The page as text. It loads nothing, and every value from a file is escaped."""
    charts = chart_columns(tables)
    ranks = rank_totals(tables.ranks, tables.invocations)
    return (
        _environment()
        .get_template("ladder.html.j2")
        .render(
            report=report,
            marks=_MARKS,
            bars=[
                _bar(rung, pair, report) for rung in report.rungs for pair in (rung.selected, rung.capture_wide) if pair
            ],
            unavailable=[rung for rung in report.rungs if rung.selected is None and rung.capture_wide is None],
            reasons=reasons(report),
            ranks=[row | _rank_text(row) for row in ranks],
            lanes=_lanes(tables),
            capture_note=tables.capture_note,
            condition_headings=CONDITION_HEADINGS,
            condition_rows=condition_cells(report),
            explanation_headings=EXPLANATION_HEADINGS,
            explanation=explanation_rows(report) if report.explanation is not None else [],
            unmatched=unmatched_lines(report),
            served=served_line(report),
            charts=charts,
            data=_embedded(charts),
            report_path=report_path,
            iteration_rows=_iteration_rows(charts),
        )
    )


def _environment() -> Environment:
    loader = PackageLoader("moegauge.render.html", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"time": time_text, "signed": signed_time_text, "ratio": ratio_text}
    return environment


def _embedded(value: Any) -> Markup:
    """JSON for a script element: no character can end the element or start a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for mark in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)  # noqa: S704  (every mark that means something in HTML was replaced above)


def _bar(rung: Rung, pair: Pair, report: LadderReport) -> dict[str, Any]:
    """A pair with its place on a symmetric axis of relative differences, in percent of the axis' width."""
    reach = max(2 * pair.tolerance_ratio, *(abs(edge) * 1.15 for edge in (pair.interval_ratio or (0.0,))))
    reach = max(reach, abs(pair.relative_ratio or 0.0) * 1.15)
    stop = report.verdict.claims_stop_at
    low, high = pair.interval_ratio or (None, None)
    which = pair.selection
    selected = f"iteration {which.iteration}" + (f", layer {which.layer}" if which.layer is not None else "")
    return {
        "rung": rung,
        "pair": pair,
        "head": pair is rung.selected or rung.selected is None,
        "which": "whole capture" if which.iteration is None else selected,
        "beyond": stop is not None and rung.rung > stop,
        "left": time_text(pair.left_ns),
        "right": time_text(pair.right_ns),
        "diff": signed_time_text(pair.diff_ns),
        "relative": ratio_text(pair.relative_ratio),
        "interval": interval_text(pair.interval_ratio),
        "reach": f"±{reach:.1%}",
        "band": (_place(-pair.tolerance_ratio, reach), _place(pair.tolerance_ratio, reach)),
        "at": None if pair.relative_ratio is None else _place(pair.relative_ratio, reach),
        "range": None if low is None or high is None else (_place(low, reach), _place(high, reach)),
    }


def _place(ratio: float, reach: float) -> float:
    return 50 + 50 * ratio / reach


def _rank_text(row: dict[str, Any]) -> dict[str, str]:
    left, right = row["left_ns"], row["right_ns"]
    relative = ratio_text((right - left) / left if left else None)
    return {"left": time_text(left), "right": time_text(right), "relative": relative}


def _lanes(tables: PageTables) -> list[dict[str, Any]]:
    if tables.intervals is None:
        return []
    lanes = timeline_lanes(tables.intervals)
    reach = max((kernel["end_ns"] for lane in lanes for kernel in lane["kernels"]), default=0)
    for lane in lanes:
        for kernel in lane["kernels"]:
            kernel["x"] = 100 * kernel["start_ns"] / reach
            kernel["width"] = max(0.1, 100 * (kernel["end_ns"] - kernel["start_ns"]) / reach)
            kernel["inside"] = kernel["op_class"] == "IN_BOUNDARY"
        lane["reach"] = time_text(reach)
    return lanes


def _iteration_rows(charts: dict[str, Any]) -> list[dict[str, Any]]:
    bins, facts = charts["bins"], charts["facts"]
    rows = []
    for index, first in enumerate(bins["first"]):
        left, right = bins["left_ns"][index], bins["right_ns"][index]
        known = left is not None and right is not None
        rows.append(
            {
                "name": str(first) if bins["last"][index] == first else f"{first}-{bins['last'][index]}",
                "left": time_text(left),
                "right": time_text(right),
                "diff": signed_time_text(right - left) if known else "-",
                "relative": ratio_text((right - left) / left) if known and left else "-",
                "covered": f"{bins['num'][index]}/{bins['of'][index]}",
                "rows": "not recorded" if facts is None or facts["rows"][index] is None else facts["rows"][index],
                "mode": "not recorded" if facts is None or facts["mode"][index] is None else facts["mode"][index],
            }
        )
    return rows
