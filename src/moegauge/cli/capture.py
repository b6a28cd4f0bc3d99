"""moegauge capture import | show."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cyclopts import App

from moegauge.cli import capture_live
from moegauge.cli.arguments import Flag
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.capture_show import show_capture as view_capture
from moegauge.render.terminal import show_capture

app = App(name="capture", help="Make and inspect captures of serving.")
import_app = App(name="import", help="Build a capture from files other tools wrote.")
app.command(import_app)
capture_live.register(app)


@import_app.command(name="bundle")
def import_bundle_command(
    bundle: Path,
    *,
    out: Path,
    kind: str | None = None,
    partial: Flag = False,
    json: Flag = False,
) -> int:
    """Import a bundle folder (meta.json, routing tables, traces).

    Args:
        bundle: Folder as in docs/formats/bundle.md.
        out: Capture folder to make; nothing may stand there.
        kind: Kernel kind; taken from the bundle or from the kernels seen where left out.
        partial: Import what is there although a declared rank is missing; the capture is marked.
        json: Print capture.json instead of a table.
    """
    with progress_bar() as progress:
        import_serving(bundle, out, kind=kind, partial=partial, progress=progress)
    return show_capture_command(out, json=json)


@import_app.command(name="recording")
def import_recording_command(recording: Path, *, out: Path, json: Flag = False) -> int:
    """Import what the plugin recorded inside a vLLM (MOEGAUGE_CAPTURE=RECORDING vllm serve ...).

    A recording that was cut off (the engine was killed) is imported up to its last whole iteration, and says so.

    Args:
        recording: Folder with rank<r>.frames, or one of its takes.
        out: Capture folder to make; nothing may stand there.
        json: Print capture.json instead of a table.
    """
    with progress_bar() as progress:
        import_serving(recording, out, progress=progress)
    return show_capture_command(out, json=json)


@app.command(name="show")
def show_capture_command(capture: Path, *, json: Flag = False) -> int:
    """Show what is in a capture, what is missing, and what that makes unavailable.

    Args:
        capture: Capture folder.
        json: Print the record instead of a table.
    """
    view = view_capture(capture)
    if json:
        print_json(
            {
                "capture": msgspec.to_builtins(view.record),
                "unavailable": view.consequences,
                "rows_by_phase": view.rows_by_phase,
                "overhead": msgspec.to_builtins(view.overhead),
            }
        )
    else:
        show_capture(stdout(), view)
    return 0
