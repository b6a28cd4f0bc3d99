"""moegauge capture import | show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs.capture_import import import_bundle
from moegauge.jobs.capture_show import show_capture as view_capture
from moegauge.render.terminal import show_capture

app = App(name="capture", help="Make and inspect captures of serving.")
import_app = App(name="import", help="Build a capture from files other tools wrote.")
app.command(import_app)


@import_app.command(name="bundle")
def import_bundle_command(
    bundle: Path,
    *,
    out: Path,
    kind: str | None = None,
    partial: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Import a bundle folder (meta.json, routing tables, Kineto traces).

    Args:
        bundle: Folder as in docs/formats/bundle.md.
        out: Capture folder to make; nothing may stand there.
        kind: Kernel kind; taken from the bundle or from the kernels seen where left out.
        partial: Import what is there although a declared rank is missing; the capture is marked.
        json: Print capture.json instead of a table.
    """
    with progress_bar() as progress:
        import_bundle(bundle, out, kind=kind, partial=partial, progress=progress)
    return show_capture_command(out, json=json)


@app.command(name="show")
def show_capture_command(capture: Path, *, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Show what is in a capture, what is missing, and what that makes unavailable.

    Args:
        capture: Capture folder.
        json: Print the record instead of a table.
    """
    view = view_capture(capture)
    if json:
        print_json({"capture": msgspec.to_builtins(view.record), "unavailable": view.consequences})
    else:
        show_capture(stdout(), view.record, view.consequences)
    return 0
