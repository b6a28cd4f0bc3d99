"""moegauge demo."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from moegauge.cli.align import print_report
from moegauge.cli.console import progress_bar, stdout
from moegauge.jobs.demo import closing_sentence, run_demo


def demo_command(*, out: Path | None = None, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Run the ladder on the bundled H200 capture, recomputed from raw traces; needs no GPU.

    Args:
        out: Report folder to make; a temporary one where left out.
        json: Print report.json instead of tables.
    """
    with tempfile.TemporaryDirectory(prefix="moegauge-") as scratch:
        target = out if out is not None else Path(scratch) / "report"
        with progress_bar() as progress:
            demo = run_demo(target, progress=progress)
        print_report(demo.report, "json" if json else "terminal")
        if not json:
            console = stdout()
            console.print()
            console.print(Text(f"derived again: {', '.join(demo.verification.checked)}", style="dim"))
            console.print(Text(closing_sentence(demo), style="bold"))
            if out is not None:
                console.print(Text(f"report: {out}; run  moegauge verify {out}  to derive it again"))
    return 0


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(demo_command, name="demo")
