"""moegauge align: a capture and a profile database in, a ladder report out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import open_capture
from moegauge.evidence.digest import file_digest
from moegauge.evidence.report_folder import RECORD_NAME, TABLES
from moegauge.evidence.store import new_folder, refuse_existing, write_head
from moegauge.evidence.tables import write_table
from moegauge.jobs.ladder_derivation import derive_ladder
from moegauge.jobs.progress import Progress, silent
from moegauge.ladder.judgement import CANCELLATION
from moegauge.records.comparison import LadderReport, Settings
from moegauge.records.decision import Status
from moegauge.routing.samplers import SAMPLERS


def align(capture: Path, db: Path, out: Path, *, settings: Settings, progress: Progress = silent) -> LadderReport:
    """Run the ladder and write the report folder (report.json and Parquet rows).

    Args:
        capture: capture folder.
        db: profile database.
        out: report folder to make; nothing may stand there.
        settings: tolerances, selection and choice of rows.
        progress: told how far it is.

    Raises:
        EvidenceError: the capture or the database is not what it has to be. Nothing is written then.
        MisuseError: a setting makes no sense, or something already stands at ``out``.
    """
    refuse_existing(out)
    _check(settings)
    _refuse_inside(capture, out)
    progress("reading", 0, 2)
    folder = open_capture(capture)
    with open_profile_db(db) as database:
        derived = derive_ladder(folder, database, settings, report_folder=out)
    progress("writing", 1, 2)
    with new_folder(out) as building:
        digests = {}
        for schema in TABLES:
            path = building / f"{schema.name}.parquet"
            write_table(path, schema, derived.tables[schema.name])
            digests[path.name] = file_digest(path)
        report = with_table_digests(derived.report, digests)
        write_head(building, RECORD_NAME, report)
    progress("writing", 2, 2)
    return report


def with_table_digests(report: LadderReport, digests: dict[str, str]) -> LadderReport:
    """The report with the digests of its row tables."""
    return msgspec.structs.replace(report, evidence=msgspec.structs.replace(report.evidence, tables=digests))


def ladder_settings(
    *,
    tolerance: float = 0.02,
    invocation_tolerance: float = 0.05,
    launch_mode: str = "as-served",
    cache_state: str | None = None,
    iteration: int | None = None,
    layer: int | None = None,
    sampler: str = "counts_exact",
    seed: int = 0,
    padding: str = "captured",
    explain: Mapping[str, str] | None = None,
) -> Settings:
    """Settings of a ladder with their defaults.

    Args:
        tolerance: of |relative| for totals, as a ratio of left. invocation_tolerance: of one invocation.
        launch_mode: as-served, eager or graph. cache_state: of the isolated rows, None for whichever is there.
        iteration, layer: selected; None takes the medians.
        sampler, seed: of the reconstructions of rungs 3 to 5. padding: captured (padded rows keep their captured ids)
            or drawn.
        explain: conditions to change one at a time, and the values serving is supposed to have had.
    """
    settings = Settings(
        tolerance_ratio=tolerance,
        invocation_tolerance_ratio=invocation_tolerance,
        launch_mode=launch_mode,
        cache_state=cache_state,
        select_iteration=iteration,
        select_layer=layer,
        sampler=sampler,
        seed=seed,
        padding=padding,
        explain=dict(explain or {}),
    )
    _check(settings)
    return settings


def exit_status(report: LadderReport) -> int:
    """1 where a rung diverged or is flagged CANCELLATION, 0 where all match, else 2."""
    if any(rung.status == Status.DIVERGED or CANCELLATION in rung.flags for rung in report.rungs):
        return 1
    return 0 if all(rung.status == Status.MATCH for rung in report.rungs) else 2


def _refuse_inside(capture: Path, out: Path) -> None:
    if out.resolve().is_relative_to(capture.resolve()):
        raise errors.MisuseError(
            where=str(out),
            expected="a report folder outside the capture",
            found=f"one inside {capture}",
            remedy="A capture is written once; a file more in it would no longer verify. Choose another --out.",
        )


def _check(settings: Settings) -> None:
    wrong = None
    if settings.launch_mode not in {"as-served", "eager", "graph"}:
        wrong = ("--launch-mode", "as-served, eager or graph", settings.launch_mode)
    for name, value in (
        ("--tolerance", settings.tolerance_ratio),
        ("--invocation-tolerance", settings.invocation_tolerance_ratio),
    ):
        if not 0 < value < 1:
            wrong = (name, "a ratio between 0 and 1 (0.02 is 2 %)", str(value))
    if settings.padding not in {"captured", "drawn"}:
        wrong = ("--padding", "captured or drawn", settings.padding)
    if settings.sampler not in SAMPLERS:
        wrong = ("--sampler", ", ".join(sorted(SAMPLERS)), settings.sampler)
    if settings.select_layer is not None and settings.select_iteration is None:
        wrong = (
            "--select",
            "an iteration with the layer (iteration=I,layer=L)",
            f"layer={settings.select_layer} alone",
        )
    if wrong is not None:
        raise errors.MisuseError(where=wrong[0], expected=wrong[1], found=wrong[2], remedy="See moegauge align --help.")
