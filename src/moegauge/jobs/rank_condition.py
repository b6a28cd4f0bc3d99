"""The condition ``ranks`` where nobody had to record it: it follows from what a capture, a pass or a row is."""

from __future__ import annotations

from collections.abc import Mapping

from moegauge.adapters.profile_db import ProfileDb
from moegauge.records.capture import CaptureRecord
from moegauge.records.measurement import ALONE, TOGETHER, Fact, Facts
from moegauge.records.profile import PassRecord


def served_facts(record: CaptureRecord) -> Facts:
    """Conditions of a capture: an engine runs the ranks of an invocation together, and one rank has no other."""
    value = TOGETHER if record.topology.world_size > 1 else ALONE
    return {"ranks": Fact(value=value, source="trace")} | record.conditions


def unsaid_conditions(record: PassRecord, *, world_size: int) -> Facts:
    """Conditions of a pass, where the setting of a row does not say otherwise.

    A runner writes into its rows that it measured ranks together, so it measured all others alone. Of an imported
    replay that is known only where there was one rank to replay.

    Args:
        record: the pass. world_size: ranks of an invocation of the capture it is compared with.
    """
    alone = record.source == "run" or (world_size == 1 and len(record.traces) == 1)
    return {"ranks": Fact(value=ALONE, source="trace")} if alone else {}


def imported_rows(database: ProfileDb) -> set[int]:
    """Numbers of the rows that were imported, and not measured by a runner."""
    passes: Mapping[int, PassRecord] = database.passes()
    pairs = database.samples().select("row_id", "pass_id").unique()
    return {row_id for row_id, number in pairs.iter_rows() if passes[number].source == "import"}
