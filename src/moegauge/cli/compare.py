"""moegauge compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts import App

from moegauge.cli.console import EXIT_CANNOT_JUDGE, print_json, progress_bar
from moegauge.jobs.compare import CompareOptions, compare
from moegauge.records.decision import Status
from moegauge.render.compare_text import compare_junit, compare_markdown

_EXIT = {Status.MATCH: 0, Status.DIVERGED: 1}


def compare_command(
    capture: Path,
    *,
    base: str,
    head: str,
    out: Path | None = None,
    format: Literal["markdown", "junit", "json"] = "markdown",  # noqa: A002
    margin: float = 0.02,
    bound: float | None = None,
    blocks: int = 10,
    calls: int = 5,
    per_stratum: int = 2,
    max_rows: int | None = None,
    seed: int = 0,
) -> int:
    """Compare an old and a new implementation on the same captured inputs, on the host processor.

    Exit status: 0 exact (or inside the bound) and not worse, 1 worse or not exact, 2 cannot be judged.

    Args:
        capture: Capture folder that the inputs come from.
        base: The old side: torch_moe, or a function as pkg.module:function.
        head: The new side, likewise.
        out: Compare folder to make; nothing may stand there.
        format: How the result is printed.
        margin: How much slower counts as not worse; 0.02 is 2 %.
        bound: Largest relative error of head against float64 that passes. Without it only equal bits pass.
        blocks: A-B-B-A blocks of every invocation, at least 6.
        calls: Timed calls of each arm of a block.
        per_stratum: Invocations compared of each stratum.
        max_rows: Leave out invocations with more rows.
        seed: Of weights and hidden states.
    """
    options = CompareOptions(
        margin_ratio=margin,
        bound_ratio=bound,
        num_blocks=blocks,
        calls_per_arm=calls,
        per_stratum=per_stratum,
        max_rows=max_rows,
        seed=seed,
    )
    with progress_bar() as progress:
        report = compare(capture, base, head, options, out=out, progress=progress)
    if format == "json":
        print_json(report)
    else:
        sys.stdout.write(compare_junit(report) if format == "junit" else compare_markdown(report))
    return _EXIT.get(report.result.status, EXIT_CANNOT_JUDGE)


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(compare_command, name="compare")
