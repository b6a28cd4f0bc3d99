"""NVIDIA Nsight Compute: ``ncu --csv --page raw --print-units base``.

The file has lines of the profiler (``==PROF==``, ``==WARNING==``), one header row, one row of units, and one row a
launch. Numbers carry commas between thousands.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection

from moegauge import errors
from moegauge.adapters.counters.columns import (
    check_ascending,
    column_of,
    csv_rows,
    decimal_text,
    decoded,
    launch_table,
    wanted_columns,
)
from moegauge.gate.counters import CounterTable

ID, KERNEL = "ID", "Kernel Name"


def read_ncu(data: bytes, metrics: Collection[str], *, where: str) -> CounterTable:
    """Read launches and the wanted metrics.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, Inconsistent
    """
    lines = decoded(data, where=where).splitlines()
    for line in lines:
        if line.startswith("==ERROR=="):
            raise errors.MalformedFile(
                where=where, expected="a profile", found=line, remedy="ncu failed; its message says why."
            )
    table = [line for line in lines if line.strip() and not line.startswith("==")]
    rows = csv_rows(table, where=where)
    if not rows:
        raise errors.Incomplete(
            where=where,
            expected="a header, units and launches",
            found="no table",
            remedy="No kernel was profiled; check ncu's filters.",
        )
    header = rows[0]
    if "Metric Name" in header:
        raise errors.MalformedFile(
            where=where,
            expected="one row a launch",
            found="one row a metric",
            remedy="Run ncu with --csv --page raw --print-units base.",
        )
    kernel, launch = column_of(header, KERNEL, where=where), column_of(header, ID, where=where)
    if len(rows) < 2 or rows[1][launch].strip():
        raise errors.MalformedFile(
            where=where,
            expected="a row of units below the header",
            found="none",
            remedy="Run ncu with --csv --page raw --print-units base.",
        )
    launches = rows[2:]
    check_ascending([row[launch] for row in launches], step=1, where=where)
    units = dict(zip(header, rows[1], strict=True))
    columns = wanted_columns(header, metrics, where=where)
    return launch_table(columns, [row[kernel] for row in launches], launches, units, where)


def write_ncu(table: CounterTable) -> bytes:
    """A table as ncu would write it; what a rehearsal reads."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    names = list(table.metrics)
    text.write("==PROF== Connected to process 1 (simulated)\n==PROF== Disconnected from process 1\n")
    writer.writerow([ID, KERNEL, *names])
    writer.writerow(["", "", *(table.units.get(name, "") for name in names)])
    for i, kernel in enumerate(table.kernels):
        values = [table.metrics[name][i] for name in names]
        writer.writerow([i, kernel, *(decimal_text(value) for value in values)])
    return text.getvalue().encode()
