"""moegauge tune."""

from __future__ import annotations

import os
from pathlib import Path

from cyclopts import App

from moegauge import errors
from moegauge.cli.arguments import Flag, Many, numbers
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs.tune import ROUTINGS, TuneChoice, tune
from moegauge.render.tuning_text import show_tuning


def tune_command(
    capture: Path,
    *,
    kind: str,
    out: Path,
    search: Many = None,
    rows: str | None = None,
    invocations: int = 8,
    passes: int = 7,
    seed: int = 0,
    processes: int | None = None,
    json: Flag = False,
) -> int:
    """Search for the Triton configurations that are fastest under served routing; writes them as vLLM reads them.

    Args:
        capture: Capture folder.
        kind: vllm_triton_moe or vllm_triton_moe_fp8_block.
        out: Tuning folder to make; nothing may stand there.
        search: Routing of the search: served (unless given) or uniform; both may be given, each makes an arm.
        rows: Only these numbers of executed rows, as 8,16,1024; else all that the capture has.
        invocations: Served invocations of each number of rows in each stage.
        passes: Passes of the verdict; an interval needs six.
        seed: Of weights, hidden states, the choice of invocations and the order of trials.
        processes: Processes that compile ahead; a few less than there are processors, unless given.
        json: Print tuning.json instead of tables.
    """
    routings = tuple(dict.fromkeys(search or ["served"]))
    for name, value in (("--invocations", invocations), ("--passes", passes), ("--processes", processes)):
        if value is not None and value < 1:
            raise errors.MisuseError(where=name, expected="at least 1", found=str(value), remedy="Ask for more.")
    if set(routings) - set(ROUTINGS):
        raise errors.MisuseError(
            where="--search", expected=" or ".join(ROUTINGS), found=", ".join(routings), remedy="Choose among them."
        )
    choice = TuneChoice(
        kind=kind,
        routings=routings,
        rows=None if rows is None else numbers(rows, "--rows"),
        num_invocations=invocations,
        num_passes=passes,
        seed=seed,
        num_processes=max(1, min(12, (os.cpu_count() or 1) - 2)) if processes is None else processes,
    )
    with progress_bar() as progress:
        record = tune(capture, out, choice, progress=progress)
    if json:
        print_json(record)
    else:
        show_tuning(stdout(), record)
    return 0


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(tune_command, name="tune")
