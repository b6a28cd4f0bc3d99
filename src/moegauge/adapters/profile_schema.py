"""Tables of the profile database, and how values are written into them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import polars as pl

from moegauge import errors
from moegauge.records.profile import InputLabel
from moegauge.records.schema import Record, check_schema

SAMPLE_COLUMNS: dict[str, type[pl.DataType]] = {
    "row_id": pl.Int64, "pass_id": pl.Int64, "ordinal": pl.Int64, "iteration": pl.Int64, "layer": pl.Int64,
    "rank": pl.Int64, "device": pl.Int64, "busy_ns": pl.Int64, "span_ns": pl.Int64, "foreign_ns": pl.Int64,
    "num_kernels": pl.Int64, "kernels_digest": pl.String,
}  # fmt: skip

_TABLES = """
CREATE TABLE head (schema TEXT NOT NULL) STRICT;
CREATE TABLE artifact (digest TEXT PRIMARY KEY, name TEXT NOT NULL, content_digest TEXT NOT NULL UNIQUE,
    bytes BLOB NOT NULL) STRICT;
CREATE TABLE pass (id INTEGER PRIMARY KEY, record TEXT NOT NULL) STRICT;
CREATE TABLE subject (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE setting (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE label (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE kernels (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE row (id INTEGER PRIMARY KEY, key_digest BLOB NOT NULL, generation INTEGER NOT NULL, status TEXT NOT NULL,
    error TEXT, subject_id INTEGER NOT NULL REFERENCES subject (id),
    setting_id INTEGER NOT NULL REFERENCES setting (id), label_id INTEGER NOT NULL REFERENCES label (id),
    executed_rows INTEGER NOT NULL, input_type TEXT NOT NULL,
    input_digest BLOB NOT NULL, popularity_digest BLOB, UNIQUE (key_digest, generation)) STRICT;
CREATE TABLE sample (row_id INTEGER NOT NULL REFERENCES row (id), pass_id INTEGER NOT NULL REFERENCES pass (id),
    ordinal INTEGER NOT NULL, iteration INTEGER NOT NULL, layer INTEGER NOT NULL, rank INTEGER NOT NULL,
    device INTEGER NOT NULL, busy_ns INTEGER NOT NULL, span_ns INTEGER NOT NULL, foreign_ns INTEGER NOT NULL,
    num_kernels INTEGER NOT NULL, kernels_id INTEGER NOT NULL REFERENCES kernels (id),
    PRIMARY KEY (row_id, pass_id, ordinal)) STRICT, WITHOUT ROWID;
"""


class ProfileDbHead(Record, frozen=True, kw_only=True):
    """Kind and version of the database file."""

    kind = "profile-db"
    version = 1


def is_sqlite(path: Path) -> bool:
    """Whether a path is a file that begins as every SQLite database does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@contextmanager
def connected(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """Open the file, make its tables where it is new, and check its head.

    Raises:
        MissingFile, MalformedFile, SchemaMissing, SchemaOlder, SchemaNewer
    """
    fresh = create and (not path.exists() or (path.is_file() and path.stat().st_size == 0))
    if not fresh and (not path.is_file() or path.stat().st_size == 0):
        raise errors.MissingFile(
            where=str(path),
            expected="a profile database",
            found="a folder" if path.is_dir() else "0 bytes" if path.exists() else "no file",
            remedy="Fill one with moegauge profile import or moegauge profile run.",
        )
    if fresh:
        path.parent.mkdir(parents=True, exist_ok=True)
    connection = _connect(path, create=create)
    try:
        if create:
            _make(connection)
        _check_head(connection, path)
        yield connection
    except sqlite3.OperationalError as error:
        raise errors.MisuseError(
            where=str(path),
            expected="a profile database that can be read (and written, where rows are added)",
            found=str(error),
            remedy="Check permissions, free space, and whether another process holds it.",
        ) from error
    except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
        raise errors.MalformedFile(
            where=str(path),
            expected="a moegauge profile database",
            found=str(error),
            remedy="The file is damaged or not SQLite; restore it.",
        ) from error
    finally:
        connection.close()


def _connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open for writing, or read-only; a folder that cannot be written to takes the file as it stands."""
    address = path.absolute().as_uri()
    if create:
        return sqlite3.connect(f"{address}?mode=rwc", uri=True, timeout=120, isolation_level=None)
    log = path.with_name(path.name + "-wal")
    fixed = not os.access(path.parent, os.W_OK) and not log.exists()
    return sqlite3.connect(f"{address}?{'immutable=1' if fixed else 'mode=ro'}", uri=True, isolation_level=None)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def text_of(value: object) -> str:
    """Compact canonical JSON of a record, as stored."""
    return msgspec.json.encode(value, order="sorted").decode()


def interned(connection: sqlite3.Connection, table: str, text: str) -> int:
    """Number of a text in one of the tables that hold each text once."""
    found = connection.execute(f"SELECT id FROM {table} WHERE record = ?", (text,)).fetchone()  # noqa: S608
    if found is not None:
        return int(found[0])
    number = connection.execute(f"INSERT INTO {table} (record) VALUES (?)", (text,)).lastrowid  # noqa: S608
    assert number is not None  # noqa: S101 - an insert has a row id
    return number


def label_columns(connection: sqlite3.Connection, label: InputLabel) -> tuple[int, bytes | None]:
    """(label_id, popularity_digest) of a row: its label in common, and what differs for every layer, packed."""
    number = interned(connection, "label", text_of(msgspec.structs.replace(label, popularity_digest=None)))
    return number, None if label.popularity_digest is None else packed_digest(label.popularity_digest)


def packed_digest(digest: str) -> bytes:
    """A digest as stored: its name, a colon, and 32 bytes."""
    name, _, digits = digest.rpartition(":")
    return name.encode() + b":" + bytes.fromhex(digits)


def unpacked_digest(data: bytes) -> str:
    """Inverse of :func:`packed_digest`."""
    return data[:-33].decode() + ":" + data[-32:].hex()


def _make(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return
    connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection) as db:
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        for statement in _TABLES.strip().split(";\n"):
            db.execute(statement)
        db.execute("INSERT INTO head VALUES (?)", (ProfileDbHead.tag(),))


def _check_head(connection: sqlite3.Connection, path: Path) -> None:
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'head'").fetchone()
    found = connection.execute("SELECT schema FROM head").fetchone() if known[0] else None
    check_schema(found[0] if found else None, ProfileDbHead, where=str(path))
