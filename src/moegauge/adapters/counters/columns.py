"""Tables of text into columns of exact numbers; shared by the readers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from moegauge import errors
from moegauge.gate.counters import CounterTable

MAX_BYTES = 256 << 20
MAX_LAUNCHES = 1_000_000

_NUMBER = re.compile(r"^-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?\Z")
"""Decimals, with commas between groups of three digits or none. ``1.234,5`` is not read as anything."""

_NO_VALUE = frozenset({"", "n/a", "N/A", "nan"})


def exact_number(text: str, *, where: str) -> Fraction | None:
    """The exact value of a cell; None where the profiler states none.

    Raises:
        MalformedFile: neither a number nor absent.
    """
    text = text.strip()
    if text in _NO_VALUE:
        return None
    if not _NUMBER.match(text):
        raise errors.MalformedFile(
            where=where,
            expected="a decimal number, with or without commas between thousands",
            found=repr(text),
            remedy="Run the profiler with the C locale and print base units.",
        )
    return Fraction(text.replace(",", ""))


def decoded(data: bytes, *, where: str) -> str:
    """Text of a profiler's file.

    Raises:
        LimitExceeded, MissingFile, MalformedFile
    """
    if len(data) > MAX_BYTES:
        raise errors.LimitExceeded(
            where=where,
            expected=f"at most {MAX_BYTES} bytes",
            found=f"{len(data)} bytes",
            remedy="Profile fewer launches or metrics.",
        )
    if not data.strip():
        raise errors.MissingFile(
            where=where, expected="a profile", found="nothing", remedy="The profiler wrote nothing; see its messages."
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise errors.MalformedFile(
            where=where, expected="text in UTF-8", found=str(error), remedy="Keep the file as the profiler wrote it."
        ) from error


def csv_rows(lines: Sequence[str], *, where: str) -> list[list[str]]:
    """Rows of CSV lines, all as wide as the first.

    Raises:
        LimitExceeded, MalformedFile
    """
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise errors.MalformedFile(
            where=where, expected="CSV", found=str(error), remedy="The file is cut or damaged; it cannot be used."
        ) from error
    if len(rows) > MAX_LAUNCHES:
        raise errors.LimitExceeded(
            where=where,
            expected=f"at most {MAX_LAUNCHES} launches",
            found=f"{len(rows)} rows",
            remedy="Profile fewer launches.",
        )
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise errors.MalformedFile(
                where=f"{where}: row {number}",
                expected=f"{len(rows[0])} columns, as in the header",
                found=f"{len(row)}",
                remedy="The file is cut or damaged; it cannot be used.",
            )
    return rows


def column_of(header: Sequence[str], name: str, *, where: str) -> int:
    """Position of a column.

    Raises:
        MalformedFile: not there, or there twice.
    """
    if header.count(name) != 1:
        raise errors.MalformedFile(
            where=where,
            expected=f"one column {name!r}",
            found=f"{header.count(name)} among {len(header)} columns",
            remedy="The profiler writes another format than the registered reader knows.",
        )
    return list(header).index(name)


def launch_table(
    names: Mapping[str, int],
    kernels: Sequence[str],
    rows: Sequence[Sequence[str]],
    units: Mapping[str, str],
    where: str,
) -> CounterTable:
    """Rows into columns.

    Args:
        names: position of each metric that is wanted and there.
        kernels: kernel name of each row. rows: cells. units: unit by metric.
        where: the file, for messages.
    """
    metrics = {
        name: tuple(exact_number(row[at], where=f"{where}: launch {i}, {name}") for i, row in enumerate(rows))
        for name, at in names.items()
    }
    return CounterTable(tuple(kernels), metrics, {name: units.get(name, "") for name in names})


def check_ascending(ids: Sequence[str], *, step: int | None, where: str) -> None:
    """Refuse launch ids that do not ascend, or not by the given step: launches are missing or out of order.

    Raises:
        Inconsistent, MalformedFile
    """
    numbers = []
    for text in ids:
        if not text.strip().isdigit():
            raise errors.MalformedFile(
                where=where, expected="a launch number", found=repr(text), remedy="The file is cut or damaged."
            )
        numbers.append(int(text))
    for before, after in pairwise(numbers):
        if after <= before or (step is not None and after != before + step):
            raise errors.Inconsistent(
                where=where,
                expected=f"launches in order, the next after {before}",
                found=f"launch {after}",
                remedy="Launches are missing or out of order; the file cannot be used.",
            )


def wanted_columns(header: Sequence[str], metrics: Collection[str], *, where: str) -> dict[str, int]:
    """Positions of the wanted metrics that are there; one that is not there is no column, and found out later."""
    return {name: column_of(header, name, where=where) for name in metrics if name in header}


def decimal_text(value: Fraction | None) -> str:
    """A decimal that reads back as the value, or to 12 digits where no decimal does; empty for no value."""
    if value is None:
        return ""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.12f}".rstrip("0").rstrip(".")
