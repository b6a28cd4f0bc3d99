"""moegauge profile import | verify: evidence into a profile database, and every sample derived from it again."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cyclopts import App

from moegauge import errors
from moegauge.cli.arguments import Flag, Many, named_values
from moegauge.cli.console import print_json, progress_bar, stdout
from moegauge.cli.verify import print_verification
from moegauge.jobs.profile_derivation import ReplayLabels
from moegauge.jobs.profile_import import import_replay
from moegauge.jobs.verify_measurements import verify_database


def import_command(
    capture: Path,
    *traces: Path,
    db: Path,
    tag: str | None = None,
    launch_mode: str | None = None,
    declare: Many = None,
    json: Flag = False,
) -> int:
    """Import a replay of a capture's exact inputs as one measured pass.

    Args:
        capture: Capture folder whose inputs were replayed.
        traces: Traces of the replay (docs/formats/traces.md), one a rank; together they form one pass.
        db: Profile database; made where there is none.
        tag: Annotation tag of the replay; only needed where the trace has several.
        launch_mode: eager or graph, where the trace has no launch calls that show it.
        declare: NAME=VALUE of a condition the trace does not record (activations, weights, cache_state, vllm, ...).
        json: Print what was added as JSON.
    """
    if not traces:
        raise errors.MisuseError(
            where="moegauge profile import",
            expected="at least one trace",
            found="none",
            remedy="Give one trace a rank.",
        )
    if launch_mode not in {None, "eager", "graph"}:
        raise errors.MisuseError(
            where="--launch-mode", expected="eager or graph", found=str(launch_mode), remedy="Give one of the two."
        )
    labels = ReplayLabels(tag, launch_mode, named_values(declare, "--declare"))
    with progress_bar() as progress:
        added = import_replay(capture, list(traces), db, labels=labels, progress=progress)
    if json:
        print_json(msgspec.to_builtins(added))
    else:
        stdout().print(
            f"pass {added.number} ({added.tag}): {added.num_samples} samples in {added.num_rows} rows added to {db}",
            markup=False,
            soft_wrap=True,
        )
    return 0


def verify_command(db: Path, *, capture: Path | None = None, json: Flag = False) -> int:
    """Derive every sample of a profile database again from its raw traces, and its inputs from capture and specs.

    Exit status: 0 everything was derived again, 1 something differs, 2 unreadable.

    Args:
        db: Profile database.
        capture: Capture whose inputs were measured; none is needed where all of them were given by specs.
        json: Print the outcome as JSON.
    """
    with progress_bar() as progress:
        found = verify_database(db, capture, progress=progress)
    return print_verification(found, json=json)


def register(app: App) -> None:
    """Add the verbs to ``moegauge profile``."""
    app.command(import_command, name="import")
    app.command(verify_command, name="verify")
