"""The profile database: isolated measurements in one SQLite file. See docs/formats/profile-db.md.

Rows are keyed by everything that must be held fixed. A row's samples come in passes; raw traces that were kept lie in
the same file, so that their samples can be derived again. Nothing is overwritten (a forced measurement adds a
generation), and whatever is written is written in one transaction: after ``kill -9`` it is there as a whole or not at
all. SQLite serialises writers, so several processes may fill one database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl

from moegauge import errors
from moegauge.adapters.profile_rows import Artifact, ProfileRow, Sample
from moegauge.adapters.profile_schema import (
    SAMPLE_COLUMNS,
    connected,
    interned,
    label_columns,
    packed_digest,
    text_of,
    transaction,
    unpacked_digest,
)
from moegauge.evidence.digest import bytes_digest, kernel_sequence_digest, record_digest
from moegauge.records.profile import InputLabel, MatchKey, PassRecord, ProfileKey, RowStatus, Setting, Subject

__all__ = ["Artifact", "ProfileDb", "ProfileRow", "Sample", "now", "open_profile_db"]


class ProfileDb:
    """An open profile database. Use :func:`open_profile_db`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def rows(self, kernel_kind: str | None = None, *, every_generation: bool = False) -> list[ProfileRow]:
        """Newest generation (or every one) of every row (of one kernel kind), in order of writing."""
        subjects = {i: msgspec.json.decode(text, type=Subject) for i, text in self._interned("subject")}
        settings = {i: msgspec.json.decode(text, type=Setting) for i, text in self._interned("setting")}
        labels = {i: msgspec.json.decode(text, type=InputLabel) for i, text in self._interned("label")}
        found = self._connection.execute(
            "SELECT id, generation, status, error, subject_id, setting_id, label_id, executed_rows, input_type, "
            "input_digest, popularity_digest FROM row AS r WHERE ? OR generation = "
            "(SELECT max(generation) FROM row WHERE key_digest = r.key_digest) ORDER BY id",
            (every_generation,),
        )
        rows = []
        for number, generation, status, error, subject, setting, label, executed, kind, digest, popularity in found:
            if kernel_kind is None or subjects[subject].kernel_kind == kernel_kind:
                match = MatchKey(
                    subject=subjects[subject],
                    executed_rows=executed,
                    input_type=kind,
                    input_digest=unpacked_digest(digest),
                )
                key = ProfileKey(match=match, setting=settings[setting])
                origin = labels[label]
                if popularity is not None:
                    origin = msgspec.structs.replace(origin, popularity_digest=unpacked_digest(popularity))
                rows.append(ProfileRow(number, key, origin, generation, RowStatus(status), error))
        return rows

    def samples(self) -> pl.DataFrame:
        """Every sample; columns SAMPLE_COLUMNS, ordered by row, pass and ordinal."""
        digests = {i: kernel_sequence_digest(msgspec.json.decode(text)) for i, text in self._interned("kernels")}
        columns = ", ".join(["kernels_id" if name == "kernels_digest" else name for name in SAMPLE_COLUMNS])
        found = self._connection.execute(f"SELECT {columns} FROM sample ORDER BY row_id, pass_id, ordinal")  # noqa: S608
        rows = [(*row[:-1], digests[row[-1]]) for row in found]
        return pl.DataFrame(rows, schema=SAMPLE_COLUMNS, orient="row")

    def passes(self) -> dict[int, PassRecord]:
        """Every pass by number."""
        return {number: msgspec.json.decode(text, type=PassRecord) for number, text in self._interned("pass")}

    def num_samples(self) -> dict[str, int]:
        """Number of passes each key was measured in (newest generation; none where it failed), by key digest."""
        found = self._connection.execute(
            "SELECT r.key_digest, count(DISTINCT s.pass_id) FROM row AS r LEFT JOIN sample AS s "
            "ON s.row_id = r.id AND r.status = 'MEASURED' WHERE r.generation = "
            "(SELECT max(generation) FROM row WHERE key_digest = r.key_digest) GROUP BY r.id"
        )
        return {unpacked_digest(digest): number for digest, number in found}

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

    def add_pass(
        self,
        record: PassRecord,
        artifacts: Sequence[Artifact],
        samples: Sequence[Sample],
        *,
        spec: Artifact | None = None,
        new_generation: bool = False,
        kept: Collection[str] = (),
    ) -> int:
        """Add one pass: raw traces, the spec of its inputs, rows that are new, and samples, in one transaction.

        Args:
            record: the pass. artifacts: its raw traces; may be none. samples: in order of measuring.
            spec: what gave the inputs; kept once, however many passes ran on them.
            new_generation: give every key one new generation instead of adding to the newest one.
            kept: digests of keys that get none all the same.

        Returns:
            The pass number.

        Raises:
            MisuseError: a trace with the same content is already in the database.
        """
        with transaction(self._connection) as db:
            for artifact in artifacts:
                self._add_artifact(artifact)
            if spec is not None:
                self._add_artifact(spec, refuse_known=False)
            number = db.execute("INSERT INTO pass (record) VALUES (?)", (text_of(record),)).lastrowid
            assert number is not None  # noqa: S101 - an insert has a row id
            self._add_samples(number, samples, new_generation=new_generation, kept=kept)
        return number

    def extend_pass(
        self, number: int, record: PassRecord, samples: Sequence[Sample], *, new_generation: bool = False
    ) -> None:
        """Add further samples to a pass of this process, and what was read around them, in one transaction."""
        with transaction(self._connection) as db:
            db.execute("UPDATE pass SET record = ? WHERE id = ?", (text_of(record), number))
            self._add_samples(number, samples, new_generation=new_generation)

    def add_failures(
        self, failures: Iterable[tuple[ProfileKey, InputLabel, RowStatus, str]], *, also_measured: bool = False
    ) -> None:
        """Record rows that could not be measured, with the original error text.

        Measured rows stay as they are, unless ``also_measured`` says that their samples shall no longer count.
        """
        with transaction(self._connection) as db:
            for key, label, status, error in failures:
                row_id = self._row_id(key, label, status=status)
                db.execute(
                    "UPDATE row SET status = ?, error = ? WHERE id = ? AND (? OR NOT EXISTS "
                    "(SELECT 1 FROM sample WHERE row_id = ?))",
                    (status, error, row_id, also_measured, row_id),
                )

    def _interned(self, table: str) -> list[tuple[int, str]]:
        return self._connection.execute(f"SELECT id, record FROM {table} ORDER BY id").fetchall()  # noqa: S608

    def _add_artifact(self, artifact: Artifact, *, refuse_known: bool = True) -> None:
        known = self._connection.execute(
            "SELECT name FROM artifact WHERE content_digest = ?", (artifact.content_digest,)
        ).fetchone()
        if known is None:
            row = (bytes_digest(artifact.data), artifact.name, artifact.content_digest, artifact.data)
            self._connection.execute("INSERT INTO artifact VALUES (?, ?, ?, ?)", row)
        elif refuse_known:
            raise errors.MisuseError(
                where=artifact.name,
                expected="a trace that is not in the database yet",
                found=f"the content of {known[0]}, imported before",
                remedy="One recording is one pass; counting it twice would make it look more certain than it is.",
            )

    def _add_samples(
        self, number: int, samples: Sequence[Sample], *, new_generation: bool, kept: Collection[str] = ()
    ) -> None:
        fresh: dict[str, int] = {}
        for sample in samples:
            digest = record_digest(sample.key)
            if digest not in fresh:
                opener = number if new_generation and digest not in kept else None
                fresh[digest] = self._row_id(sample.key, sample.label, opener=opener)
            self._connection.execute(
                "INSERT INTO sample VALUES (:row_id, :pass_id, (SELECT count(*) FROM sample WHERE row_id = :row_id AND "
                "pass_id = :pass_id), :iteration, :layer, :rank, :device, :busy_ns, :span_ns, :foreign_ns, "
                ":num_kernels, :kernels_id)",
                sample.columns
                | {
                    "row_id": fresh[digest],
                    "pass_id": number,
                    "kernels_id": interned(self._connection, "kernels", text_of(list(sample.kernel_names))),
                },
            )

    def _row_id(
        self, key: ProfileKey, label: InputLabel, *, opener: int | None = None, status: RowStatus = RowStatus.MEASURED
    ) -> int:
        """Row of a key's newest generation, made where there is none; a failed row is measured and labelled once it is.

        ``opener`` is the pass that opens a new generation (one, however often the key occurs in it). A row whose output
        was found wrong is never added to.
        """
        digest = packed_digest(record_digest(key))
        found = self._connection.execute(
            "SELECT id, generation, status, EXISTS (SELECT 1 FROM sample WHERE row_id = row.id AND pass_id = ?) "
            "FROM row WHERE key_digest = ? ORDER BY generation DESC LIMIT 1",
            (opener, digest),
        ).fetchone()
        measured = status == RowStatus.MEASURED
        spoilt = found is not None and measured and found[2] == RowStatus.WRONG_OUTPUT
        if found is not None and not spoilt and (opener is None or found[3]):
            if measured and found[2] != RowStatus.MEASURED:
                changed = "status = 'MEASURED', error = NULL, label_id = ?, popularity_digest = ?"
                values = (*label_columns(self._connection, label), found[0])
                self._connection.execute(f"UPDATE row SET {changed} WHERE id = ?", values)  # noqa: S608
            return int(found[0])
        match = key.match
        inserted = self._connection.execute(
            "INSERT INTO row (key_digest, generation, status, error, subject_id, setting_id, label_id, "
            "popularity_digest, executed_rows, input_type, input_digest) VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?)",
            (
                digest,
                1 if found is None else found[1] + 1,
                status,
                interned(self._connection, "subject", text_of(match.subject)),
                interned(self._connection, "setting", text_of(key.setting)),
                *label_columns(self._connection, label),
                match.executed_rows,
                match.input_type,
                packed_digest(match.input_digest),
            ),
        )
        assert inserted.lastrowid is not None  # noqa: S101 - an insert has a row id
        return inserted.lastrowid


@contextmanager
def open_profile_db(path: Path, *, create: bool = False) -> Iterator[ProfileDb]:
    """Open a profile database; read-only unless ``create``.

    Raises:
        MissingFile: not there (and ``create`` is False), or empty.
        MalformedFile: not a profile database.
        SchemaMissing, SchemaOlder, SchemaNewer
    """
    with connected(path, create=create) as connection:
        yield ProfileDb(connection, path)


def now() -> str:
    """UTC time for a record."""
    return datetime.now(UTC).isoformat(timespec="seconds")
