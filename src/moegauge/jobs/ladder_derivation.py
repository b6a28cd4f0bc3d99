"""From a capture and a profile database to a ladder. Align writes it; verify derives it again and compares."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from moegauge import __version__
from moegauge.adapters.profile_db import ProfileDb, ProfileRow
from moegauge.evidence.capture_folder import RECORD_NAME as CAPTURE_RECORD
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.digest import record_digest
from moegauge.evidence.report_folder import RECORD_NAME as REPORT_RECORD
from moegauge.jobs.explanation import derive_explanation
from moegauge.jobs.ladder_conditions import condition_names, served_conditions
from moegauge.jobs.ladder_measured import Stored, align_inputs, read_stored, recorded_values
from moegauge.jobs.ladder_notes import capture_notes, pass_conditions, pass_notes, rung_identity
from moegauge.jobs.ladder_tables import ladder_tables
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, UNPADDED, InputChoice
from moegauge.jobs.rank_condition import unsaid_conditions
from moegauge.ladder.alignment import Alignment, Choice
from moegauge.ladder.assembly import assemble
from moegauge.ladder.conditions import between_rows, limits
from moegauge.ladder.pairs import Context, RungInput
from moegauge.ladder.sides import TwoSides
from moegauge.records.comparison import (
    Evidence,
    EvidenceLink,
    InputLabel,
    LadderReport,
    Links,
    ServedTime,
    Settings,
)
from moegauge.records.decision import Reason, reason
from moegauge.records.explanation import Explanation
from moegauge.records.measurement import Facts
from moegauge.routing.samplers import sampler_named


@dataclass(frozen=True)
class DerivedLadder:
    """The report without the digests of its tables, and the tables."""

    report: LadderReport
    tables: dict[str, pl.DataFrame]


def derive_ladder(
    capture: CaptureFolder, database: ProfileDb, settings: Settings, *, report_folder: Path
) -> DerivedLadder:
    """Compute the whole ladder.

    Args:
        capture: the served side.
        database: the isolated side.
        settings: tolerances, selection and choice of rows.
        report_folder: where the report stands or will stand (links are relative to it).
    """
    store = read_stored(database, capture.record.kernel.kind)
    aligned = {kind: _aligned(capture, store, settings, kind) for kind in (EXACT, ITERATION, FULL_RUN)}
    exact = aligned[EXACT]
    assert isinstance(exact, _Aligned)  # noqa: S101 - exact is aligned whether or not it was measured
    folder = _relative(capture.path, report_folder)
    links = Links(
        capture=folder,
        input=f"{folder}/routed_inputs.parquet",
        measurements=_relative(database.path, report_folder),
        report=REPORT_RECORD,
    )
    context = Context(
        settings=settings, links=links, num_ranks=capture.record.topology.world_size, rank_identity="RANK_NUMBER"
    )
    inputs = _rung_inputs(capture, aligned)
    rungs, verdict = assemble(inputs, context)
    used = [row for one in aligned.values() if isinstance(one, _Aligned) for row in one.used]
    facts = _distinct_facts(capture, store, used)
    kernel, coverage = capture.record.kernel, capture.record.coverage
    report = LadderReport(
        schema=LadderReport.tag(),
        tool_version=__version__,
        subject=f"{kernel.kind} ({kernel.backend}, {kernel.numeric_format})",
        capture_name="/".join(capture.path.resolve().parts[-2:]),
        settings=settings,
        verdict=verdict,
        rungs=rungs,
        conditions=served_conditions(capture, facts, used),
        served=ServedTime(busy_ns=coverage.busy_ns, span_ns=coverage.span_ns, foreign_ns=coverage.foreign_ns),
        limits=limits(facts),
        notes=capture_notes(capture, exact.work) + rung_identity(rungs) + pass_notes(store.passes, store.samples, used),
        explanation=_explanation(capture, store, settings, exact.work),
        evidence=Evidence(
            capture=EvidenceLink(path=f"{folder}/{CAPTURE_RECORD}", digest=capture.digest),
            measurements=EvidenceLink(path=links.measurements, digest=_measurement_digest(used, store.samples)),
            tables={},
        ),
    )
    return DerivedLadder(report, ladder_tables(exact.work, settings))


@dataclass(frozen=True)
class _Aligned:
    """One representation aligned with the served work, the rows it used, and their conditions."""

    work: Alignment
    used: list[ProfileRow]
    facts: list[Facts]
    label: InputLabel
    launch_mode_recorded: bool


def _aligned(capture: CaptureFolder, store: Stored, settings: Settings, kind: str) -> _Aligned | Reason:
    """Align one representation, or say why it cannot be: no rows, or rows of another sampler only.

    Rows are matched by the digest of their input, never by their label: two samplers that draw the same rows share one.
    """
    rows = store.measured(kind)
    choice = InputChoice(type=kind, sampler=settings.sampler, seed=settings.seed, padding=settings.padding)
    if not rows and kind != EXACT:
        return reason("NO_MEASURED_ROWS", f"the profile database holds no rows measured on {_words(kind)} inputs")
    work = align_inputs(capture, store, choice, _choice(settings))
    numbers = set(work.row_ids)
    used = [row for row in rows if row.row_id in numbers]
    if kind != EXACT and not work.covered.all() and not any(_is_drawn_by(row, choice) for row in rows):
        return _drawn_otherwise(kind, rows, choice)
    return _Aligned(
        work=work,
        used=used,
        facts=_distinct_facts(capture, store, used),
        label=_label(kind, choice, used),
        launch_mode_recorded=_launch_modes_recorded(capture, used),
    )


def _choice(settings: Settings) -> Choice:
    return Choice(settings.launch_mode, settings.cache_state)


def _explanation(capture: CaptureFolder, store: Stored, settings: Settings, exact: Alignment) -> Explanation | None:
    """Effects of the conditions asked for; None where none was asked for."""
    if not settings.explain:
        return None
    return derive_explanation(
        capture,
        exact,
        _choice(settings),
        settings.explain,
        align_exact=lambda choice: align_inputs(capture, store, InputChoice(type=EXACT), choice),
        align_unpadded=lambda choice: align_inputs(capture, store, InputChoice(type=UNPADDED), choice),
        recorded=recorded_values(store, EXACT),
    )


def _label(kind: str, choice: InputChoice, used: list[ProfileRow]) -> InputLabel:
    """What feeds the right side: the representation that was asked for, and the window it was taken over."""
    if kind == EXACT:
        return InputLabel(type=kind, window=None, sampler=None, version=None, seed=None, digest=None)
    windows = sorted({row.label.window for row in used if row.label.window is not None})
    return InputLabel(
        type=kind,
        window="each iteration" if kind == ITERATION else ", ".join(windows) or None,
        sampler=choice.sampler,
        version=sampler_named(choice.sampler).version,
        seed=choice.seed,
        digest=None,
    )


def _is_drawn_by(row: ProfileRow, choice: InputChoice) -> bool:
    """Whether a row was measured as this sampler drew it, whatever its input is."""
    label, version = row.label, sampler_named(choice.sampler).version
    drawn = (label.sampler, label.version, label.seed, label.padding)
    return drawn == (choice.sampler, version, choice.seed, choice.padding)


def _drawn_otherwise(kind: str, rows: list[ProfileRow], choice: InputChoice) -> Reason:
    """Rows of one token may be drawn alike by several samplers; a rung still rests on one sampler."""
    version = sampler_named(choice.sampler).version
    wanted = f"{choice.sampler} v{version}, seed {choice.seed}, padding {choice.padding}"
    labels = [row.label for row in rows]
    others = sorted({f"{one.sampler} v{one.version}, seed {one.seed}, padding {one.padding}" for one in labels})
    return reason("SAMPLER_DIFFERS", f"{_words(kind)} inputs were measured as {'; '.join(others)}, not as {wanted}")


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _rung_inputs(capture: CaptureFolder, aligned: dict[str, _Aligned | Reason]) -> dict[int, RungInput | Reason]:
    """Two sides for each rung, or why there are none."""
    exact, iteration, full = aligned[EXACT], aligned[ITERATION], aligned[FULL_RUN]

    def against_served(one: _Aligned | Reason) -> RungInput | Reason:
        if isinstance(one, Reason):
            return one
        conditions = served_conditions(capture, one.facts, one.used)
        return RungInput(TwoSides(one.work), conditions, one.label, one.launch_mode_recorded)

    def between() -> RungInput | Reason:
        if isinstance(iteration, Reason) or isinstance(full, Reason):
            return iteration if isinstance(iteration, Reason) else full  # type: ignore[return-value]
        recorded = full.launch_mode_recorded and iteration.launch_mode_recorded
        conditions = between_rows(condition_names(capture.record), iteration.facts, full.facts)
        return RungInput(TwoSides(full.work, iteration.work), conditions, full.label, recorded)

    first = against_served(exact)
    return {1: first, 2: first, 3: against_served(iteration), 4: between(), 5: against_served(full)}


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _distinct_facts(capture: CaptureFolder, store: Stored, used: list[ProfileRow]) -> list[Facts]:
    """Distinct conditions the rows were measured under: their own, and what was read around their passes."""
    settings = {row.row_id: row.key.setting.conditions for row in used}
    pairs = store.samples.filter(pl.col("row_id").is_in(list(settings))).select("row_id", "pass_id").unique()
    found: dict[str, Facts] = {}
    for row_id, pass_id in pairs.sort("row_id", "pass_id").iter_rows():
        record = store.passes[pass_id]
        unsaid = unsaid_conditions(record, world_size=capture.record.topology.world_size)
        facts = unsaid | settings[row_id] | pass_conditions(record)
        found.setdefault(record_digest(facts), facts)
    return list(found.values())


def _launch_modes_recorded(capture: CaptureFolder, used: list[ProfileRow]) -> bool:
    served = capture.iterations["launch_mode"].null_count() == 0
    return served and all(row.key.setting.launch_mode is not None for row in used)


def _measurement_digest(used: list[ProfileRow], samples: pl.DataFrame) -> str:
    """Digest of every key and raw sample the ladder used, whatever else the database holds or how it lays it out.

    A pass is named by its samples, so that what was measured together stays together and no number of a row or a pass
    is in it.
    """
    keys = {row.row_id: record_digest(row.key) for row in used}
    mine = samples.filter(pl.col("row_id").is_in(list(keys)))
    mine = mine.with_columns(key=mine["row_id"].replace_strict(keys, return_dtype=pl.String))
    columns = ("key", "ordinal", "iteration", "layer", "rank", "busy_ns", "kernels_digest")
    passes = mine.sort(columns).partition_by("pass_id")
    return record_digest(sorted(record_digest(one.select(columns).rows()) for one in passes))
