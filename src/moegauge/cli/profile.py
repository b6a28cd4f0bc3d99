"""moegauge profile list | count-missing | query | run; import and verify stand in profile_evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from cyclopts import App
from rich.text import Text

from moegauge.cli import profile_evidence
from moegauge.cli.arguments import Flag, Many, named_values
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.cli.profile_rows import RowOptions
from moegauge.jobs.profile_lookup import CONDITION_NAMES, RowView, list_rows, query
from moegauge.jobs.profile_run import RunnerChoice, Wanted, run
from moegauge.render.terminal import show_measured, show_rows

app = App(name="profile", help="Isolated measurements, kept apart from captures.")
profile_evidence.register(app)


@app.command(name="run")
def run_command(
    rows: RowOptions,
    *,
    cache_state: str = "in_order",
    co_running: int | None = None,
    kernel_config: Path | None = None,
    passes: int = 7,
    weight_sets: int | None = None,
    weight_seed: int = 0,
    ranks_together: Literal["yes", "no"] | None = None,
    force: Flag = False,
    json: Flag = False,
) -> int:
    """Measure exactly what the database lacks. Killing it loses no finished row; the next run goes on.

    Exit status: 0 every wanted row has its passes, 1 rows remain missing or a measurement failed.

    Args:
        rows: Which rows.
        cache_state: in_order, served_order, warm, cold or rotated.
        co_running: Width of a dense MLP run beside each invocation on a second stream.
        kernel_config: File of tuned Triton configurations, in vLLM's format, to run with instead of those vLLM finds;
            or default, for its heuristic.
        passes: Passes every row shall have.
        weight_sets: Distinct sets of weights; layers share them in turn.
        weight_seed: Seed of weights and hidden states.
        ranks_together: Start the ranks of an invocation together, each with a GPU or cores of its own; left out,
            wherever that can be done.
        force: Measure again, as a new generation.
        json: Print what was done as JSON.
    """
    inputs = rows.inputs()
    wanted = rows.wanted(num_passes=passes, cache_state=cache_state, co_running=co_running)
    choice = RunnerChoice(name=rows.runner, num_weight_sets=weight_sets, seed=weight_seed, kernel_config=kernel_config)
    with progress_bar() as progress:
        together = None if ranks_together is None else ranks_together == "yes"
        filled = run(inputs, rows.db, wanted, choice, together=together, force=force, progress=progress)
    if json:
        print_json(msgspec.to_builtins(filled))
    else:
        console = stdout()
        console.print(
            f"{filled.num_rows} rows wanted, {filled.num_measured} samples added in {filled.num_passes} passes, "
            f"{filled.num_missing} rows still missing"
        )
        if filled.ranks is not None:
            console.print(Text(filled.ranks))
        for status, text in filled.failures:
            console.print(Text(f"{status}: {text}", style="bold red"))
    return 1 if filled.num_missing or filled.failures else 0


@app.command(name="query")
def query_command(rows: RowOptions, *, condition: Many = None, json: Flag = False) -> int:
    """Look rows up; a missing one names the fields in which the nearest stored row differs. Exit status 0.

    Args:
        rows: Which rows.
        condition: NAME=VALUE that a row was measured under (cache_state, weights, ...); may be given several times.
        json: Print the rows as JSON.
    """
    views = _looked_up(rows, rows.wanted(), condition)
    plain = [msgspec.to_builtins(view) for view in views]
    if json:
        print_json(plain)
    else:
        show_rows(stdout(), plain)
    return 0


@app.command(name="count-missing")
def count_missing_command(rows: RowOptions, *, passes: int = 7, condition: Many = None, json: Flag = False) -> int:
    """Count wanted rows with fewer passes than wanted. Exit status 0 where none is missing, else 1.

    Args:
        rows: Which rows.
        passes: Passes every row shall have.
        condition: NAME=VALUE that a row was measured under (cache_state, weights, ...); may be given several times.
        json: Print the counts as JSON.
    """
    views = _looked_up(rows, rows.wanted(num_passes=passes), condition)
    missing = sum(view.num_passes < passes for view in views)
    if json:
        print_json({"num_rows": len(views), "num_missing": missing})
    else:
        stdout().print(f"{missing} of {len(views)} rows have fewer than {passes} passes")
    return 1 if missing else 0


@app.command(name="list")
def list_command(db: Path, *, json: Flag = False) -> int:
    """List what a profile database holds, grouped by how it was measured.

    Args:
        db: Profile database.
        json: Print every row as JSON.
    """
    rows = list_rows(db)
    if json:
        print_json([msgspec.to_builtins(row) for row in rows])
    else:
        show_measured(stdout(), rows)
    return 0


def _looked_up(rows: RowOptions, wanted: Wanted, condition: list[str] | None) -> list[RowView]:
    conditions = named_values(condition, "--condition", among=CONDITION_NAMES)
    return query(rows.inputs(), rows.db, wanted, RunnerChoice(name=rows.runner), conditions=conditions)
