"""Parquet tables with a declared schema: columns, types and which may be null. Anything else is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from moegauge import errors

ROW_GROUP_ROWS = 1 << 18
PolarsType = pl.DataType | type[pl.DataType]


@dataclass(frozen=True)
class TableSchema:
    """A table: its name, its columns in order, the ones that may be null, and the columns that identify a row."""

    name: str
    columns: dict[str, PolarsType]
    nullable: frozenset[str]
    key: tuple[str, ...]


def write_table(path: Path, schema: TableSchema, frame: pl.DataFrame) -> None:
    """Write a frame as Parquet (zstd), after checking it against its schema.

    Raises:
        Inconsistent: the frame does not have the declared columns, types, nulls or unique keys.
    """
    _check(frame, schema, where=str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(path, compression="zstd", compression_level=12, row_group_size=ROW_GROUP_ROWS)


def read_table(path: Path, schema: TableSchema) -> pl.DataFrame:
    """Read a table and check it against its schema.

    Raises:
        MissingFile: not there or empty.
        MalformedFile: not Parquet, or cut.
        Inconsistent: columns, types, nulls or keys are not as declared.
    """
    if not path.is_file() or path.stat().st_size == 0:
        raise errors.MissingFile(
            where=str(path),
            expected=f"the table {schema.name}",
            found="no such file",
            remedy="Import the capture again.",
        )
    try:
        frame = pl.read_parquet(path, hive_partitioning=False, memory_map=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise errors.MalformedFile(
            where=str(path),
            expected=f"the Parquet table {schema.name}",
            found=str(error).splitlines()[0],
            remedy="The file is damaged; import the capture again.",
        ) from error
    _check(frame, schema, where=str(path))
    return frame


def first_difference(schema: TableSchema, recorded: pl.DataFrame, derived: pl.DataFrame) -> list[str]:
    """Compare two tables of one schema row by row; name each differing row by its key (at most ten).

    Args:
        schema: the schema of both.
        recorded: what a file holds.
        derived: what was computed again.
    """
    if recorded.equals(derived):
        return []
    key = list(schema.key)
    lines = [f"{schema.name}: {recorded.height} rows recorded, {derived.height} derived"] * (
        recorded.height != derived.height
    )
    for side, one, rest in (("only recorded", recorded, derived), ("only derived", derived, recorded)):
        lines += [
            f"{schema.name} {_row_name(row)}: {side}"
            for row in one.join(rest, on=key, how="anti").head(10).select(key).to_dicts()
        ]
    both = recorded.join(derived, on=key, how="inner", suffix="__derived", maintain_order="left")
    for name in schema.columns.keys() - set(key):
        again = f"{name}__derived"
        changed = both.filter(pl.col(name).ne_missing(pl.col(again))).head(10)
        lines += [
            f"{schema.name} {_row_name({k: row[k] for k in key})}: {name} recorded {row[name]}, derived {row[again]}"
            for row in changed.to_dicts()
        ]
    return lines or [f"{schema.name}: the rows are in another order than derived"]


def _row_name(row: dict[str, object]) -> str:
    return "[" + ", ".join(f"{name} {value}" for name, value in row.items()) + "]"


def _check(frame: pl.DataFrame, schema: TableSchema, *, where: str) -> None:
    found = dict(frame.schema)
    if list(found.items()) != list(schema.columns.items()):
        wrong = [
            f"{name}: {found.get(name, 'missing')}"
            for name in {**schema.columns, **found}
            if found.get(name) != schema.columns.get(name)
        ]
        raise _refusal(where, schema, "other columns or types (" + "; ".join(wrong or ["order of columns"]) + ")")
    nulls = [name for name in schema.columns if name not in schema.nullable and frame[name].null_count()]
    if nulls:
        raise _refusal(where, schema, f"nulls in {', '.join(nulls)}")
    if schema.key and frame.height and frame.select(schema.key).is_duplicated().any():
        duplicate = frame.filter(frame.select(schema.key).is_duplicated()).select(schema.key).row(0, named=True)
        raise _refusal(where, schema, f"a row twice: {_row_name(duplicate)}")


def _refusal(where: str, schema: TableSchema, found: str) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=where,
        expected=f"the columns of table {schema.name} (docs/formats), each row once",
        found=found,
        remedy="The file was edited or damaged; import the capture again.",
    )
