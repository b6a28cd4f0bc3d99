"""The profile database: isolated measurements in one SQLite file. See docs/formats/profile-db.md.

Rows are keyed by everything that must be held fixed. A row's samples come in passes, one pass over all invocations;
raw traces lie in the same file, so that every sample can be derived again. Nothing is overwritten, and a pass is
written in one transaction: after ``kill -9`` it is there as a whole or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl

from moegauge import __version__, errors
from moegauge.evidence.digest import bytes_digest, record_digest
from moegauge.records.profile import MatchKey, ProfileKey, Setting, Subject
from moegauge.records.schema import Record, check_schema

SAMPLE_COLUMNS: dict[str, type[pl.DataType]] = {
    "row_id": pl.Int64, "pass_id": pl.Int64, "ordinal": pl.Int64, "iteration": pl.Int64, "layer": pl.Int64,
    "rank": pl.Int64, "device": pl.Int64, "busy_ns": pl.Int64, "span_ns": pl.Int64, "gap_ns": pl.Int64,
    "foreign_ns": pl.Int64, "num_kernels": pl.Int64, "kernels_digest": pl.String,
}  # fmt: skip

_TABLES = """
CREATE TABLE head (schema TEXT NOT NULL) STRICT;
CREATE TABLE artifact (digest TEXT PRIMARY KEY, name TEXT NOT NULL, content_digest TEXT NOT NULL UNIQUE,
    bytes BLOB NOT NULL) STRICT;
