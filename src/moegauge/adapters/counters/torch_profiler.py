"""torch's own profiler on the host: one launch is one operator called from outside any other.

Its counters are few: memory an operator allocated. The file is JSON that :func:`profile_bytes` writes.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import ClassVar

import msgspec

from moegauge import errors
from moegauge.adapters.counters.columns import MAX_LAUNCHES, decoded
from moegauge.gate.counters import CounterTable
from moegauge.records.schema import Record, canonical_bytes, decode_record


class TorchLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator and its counters, integers by name."""

    name: str
    metrics: dict[str, int]


class TorchProfile(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile: launches in the order they were made, and units by metric."""

    kind: ClassVar[str] = "torch-profile"
    version: ClassVar[int] = 1

    units: dict[str, str]
    launches: tuple[TorchLaunch, ...]


def read_torch_profile(data: bytes, metrics: Collection[str], *, where: str) -> CounterTable:
    """Read launches and the wanted metrics.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, SchemaMissing, SchemaOlder, SchemaNewer
    """
    profile = decode_record(decoded(data, where=where).encode(), TorchProfile, where=where)
    launches = profile.launches
    if len(launches) > MAX_LAUNCHES:
        raise errors.LimitExceeded(
            where=where,
            expected=f"at most {MAX_LAUNCHES} launches",
            found=f"{len(launches)}",
            remedy="Profile fewer launches.",
        )
    columns: dict[str, tuple[Fraction | None, ...]] = {}
    for name in metrics:
        if any(name in one.metrics for one in launches):
            values = [one.metrics.get(name) for one in launches]
            columns[name] = tuple(None if value is None else Fraction(value) for value in values)
    return CounterTable(tuple(one.name for one in launches), columns, profile.units)


def profile_bytes(launches: Collection[tuple[str, dict[str, int]]], units: dict[str, str]) -> bytes:
    """A profile as a file."""
    made = tuple(TorchLaunch(name=name, metrics=metrics) for name, metrics in launches)
    return canonical_bytes(TorchProfile(schema=TorchProfile.tag(), units=units, launches=made))


def write_torch_profile(table: CounterTable) -> bytes:
    """A table as :func:`profile_bytes` would write it; what a rehearsal reads. Fractions are rounded down."""
    launches = []
    for i, kernel in enumerate(table.kernels):
        cells = {name: values[i] for name, values in table.metrics.items()}
        launches.append((kernel, {name: int(value) for name, value in cells.items() if value is not None}))
    return profile_bytes(launches, dict(table.units))
