"""moegauge kernels list | show."""

from __future__ import annotations

import msgspec
from cyclopts import App

from moegauge.cli.arguments import Flag
from moegauge.cli.console import print_json, stdout
from moegauge.jobs.kernels_show import kernel_view, kernel_views
from moegauge.render.terminal import show_kind, show_kinds

app = App(name="kernels", help="The registered kernel kinds: what is measured of each, and what can be run here.")


@app.command(name="list")
def list_command(*, json: Flag = False) -> int:
    """List every kernel kind: backend, numeric formats, measured boundary, whether a trace has confirmed it, runners.

    Args:
        json: Print the records as JSON.
    """
    views = kernel_views()
    if json:
        print_json([msgspec.to_builtins(view) for view in views])
    else:
        show_kinds(stdout(), views)
    return 0


@app.command(name="show")
def show_command(kind: str, *, json: Flag = False) -> int:
    """Show one kernel kind: its kernels by role, the sequences they run in, and what lies outside its boundary.

    Args:
        kind: Name of the kernel kind.
        json: Print the record as JSON.
    """
    view = kernel_view(kind)
    if json:
        print_json(view)
    else:
        show_kind(stdout(), view)
    return 0
