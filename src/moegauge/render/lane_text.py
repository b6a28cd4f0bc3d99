"""A lane in a terminal: status, reasons, figures, counters, and what is next."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from rich.console import Console
from rich.table import Table
from rich.text import Text

from moegauge.records.exploration import Exploration
from moegauge.records.lane import Stage0Step
from moegauge.records.verdict import CounterFigure, DeviceVerdict, LaneStatus, SubjectFigures
from moegauge.render.units import ratio_text, time_text

MAX_REASONS = 12
_GOOD = {LaneStatus.COMPONENT_PASS, LaneStatus.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS}


def show_status(console: Console, status: LaneStatus | None) -> None:
    """One line: the status."""
    style = "bold" if status is None or not status.terminal else "bold red"
    console.print(Text(str(status or "not registered"), style="bold green" if status in _GOOD else style))


def show_reasons(console: Console, reasons: Iterable[tuple[str, str]]) -> None:
    """One line a reason, with its code; beyond twelve their number."""
    lines = list(reasons)
    for code, sentence in lines[:MAX_REASONS]:
        console.print(Text.assemble((f"  {code}  ", "dim"), sentence), soft_wrap=True)
    if len(lines) > MAX_REASONS:
        console.print(f"  and {len(lines) - MAX_REASONS} more")


def show_stage0(console: Console, step: Stage0Step) -> None:
    """What kills which wrong candidate, and what the corpus covers, by subject."""
    for subject, result in step.mutations.items():
        table = Table(box=None, pad_edge=False)
        for title in (subject, "killed by", "first at", "right", "wrong"):
            table.add_column(title)
        for check in result.checks:
            kill = check.found
            if kill is None:
                table.add_row(check.mutant, "not killed", "", "", "")
                continue
            at = f"{kill.boundary} {list(kill.first_index)}"
            table.add_row(check.mutant, kill.fixture, Text(at), kill.expected_word, kill.found_word)
        if result.checks:
            console.print(table)
    for subject, counted in step.coverage.items():
        for what, number in counted.items():
            console.print(f"{subject}  {what}: {number:,}", markup=False, highlight=False, soft_wrap=True)


def show_devices(console: Console, devices: Iterable[DeviceVerdict]) -> None:
    """Verdict, figures and counters of every device that ran."""
    for device in devices:
        console.print(Text.assemble((f"{device.device}  ", "bold"), str(device.status)))
        show_figures(console, device.figures)
        show_counters(console, device.counters)


def show_figures(console: Console, figures: Iterable[SubjectFigures]) -> None:
    """Wins, median saving and launches of each timed subject."""
    table = Table(box=None, pad_edge=False)
    for title in ("subject", "wins", "median saving per cycle", "of the incumbent", "launches per cycle"):
        table.add_column(title)
    timed = [one for one in figures if one.num_wins is not None]
    for one in timed:
        table.add_row(
            one.subject,
            f"{one.num_wins} of {one.num_blocks}",
            time_text(round(Fraction(one.median_saving_ns or "0"))),
            ratio_text(float(Fraction(one.median_saving_ratio or "0"))),
            f"{one.incumbent_launches} -> {one.candidate_launches}",
        )
    if timed:
        console.print(table)


def show_counters(console: Console, counters: Iterable[CounterFigure]) -> None:
    """Every counter rule on every pair."""
    table = Table(box=None, pad_edge=False)
    for title in ("subject", "pair", "quantity", "incumbent", "candidate", "rule", "holds"):
        table.add_column(title)
    rows = list(counters)
    for one in rows:
        table.add_row(
            one.subject,
            one.pair,
            one.quantity,
            f"{float(Fraction(one.incumbent)):.6g}",
            f"{float(Fraction(one.candidate)):.6g}",
            f"{one.rule} {one.limit}",
            "yes" if one.passed else "no",
        )
    if rows:
        console.print(table)


def show_exploration(console: Console, seen: Exploration) -> None:
    """What a trial before registration saw."""
    console.print(f"{seen.device}: {seen.identity.model}")
    console.print(f"boundaries at which the arms differ: {len(seen.differing)}")
    show_reasons(console, (("differs", line) for line in seen.differing))
    show_figures(console, seen.figures)
    for name in seen.profiles:
        console.print(f"kept explorations/{name}")
