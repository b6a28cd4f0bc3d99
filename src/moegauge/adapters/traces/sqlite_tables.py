"""Tables of an SQLite file somebody else wrote: read from memory, by name, column by column, and nothing run.

The bytes are opened in memory, so that no file can be changed and no second one attached. An authorizer allows nothing
but reading columns of real tables: views, virtual tables, generated columns and triggers are never touched. Integers
stay integers: a float, a text or a blob in an integer column is refused, not converted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge import errors

Int64Array = NDArray[np.int64]

SQLITE_MAGIC = b"SQLite format 3\x00"
ABSENT = int(np.iinfo(np.int64).min)
"""In an integer column: the file holds NULL, or has no such column."""
MAX_ROWS = 50_000_000
"""Rows of one table."""
MAX_TEXT_BYTES = 1 << 20
"""Bytes of one text."""
_ROWS_A_STEP = 65_536
_WAL = 2
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class SqliteTables:
    """The real tables of one SQLite file.

    Attributes:
        source: for messages.
        columns: names of the stored columns of each real table.
    """

    def __init__(self, data: bytes, source: str) -> None:
        """Open the bytes of a database.

        Raises:
            MalformedFile: no SQLite file, a damaged one, or one whose write-ahead log is a second file.
        """
        self.source = source
        if len(data) > 19 and _WAL in {data[18], data[19]}:
            raise self._malformed(
                "a database in WAL mode, whose last rows may lie in a second file",
                "Run 'PRAGMA journal_mode=DELETE' on it with sqlite3, and give the file again.",
            )
        self._connection = sqlite3.connect(":memory:")
        self._connection.text_factory = _text
        with self._errors():
            self._connection.deserialize(data)
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            self.columns = self._stored_columns()
            self._connection.set_authorizer(_authorize)

    def close(self) -> None:
        """Free the database's memory."""
        self._connection.close()

    def integers(self, table: str, names: Sequence[str]) -> list[Int64Array]:
        """Integer columns in the order of the file's rows; ABSENT where NULL, and all over where there is no column.

        Raises:
            MalformedFile: something else than an integer or NULL. LimitExceeded: more than MAX_ROWS rows.
        """
        return [
            np.array([ABSENT if value is None else value for value in column], dtype=np.int64)
            for column in self._read(table, names, int)
        ]

    def texts(self, table: str, names: Sequence[str]) -> list[list[str | None]]:
        """Text columns; None where NULL, and all over where there is no column. Errors as :meth:`integers`."""
        return self._read(table, names, str)

    def _read(self, table: str, names: Sequence[str], kind: type[Any]) -> list[list[Any]]:
        there = [name for name in names if name in self.columns.get(table, ())]
        found: dict[str, list[Any]] = {name: [] for name in names}
        num_rows = 0
        if table in self.columns:
            wanted = ", ".join(_quoted(name) for name in there) or "1"
            for rows in self._steps(f"SELECT {wanted} FROM {_quoted(table)} NOT INDEXED LIMIT {MAX_ROWS + 1}"):  # noqa: S608
                num_rows += len(rows)
                self._check_rows(table, num_rows)
                for name, values in zip(there, zip(*rows, strict=True), strict=False):
                    self._check_kind(table, name, values, kind)
                    found[name].extend(values)
        return [found[name] if name in there else [None] * num_rows for name in names]

    def _steps(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        with self._errors():
            cursor = self._connection.execute(query)
            while rows := cursor.fetchmany(_ROWS_A_STEP):
                yield rows

    def _check_rows(self, table: str, num_rows: int) -> None:
        if num_rows > MAX_ROWS:
            raise errors.LimitExceeded(
                where=f"{self.source}: {table}",
                expected=f"at most {MAX_ROWS} rows",
                found="more",
                remedy="Record a shorter range.",
            )

    def _check_kind(self, table: str, name: str, values: Sequence[Any], kind: type[Any]) -> None:
        wrong = {type(value) for value in values} - {kind, type(None)}
        if wrong:
            raise self._malformed(
                f"{table}.{name} holds {sorted(one.__name__ for one in wrong)}, not only {kind.__name__}"
            )

    def _stored_columns(self) -> dict[str, tuple[str, ...]]:
        """Real tables (a virtual one has no root page) and their columns (table_info leaves out generated ones)."""
        found = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        tables = [name for (name,) in found.fetchall() if isinstance(name, str)]
        return {
            name: tuple(row[1] for row in self._connection.execute(f"PRAGMA table_info({_quoted(name)})"))
            for name in tables
        }

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:  # a message may be no UTF-8
            self._connection.close()
            raise self._malformed(str(error)) from error

    def _malformed(
        self, found: str, remedy: str = "The file is cut or damaged; export it again."
    ) -> errors.MalformedFile:
        return errors.MalformedFile(
            where=self.source, expected="an SQLite database with the tables of a trace", found=found, remedy=remedy
        )


def _authorize(action: int, _one: str | None, _two: str | None, _database: str | None, inner: str | None) -> int:
    """Reading columns and nothing else; ``inner`` names the view or trigger that would read."""
    return sqlite3.SQLITE_OK if action in _ALLOWED and inner is None else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
