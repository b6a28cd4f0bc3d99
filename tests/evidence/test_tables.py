"""Parquet tables hold to their schema, survive a round trip, and name the row that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from moegauge import errors
from moegauge.evidence.tables import TableSchema, first_difference, read_table, write_table

SCHEMA = TableSchema(
    name="rows",
    columns={
        "iteration": pl.Int32,
        "layer": pl.Int32,
        "busy_ns": pl.Int64,
        "name": pl.String,
        "ratio": pl.Float64,
        "ids": pl.Array(pl.Int32, 2),
    },
    nullable=frozenset({"busy_ns", "name", "ratio"}),
    key=("iteration", "layer"),
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
key = st.tuples(st.integers(0, 5), st.integers(0, 5))
values = st.tuples(
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.tuples(INT32, INT32).map(list),
)
tables = st.dictionaries(key, values, max_size=10)


def frame(rows: dict[tuple[int, int], tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame([(*k, *v) for k, v in rows.items()], schema=SCHEMA.columns, orient="row")


ROWS = {(0, 0): (10, "a", 0.5, [1, 2]), (0, 1): (None, None, None, [3, -1]), (1, 0): (30, "c", 1.5, [5, 6])}


@given(rows=tables)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: dict[Any, Any]) -> None:
    path = tmp_path_factory.mktemp("table") / "rows.parquet"
    write_table(path, SCHEMA, frame(rows))
    again = read_table(path, SCHEMA)
    assert again.schema == frame(rows).schema
    assert again.rows() == frame(rows).rows()


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (frame(ROWS).drop("name"), "name: missing"),
        (frame(ROWS).with_columns(extra=pl.lit(1)), "extra: Int32"),
        (frame(ROWS).with_columns(pl.col("busy_ns").cast(pl.Int32)), "busy_ns: Int32"),
        (frame(ROWS).select("layer", "iteration", "busy_ns", "name", "ratio", "ids"), "order of columns"),
        (frame(ROWS).with_columns(layer=pl.lit(None, dtype=pl.Int32)), "nulls in layer"),
        (pl.concat([frame(ROWS), frame(ROWS).tail(1)]), r"a row twice: \[iteration 1, layer 0\]"),
    ],
    ids=["column missing", "column extra", "type", "order", "null", "row twice"],
)
def test_a_frame_that_is_not_as_declared_is_neither_written_nor_read(
    tmp_path: Path, wrong: pl.DataFrame, found: str
) -> None:
    path = tmp_path / "rows.parquet"
    with pytest.raises(errors.Inconsistent, match=found):
        write_table(path, SCHEMA, wrong)
    assert not path.exists()
    wrong.write_parquet(path)
    with pytest.raises(errors.Inconsistent, match=found):
        read_table(path, SCHEMA)


def test_a_missing_and_an_empty_table_file_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.parquet", tmp_path / "empty.parquet"):
        if path.name == "empty.parquet":
            path.write_bytes(b"")
        with pytest.raises(errors.MissingFile, match=path.name):
            read_table(path, SCHEMA)


@pytest.mark.parametrize("keep", [1, 4, 100, -1])
def test_a_table_file_that_is_cut_is_malformed(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "rows.parquet"
    write_table(path, SCHEMA, frame(ROWS))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(errors.MalformedFile, match=r"rows\.parquet"):
        read_table(path, SCHEMA)


def test_a_file_that_is_not_parquet_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"iteration,layer\n0,0\n")
    with pytest.raises(errors.MalformedFile, match="the Parquet table rows"):
        read_table(tmp_path / "rows.parquet", SCHEMA)


@given(tables)
def test_equal_tables_do_not_differ(rows: dict[Any, Any]) -> None:
    assert first_difference(SCHEMA, frame(rows), frame(rows)) == []


@given(st.dictionaries(key, values, min_size=1, max_size=10), st.data())
def test_one_changed_cell_names_its_row_its_column_and_both_values(rows: dict[Any, Any], data: st.DataObject) -> None:
    where = data.draw(st.sampled_from(sorted(rows)))
    column = data.draw(st.integers(0, 3))
    other = data.draw(values)[column]
    assume(other != rows[where][column])
    changed = rows | {where: (*rows[where][:column], other, *rows[where][column + 1 :])}
    lines = first_difference(SCHEMA, frame(changed), frame(rows))
    name = ["busy_ns", "name", "ratio", "ids"][column]
    assert len(lines) == 1
    assert lines[0].startswith(f"rows [iteration {where[0]}, layer {where[1]}]: {name} recorded {other}, derived ")


@given(st.dictionaries(key, values, min_size=1, max_size=10), st.data())
def test_a_row_that_only_one_side_has_is_named(rows: dict[Any, Any], data: st.DataObject) -> None:
    where = data.draw(st.sampled_from(sorted(rows)))
    fewer = {k: v for k, v in rows.items() if k != where}
    named = f"rows [iteration {where[0]}, layer {where[1]}]"
    counts = f"rows: {len(rows)} rows recorded, {len(fewer)} derived"
    assert first_difference(SCHEMA, frame(rows), frame(fewer)) == [counts, f"{named}: only recorded"]
    assert f"{named}: only derived" in first_difference(SCHEMA, frame(fewer), frame(rows))


def test_the_same_rows_in_another_order_differ() -> None:
    assert first_difference(SCHEMA, frame(ROWS).reverse(), frame(ROWS)) == [
        "rows: the rows are in another order than derived"
    ]


def test_a_table_where_every_row_differs_names_ten_of_them() -> None:
    many = {(0, layer): (layer, "x", 0.0, [0, 1]) for layer in range(50)}
    later = {k: (v[0] + 1, *v[1:]) for k, v in many.items()}
    lines = first_difference(SCHEMA, frame(later), frame(many))
    assert len(lines) == 10
    assert lines[3] == "rows [iteration 0, layer 3]: busy_ns recorded 4, derived 3"
