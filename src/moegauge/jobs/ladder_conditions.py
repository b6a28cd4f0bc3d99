"""Conditions of a capture held against those of the rows that were measured."""

from __future__ import annotations

from collections.abc import Sequence

from moegauge.adapters.profile_db import ProfileRow
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.rank_condition import served_facts
from moegauge.kernels.registry import kernel_kind
from moegauge.ladder.conditions import condition_rows, kernel_config_row
from moegauge.records.capture import CaptureRecord
from moegauge.records.comparison import ConditionRow
from moegauge.records.measurement import Facts, conditions_on

_CONFIG = "kernel_config_digest"


def condition_names(capture: CaptureRecord) -> tuple[str, ...]:
    """Names of the conditions that matter to the capture's kernel."""
    return conditions_on(host=kernel_kind(capture.kernel.kind).host_operation is not None)


def served_conditions(
    capture: CaptureFolder, facts: Sequence[Facts], used: Sequence[ProfileRow]
) -> tuple[ConditionRow, ...]:
    """Every condition of serving against the distinct ones of the rows used; the kernel configuration row by row."""
    rows = condition_rows(condition_names(capture.record), served_facts(capture.record), facts)
    served = _configurations(capture)
    if served is None:
        return rows
    pairs = [(served.get(row.key.match.executed_rows, frozenset()), _measured(row)) for row in used]
    config = kernel_config_row(pairs)
    return rows if config is None else tuple(config if row.name == _CONFIG else row for row in rows)


def _configurations(capture: CaptureFolder) -> dict[int, frozenset[str]] | None:
    """Configurations that serving chose, by executed rows; None where the capture does not record them."""
    steps = capture.steps
    if steps is None:
        return None
    known = steps.select("iteration", "rank", "kernel_config").join(
        capture.iterations.select("iteration", "rank", "executed_rows"), on=["iteration", "rank"]
    )
    found: dict[int, set[str]] = {}
    for rows, config in known.select("executed_rows", "kernel_config").drop_nulls().unique().iter_rows():
        found.setdefault(int(rows), set()).add(str(config))
    return {rows: frozenset(configs) for rows, configs in found.items()}


def _measured(row: ProfileRow) -> str | None:
    fact = row.key.setting.conditions.get(_CONFIG)
    return None if fact is None else fact.value
