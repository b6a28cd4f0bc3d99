"""moegauge align and report: the ladder, and other views of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

from cyclopts import App

from moegauge import errors
from moegauge.cli.arguments import Flag, Many, named_values
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs.align import align, exit_status, ladder_settings
from moegauge.jobs.explanation import CHANGEABLE
from moegauge.jobs.report import read_report
from moegauge.jobs.report_page import write_page
from moegauge.records.comparison import LadderReport
from moegauge.render.markdown import ladder_markdown
from moegauge.render.terminal import show_conditions, show_ladder

_WHOLE = re.compile(r"^[0-9]{1,9}\Z")


def align_command(
    capture: Path,
    *,
    db: Path,
    out: Path,
    select: str | None = None,
    tolerance: float = 0.02,
    invocation_tolerance: float = 0.05,
    launch_mode: str = "as-served",
    cache_state: str | None = None,
    sampler: str = "counts_exact",
    seed: int = 0,
    padding: str = "captured",
    explain: Many = None,
    json: Flag = False,
) -> int:
    """Run the ladder: where does isolated measurement stop agreeing with serving?

    Exit status: 1 a rung diverged, 0 all five match, 2 otherwise.

    Args:
        capture: Capture folder.
        db: Profile database with isolated measurements.
        out: Report folder to make; nothing may stand there.
        select: iteration=I,layer=L of the selected comparison; the medians where left out.
        tolerance: Of the relative difference of totals (0.02 is 2 %).
        invocation_tolerance: Of the relative difference of one invocation.
        launch_mode: Which isolated rows to take: as-served, eager or graph.
        cache_state: Which isolated rows to take where several cache states were measured.
        sampler: What rebuilt the inputs of rungs 3 to 5 from a popularity.
        seed: Seed of the sampler.
        padding: Whether padded rows kept their captured ids (captured) or were drawn too (drawn).
        explain: NAME=VALUE: how much of the difference that condition accounts for, had serving had it (launch_mode,
            cache_state, co_running, kernel_config, clocks); may be given several times.
        json: Print report.json instead of tables.
    """
    iteration, layer = _selection(select)
    values = "; ".join(f"{name}: {one.values}" for name, one in CHANGEABLE.items())
    settings = ladder_settings(
        tolerance=tolerance,
        invocation_tolerance=invocation_tolerance,
        launch_mode=launch_mode,
        cache_state=cache_state,
        iteration=iteration,
        layer=layer,
        sampler=sampler,
        seed=seed,
        padding=padding,
        explain=named_values(explain, "--explain", among=CHANGEABLE, remedy=values),
    )
    with progress_bar() as progress:
        report = align(capture, db, out, settings=settings, progress=progress)
    print_report(report, "json" if json else "terminal")
    return exit_status(report)


def report_command(
    report: Path,
    *,
    format: Literal["terminal", "markdown", "json", "html"] = "terminal",  # noqa: A002
    out: Path | None = None,
) -> int:
    """Show a ladder report again, in another form: moegauge report REPORT --format html --out page.html

    Args:
        report: Report folder.
        format: terminal, markdown, json, or html (one file that loads nothing).
        out: File to make, of html; nothing may stand there.
    """
    record = read_report(report)
    if (format == "html") != (out is not None):
        raise errors.MisuseError(
            where="--out",
            expected="a file with --format html, and none otherwise",
            found="none" if out is None else f"{out} with --format {format}",
            remedy="moegauge report REPORT --format html --out page.html; the other forms go to stdout.",
        )
    if out is not None:
        write_page(report, record, out)
    else:
        print_report(record, format)
    return 0


def print_report(report: LadderReport, form: str) -> None:
    """Print a report to stdout in one of its forms."""
    if form == "json":
        print_json(report)
    elif form == "markdown":
        sys.stdout.write(ladder_markdown(report))
    else:
        console = stdout()
        show_ladder(console, report)
        show_conditions(console, report)


def register(app: App) -> None:
    """Add the verbs to the command line."""
    app.command(align_command, name="align")
    app.command(report_command, name="report")


def _selection(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in {"iteration", "layer"} or not _WHOLE.match(value) or name in found:
            raise errors.MisuseError(
                where="--select",
                expected="iteration=I or iteration=I,layer=L",
                found=text or "nothing",
                remedy="Give whole numbers.",
            )
        found[name] = int(value)
    return found.get("iteration"), found.get("layer")
