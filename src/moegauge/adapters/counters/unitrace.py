"""Intel unitrace: its metric query (``-q``), and kernel properties where the same file has them.

The metric section is CSV with a header ``Kernel, GlobalInstanceId, ...`` whose metrics are called ``Name[unit]``; a
kernel that contains commas stands in quotes. ``=== Kernel Properties ===`` holds facts about a kernel rather than a
launch (spill memory, SIMD width); each becomes a metric that has the same value in every launch of the kernel.

Read from the descriptions of lanes that used it; no file of a real device has been read yet.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from fractions import Fraction

from moegauge import errors
from moegauge.adapters.counters.columns import (
    check_ascending,
    column_of,
    csv_rows,
    decimal_text,
    decoded,
    exact_number,
    launch_table,
)
from moegauge.gate.counters import CounterTable

KERNEL, LAUNCH = "Kernel", "GlobalInstanceId"
PROPERTIES = "=== Kernel Properties ==="
_COLUMN = re.compile(r"^(?P<name>[^\[\]]+?)\s*(?:\[(?P<unit>[^\[\]]*)\])?\Z")


def read_unitrace(data: bytes, metrics: Collection[str], *, where: str) -> CounterTable:
    """Read launches and the wanted metrics.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, Inconsistent, Incomplete
    """
    lines = [line.strip() for line in decoded(data, where=where).splitlines()]
    rows = csv_rows(_metric_section(lines, where), where=where)
    header, launches = rows[0], rows[1:]
    parts = [_COLUMN.match(title) for title in header]
    named = [part["name"] if part else title for part, title in zip(parts, header, strict=True)]
    units = {part["name"]: part["unit"] or "" for part in parts if part}
    kernel = column_of(named, KERNEL, where=where)
    launch = column_of(named, LAUNCH, where=where)
    check_ascending([row[launch] for row in launches], step=None, where=where)
    columns = {name: column_of(named, name, where=where) for name in metrics if name in named}
    table = launch_table(columns, [row[kernel] for row in launches], launches, units, where)
    return _with_properties(table, _properties(lines, where), metrics, where)


def _metric_section(lines: Sequence[str], where: str) -> list[str]:
    """Lines of the one metric table: from its header to the next heading."""
    starts = [i for i, line in enumerate(lines) if line.startswith(f"{KERNEL},") and LAUNCH in line]
    if len(starts) != 1:
        raise errors.Incomplete(
            where=where,
            expected=f"one table that begins {KERNEL}, {LAUNCH}",
            found=f"{len(starts)}",
            remedy="No kernel was profiled, or several processes were; profile one process with -q.",
        )
    section = []
    for line in lines[starts[0] :]:
        if line.startswith("==="):
            break
        if line:
            section.append(line)
    return section


def _properties(lines: Sequence[str], where: str) -> dict[str, dict[str, str]]:
    """Properties by kernel; empty where the file has no such section."""
    if PROPERTIES not in lines:
        return {}
    section = []
    for line in lines[lines.index(PROPERTIES) + 1 :]:
        if line.startswith("==="):
            break
        if line and not set(line) <= {"-", ",", " "}:
            section.append(line)
    rows = csv_rows(section, where=f"{where}: {PROPERTIES}")
    if not rows:
        return {}
    kernel = column_of(rows[0], KERNEL, where=where)
    return {row[kernel]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}


def _with_properties(
    table: CounterTable, properties: dict[str, dict[str, str]], metrics: Collection[str], where: str
) -> CounterTable:
    found = dict(table.metrics)
    for name in metrics:
        if name in found or not any(name in one for one in properties.values()):
            continue
        values: list[Fraction | None] = []
        for kernel in table.kernels:
            text = properties.get(kernel, {}).get(name, "")
            values.append(exact_number(text, where=f"{where}: {kernel}, {name}"))
        found[name] = tuple(values)
    return CounterTable(table.kernels, found, {**table.units, **{n: "" for n in found if n not in table.units}})


def write_unitrace(table: CounterTable) -> bytes:
    """A table as unitrace would write it; what a rehearsal reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(table.metrics)
    text.write("=== Device #0 Metrics ===\n\n")
    titles = [f"{name}[{table.units[name]}]" if table.units.get(name) else name for name in names]
    writer.writerow([KERNEL, LAUNCH, *titles])
    for i, kernel in enumerate(table.kernels):
        writer.writerow([kernel, i, *(decimal_text(table.metrics[name][i]) for name in names)])
    return text.getvalue().encode()