CREATE TABLE pass (id INTEGER PRIMARY KEY, record TEXT NOT NULL) STRICT;
CREATE TABLE subject (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE setting (id INTEGER PRIMARY KEY, record TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE row (id INTEGER PRIMARY KEY, key_digest TEXT NOT NULL, generation INTEGER NOT NULL, status TEXT NOT NULL,
    subject_id INTEGER NOT NULL REFERENCES subject (id), setting_id INTEGER NOT NULL REFERENCES setting (id),
    executed_rows INTEGER NOT NULL, input_type TEXT NOT NULL, input_digest TEXT NOT NULL,
    UNIQUE (key_digest, generation)) STRICT;
CREATE TABLE sample (row_id INTEGER NOT NULL REFERENCES row (id), pass_id INTEGER NOT NULL REFERENCES pass (id),
    ordinal INTEGER NOT NULL, iteration INTEGER NOT NULL, layer INTEGER NOT NULL, rank INTEGER NOT NULL,
    device INTEGER NOT NULL, busy_ns INTEGER NOT NULL, span_ns INTEGER NOT NULL, gap_ns INTEGER NOT NULL,
    foreign_ns INTEGER NOT NULL, num_kernels INTEGER NOT NULL, kernels_digest TEXT NOT NULL,
    PRIMARY KEY (row_id, pass_id, ordinal)) STRICT, WITHOUT ROWID;
"""


class ProfileDbHead(Record, frozen=True, kw_only=True):
    """Kind and version of the database file."""

    kind = "profile-db"
    version = 1


class PassRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pass over all invocations.

    Attributes:
        capture_digest: digest of the capture.json whose inputs were replayed.
        tag: annotation tag of the replay.
        launch_mode: declared by a person, or None where only the trace was asked.
        declared: conditions and limits a person declared.
        traces: artifact digest by rank number (as text).
        tool_version, imported_at: who wrote it and when.
    """

    capture_digest: str
    tag: str
    launch_mode: str | None
    declared: dict[str, str]
    traces: dict[str, str]
    tool_version: str
    imported_at: str


@dataclass(frozen=True)
class Artifact:
    """A raw file to keep: its name, its bytes, and the digest of its unpacked content."""

    name: str
    data: bytes
    content_digest: str


@dataclass(frozen=True)
class Sample:
    """One measured time: the key of its row, and SAMPLE_COLUMNS without row, pass and ordinal."""

    key: ProfileKey
    columns: dict[str, int | str]


@dataclass(frozen=True)
class ProfileRow:
    """A stored row: identity, status and key."""

    row_id: int
    key: ProfileKey
    generation: int
    status: str


class ProfileDb:
    """An open profile database. Use :func:`open_profile_db`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def rows(self, kernel_kind: str) -> list[ProfileRow]:
        """Every row of a kernel kind, in order of writing."""
        subjects = {i: msgspec.json.decode(text, type=Subject) for i, text in self._all("subject")}
        settings = {i: msgspec.json.decode(text, type=Setting) for i, text in self._all("setting")}
        found = self._connection.execute(
            "SELECT id, generation, status, subject_id, setting_id, executed_rows, input_type, input_digest "
            "FROM row ORDER BY id"
        )
        return [
            ProfileRow(
                row_id=number,
                generation=generation,
                status=status,
                key=ProfileKey(
                    match=MatchKey(
                        subject=subjects[subject], executed_rows=rows, input_type=input_type, input_digest=digest
                    ),
                    setting=settings[setting],
                ),
            )
            for number, generation, status, subject, setting, rows, input_type, digest in found
            if subjects[subject].kernel_kind == kernel_kind
        ]

    def _all(self, table: str) -> list[tuple[int, str]]:
        return self._connection.execute(f"SELECT id, record FROM {table} ORDER BY id").fetchall()  # noqa: S608

    def samples(self) -> pl.DataFrame:
        """Every sample; columns SAMPLE_COLUMNS, ordered by row, pass and ordinal."""
        columns = ", ".join(SAMPLE_COLUMNS)
        found = self._connection.execute(f"SELECT {columns} FROM sample ORDER BY row_id, pass_id, ordinal")  # noqa: S608
        return pl.DataFrame(found.fetchall(), schema=SAMPLE_COLUMNS, orient="row")

    def passes(self) -> dict[int, PassRecord]:
        """Every pass by number."""
        found = self._connection.execute("SELECT id, record FROM pass ORDER BY id")
        return {number: msgspec.json.decode(text, type=PassRecord) for number, text in found}

    def artifact(self, digest: str) -> tuple[str, bytes]:
        """Name and bytes of a raw file, checked against its digest.

        Raises:
            MissingFile, DigestMismatch
        """
        found = self._connection.execute("SELECT name, bytes FROM artifact WHERE digest = ?", (digest,)).fetchone()
        if found is None:
            raise errors.MissingFile(
                where=f"{self.path}: artifact {digest}",
                expected="a stored raw trace",
                found="none",
                remedy="Import it again.",
            )
        name, data = found
        if bytes_digest(data) != digest:
            raise errors.DigestMismatch(
                where=f"{self.path}: artifact {name}",
                expected=digest,
                found=bytes_digest(data),
                remedy="The database was changed; restore the original.",
            )
        return str(name), bytes(data)

    def add_pass(self, record: PassRecord, artifacts: list[Artifact], samples: list[Sample]) -> tuple[int, int]:
        """Add one pass: raw traces, rows that are new, and samples. One transaction.

        Args:
            record: the pass.
            artifacts: raw traces of the pass.
            samples: in order of measuring.

        Returns:
            The pass number, and how many distinct rows it measured.

        Raises:
            MisuseError: a trace with the same content is already in the database.
        """
        with _transaction(self._connection) as db:
            for artifact in artifacts:
                self._add_artifact(artifact)
            number = db.execute("INSERT INTO pass (record) VALUES (?)", (_text(record),)).lastrowid
            assert number is not None  # noqa: S101 - an insert has a row id
            ordinals: dict[int, int] = {}
            for sample in samples:
                row_id = self._row_id(sample.key)
                ordinal = ordinals.get(row_id, 0)
                ordinals[row_id] = ordinal + 1
                db.execute(
                    "INSERT INTO sample VALUES (:row_id, :pass_id, :ordinal, :iteration, :layer, :rank, :device, "
                    ":busy_ns, :span_ns, :gap_ns, :foreign_ns, :num_kernels, :kernels_digest)",
                    sample.columns | {"row_id": row_id, "pass_id": number, "ordinal": ordinal},
                )
        return number, len(ordinals)

    def _add_artifact(self, artifact: Artifact) -> None:
        known = self._connection.execute(
            "SELECT name FROM artifact WHERE content_digest = ?", (artifact.content_digest,)
        ).fetchone()
        if known is not None:
            raise errors.MisuseError(
                where=artifact.name,
                expected="a trace that is not in the database yet",
                found=f"the content of {known[0]}, imported before",
                remedy="One recording is one pass; counting it twice would make it look more certain than it is.",
            )
        self._connection.execute(
            "INSERT INTO artifact VALUES (?, ?, ?, ?)",
            (bytes_digest(artifact.data), artifact.name, artifact.content_digest, artifact.data),
        )

    def _row_id(self, key: ProfileKey) -> int:
        digest = record_digest(key)
        found = self._connection.execute(
            "SELECT id FROM row WHERE key_digest = ? ORDER BY generation DESC LIMIT 1", (digest,)
        ).fetchone()
        if found is not None:
            return int(found[0])
        match = key.match
        inserted = self._connection.execute(
            "INSERT INTO row (key_digest, generation, status, subject_id, setting_id, executed_rows, input_type, "
            "input_digest) VALUES (?, 1, 'MEASURED', ?, ?, ?, ?, ?)",
            (
                digest,
                self._part_id("subject", match.subject),
                self._part_id("setting", key.setting),
                match.executed_rows,
                match.input_type,
                match.input_digest,
            ),
        )
        assert inserted.lastrowid is not None  # noqa: S101 - an insert has a row id
        return inserted.lastrowid

    def _part_id(self, table: str, value: Subject | Setting) -> int:
        text = _text(value)
        self._connection.execute(f"INSERT OR IGNORE INTO {table} (record) VALUES (?)", (text,))  # noqa: S608
        found = self._connection.execute(f"SELECT id FROM {table} WHERE record = ?", (text,)).fetchone()  # noqa: S608
        return int(found[0])


@contextmanager
def open_profile_db(path: Path, *, create: bool = False) -> Iterator[ProfileDb]:
    """Open a profile database; read-only unless ``create``.

    Raises:
        MissingFile: not there (and ``create`` is False), or empty.
        MalformedFile: not a profile database.
        SchemaMissing, SchemaOlder, SchemaNewer
    """
    fresh = create and (not path.exists() or (path.is_file() and path.stat().st_size == 0))
    if not fresh and (not path.is_file() or path.stat().st_size == 0):
        raise errors.MissingFile(
            where=str(path),
            expected="a profile database",
            found="no file" if not path.exists() else "0 bytes",
            remedy="Fill one with moegauge profile import.",
        )
    if fresh:
        path.parent.mkdir(parents=True, exist_ok=True)
    mode = "rwc" if create else "ro"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=60, isolation_level=None)
    try:
        if fresh:
            _create(connection)
        _check_head(connection, path)
        yield ProfileDb(connection, path)
    except sqlite3.DatabaseError as error:
        raise errors.MalformedFile(
            where=str(path),
            expected="a moegauge profile database",
            found=str(error),
            remedy="The file is damaged or not SQLite; restore it.",
        ) from error
    finally:
        connection.close()


def now() -> str:
    """UTC time for a record."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def pass_record(
    *, capture_digest: str, tag: str, launch_mode: str | None, declared: dict[str, str], traces: dict[str, str]
) -> PassRecord:
    """A pass written by this release, now."""
    return PassRecord(
        capture_digest=capture_digest,
        tag=tag,
        launch_mode=launch_mode,
        declared=declared,
        traces=traces,
        tool_version=__version__,
        imported_at=now(),
    )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    with _transaction(connection) as db:
        for statement in _TABLES.strip().split(";\n"):
            db.execute(statement)
        db.execute("INSERT INTO head VALUES (?)", (ProfileDbHead.tag(),))


def _check_head(connection: sqlite3.Connection, path: Path) -> None:
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'head'").fetchone()
    found = connection.execute("SELECT schema FROM head").fetchone() if known[0] else None
    check_schema(found[0] if found else None, ProfileDbHead, where=str(path))


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
