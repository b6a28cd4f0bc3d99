"""A ladder report as Markdown, at most 60 lines, for a pull-request comment or a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moegauge.records.comparison import LadderReport
from moegauge.render.ladder_text import (
    CONDITION_HEADINGS,
    EXPLANATION_HEADINGS,
    HEADINGS,
    RANK_HEADINGS,
    condition_cells,
    explanation_rows,
    ladder_rows,
    padded_line,
    rank_rows,
    reasons,
    served_line,
    unavailable_lines,
    unmatched_lines,
)

MAX_LINES = 60


def ladder_markdown(report: LadderReport) -> str:
    """Markdown text; names from traces are escaped."""
    parts = [
        f"### moegauge ladder: {_escape(report.subject)}",
        "",
        f"**{_escape(report.verdict.sentence)}**",
        "",
        *_table(HEADINGS, ladder_rows(report)),
        "",
    ]
    if rank_rows(report):
        parts += [*_table(RANK_HEADINGS, rank_rows(report)), ""]
    if report.explanation is not None:
        parts += [*_table(EXPLANATION_HEADINGS, explanation_rows(report)), ""]
        parts += [f"- unmeasured, {_escape(line)}" for line in unavailable_lines(report)]
        parts += [f"- {_escape(line)}" for line in [padded_line(report)] if line]
    parts += [f"- {heading}: {_escape(sentence)}" for heading, sentence in reasons(report)]
    parts += [f"- unmatched, {_escape(line)}" for line in unmatched_lines(report)]
    parts += [f"- cannot be said: {_escape(line)}" for line in report.verdict.cannot_say]
    parts += [f"- note: {_escape(line)}" for line in (served_line(report), *report.limits, *report.notes)]
    evidence = report.evidence
    tail = [
        "",
        f"Evidence: `{evidence.capture.path}` ({evidence.capture.digest}), `{evidence.measurements.path}` "
        f"({evidence.measurements.digest}). Re-derive with `moegauge verify`.",
    ]
    conditions = ["", *_table(CONDITION_HEADINGS, condition_cells(report))]
    if len(parts) + len(conditions) + len(tail) <= MAX_LINES:
        parts += conditions
    if len(parts) + len(tail) > MAX_LINES:
        left_out = len(parts) + len(tail) + 1 - MAX_LINES
        parts = [*parts[:-left_out], f"- {left_out} lines left out; report.json has them"]
    return "\n".join([*parts, *tail]) + "\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(_escape(cell) for cell in row) + " |" for row in rows]


def _escape(text: str) -> str:
    flat = " ".join(text.split())
    for mark in ("\\", "|", "<", ">", "`", "*", "_", "[", "]"):
        flat = flat.replace(mark, "\\" + mark)
    return flat
