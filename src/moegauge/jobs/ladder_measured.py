"""The isolated side of a ladder: what a profile database holds of one kernel kind, aligned with a capture.

with open_profile_db(path) as database:
    stored = read_stored(database, capture.record.kernel.kind)
work = align_inputs(capture, stored, InputChoice(type=EXACT), Choice("as-served", None))
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from moegauge.adapters.profile_db import ProfileDb, ProfileRow
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.digest import record_digest
from moegauge.jobs.ladder_notes import pass_clocks
from moegauge.jobs.ladder_served import served_work
from moegauge.jobs.profile_specs import InputChoice
from moegauge.ladder.alignment import Alignment, Choice, MeasuredWork, align_work
from moegauge.records.measurement import Facts
from moegauge.records.profile import PassRecord, RowStatus

_CONDITIONS = ("cache_state", "co_running", "kernel_config", "ranks", "clocks")
_CHOSEN = ("launch_mode", "cache_state", "co_running", "kernel_config")


@dataclass(frozen=True)
class Stored:
    """Rows, samples and passes of a profile database, read once.

    Attributes:
        rows: newest generation of every row of one kernel kind.
        samples: every sample of the database, columns SAMPLE_COLUMNS. passes: every pass by number.
    """

    rows: list[ProfileRow]
    samples: pl.DataFrame
    passes: dict[int, PassRecord]

    def measured(self, input_type: str) -> list[ProfileRow]:
        """Rows with times of one kind of input."""
        return [row for row in self.rows if row.key.match.input_type == input_type and row.status == RowStatus.MEASURED]


def read_stored(database: ProfileDb, kernel_kind: str) -> Stored:
    """Read what a database holds of a kernel kind."""
    return Stored(database.rows(kernel_kind), database.samples(), database.passes())


def align_inputs(capture: CaptureFolder, stored: Stored, drawn: InputChoice, choice: Choice) -> Alignment:
    """Align the rows measured on one representation with the served work, as every rung does.

    Args:
        capture: the served side. stored: the isolated side.
        drawn: representation, and how it is drawn; a reconstruction is drawn again.
        choice: which rows to take where several match.

    Raises:
        MisuseError: an unknown input type. Inconsistent: a popularity that cannot be rebuilt.
    """
    return align_work(served_work(capture, drawn), _measured_work(stored, drawn.type), choice)


def recorded_values(stored: Stored, input_type: str) -> dict[str, list[str]]:
    """Values of the conditions that choose among measured rows, by name of a field of Choice; sorted."""
    work = _measured_work(stored, input_type)
    columns = {name: work.rows[name] for name in _CHOSEN} | {"clocks": work.samples["clocks"]}
    return {name: sorted(column.drop_nulls().unique().to_list()) for name, column in columns.items()}


def _measured_work(stored: Stored, input_type: str) -> MeasuredWork:
    """Rows of one kind of input as the right side. Clocks that a row declares come before those read around a pass."""
    rows = stored.measured(input_type)
    conditions = [row.key.setting.conditions for row in rows]
    table = pl.DataFrame(
        {
            "row_id": [row.row_id for row in rows],
            "match": [record_digest(row.key.match) for row in rows],
            "launch_mode": [row.key.setting.launch_mode for row in rows],
            **{name: [_fact(facts, name) for facts in conditions] for name in _CONDITIONS},
        },
        schema={"row_id": pl.Int64} | dict.fromkeys(("match", "launch_mode", *_CONDITIONS), pl.String),
    )
    read = [(number, pass_clocks(record)) for number, record in stored.passes.items()]
    passes = pl.DataFrame(read, schema={"pass_id": pl.Int64, "read": pl.String}, orient="row")
    samples = (
        stored.samples.select("row_id", "pass_id", "iteration", "layer", "rank", "busy_ns", "kernels_digest")
        .join(table.select("row_id", "clocks"), on="row_id", how="inner", maintain_order="left")
        .join(passes, on="pass_id", how="left", maintain_order="left")
        .with_columns(clocks=pl.coalesce("clocks", "read"))
        .drop("read")
    )
    return MeasuredWork(table.drop("clocks"), samples)


def _fact(facts: Facts, name: str) -> str | None:
    return facts[name].value if name in facts else None
