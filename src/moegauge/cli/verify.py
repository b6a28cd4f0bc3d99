"""moegauge verify: derive every number again."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cyclopts import App
from rich.text import Text

from moegauge.cli.arguments import Flag
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs.verification import Verification
from moegauge.jobs.verify import verify


def verify_command(path: Path, *, json: Flag = False) -> int:
    """Derive every number and verdict of a capture, report, tuning or lane again (a database: moegauge profile verify).

    Exit status: 0 everything was derived again, 1 something differs, 2 unreadable.

    Args:
        path: Capture, report, tuning or lane folder.
        json: Print the outcome as JSON.
    """
    with progress_bar() as progress:
        found = verify(path, progress=progress)
    return print_verification(found, json=json)


def print_verification(found: Verification, *, json: bool) -> int:
    """Print what was derived again and what differs; 1 where anything does, else 0."""
    if json:
        print_json(msgspec.to_builtins(found))
    else:
        console = stdout()
        for line in found.differences:
            console.print(Text.assemble(("differs  ", "bold red"), line), soft_wrap=True)
        console.print(Text(f"{found.kind} {found.path}: checked {', '.join(found.checked)}"), soft_wrap=True)
        verdict = f"{len(found.differences)} differences" if found.differences else "everything was derived again"
        console.print(Text(verdict, style="bold red" if found.differences else "green"))
    return 1 if found.differences else 0


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(verify_command, name="verify")
