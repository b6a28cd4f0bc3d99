"""Where output goes: tables to stdout, progress and errors to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from moegauge.jobs.progress import Progress as Report
from moegauge.records.schema import canonical_bytes

EXIT_CANNOT_JUDGE = 2


def stdout() -> Console:
    """Console for tables; wide where stdout is no terminal, so that nothing is folded away."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def stderr() -> Console:
    """Console for diagnostics."""
    return Console(stderr=True)


def print_json(value: object) -> None:
    """Print a record's canonical JSON to stdout."""
    sys.stdout.write(canonical_bytes(value).decode())


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A progress bar on stderr; silent where stderr is no terminal."""
    console = stderr()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def report(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total)

        yield report
