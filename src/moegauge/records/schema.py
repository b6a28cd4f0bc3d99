"""Kind and version of a record, and its canonical bytes.

Canonical bytes: UTF-8 JSON, keys sorted, two spaces of indentation, one newline at the end. Times are integers
(ns); a float occurs only where the value is a ratio. Unknown fields are refused: a field that this release does
not know could change what the record means.
"""

from __future__ import annotations

import re
from typing import ClassVar, TypeVar

import msgspec

from moegauge import errors

_SCHEMA = re.compile(r"^moegauge/(?P<kind>[a-z0-9-]+)/v(?P<version>0|[1-9][0-9]{0,5})\Z")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every record that becomes a file. ``schema`` is ``moegauge/<kind>/v<version>``.

    A subclass names its kind, the version it writes and the oldest version it still reads.
    """

    kind: ClassVar[str]
    version: ClassVar[int]

    schema: str

    def __post_init__(self) -> None:
        check_schema(self.schema, type(self), where=f"{type(self).__name__}.schema")

    @classmethod
    def tag(cls) -> str:
        """The schema string this release writes for the kind."""
        return f"moegauge/{cls.kind}/v{cls.version}"


RecordT = TypeVar("RecordT", bound=Record)


class _Tag(msgspec.Struct):
    schema: str | None = None


def check_schema(schema: str | None, record: type[Record], *, where: str) -> None:
    """Refuse a missing, older, newer or foreign schema, each with its own error.

    Args:
        schema: the string found, or None where there was none.
        record: the record type wanted.
        where: the file, for the message.

    Raises:
        SchemaMissing, SchemaOlder, SchemaNewer, MalformedFile
    """
    wanted = record.tag()
    if schema is None:
        raise errors.SchemaMissing(
            where=where,
            expected=f'"schema": "{wanted}"',
            found="no schema",
            remedy="The file was not written by moegauge, or lost its head; write it again.",
        )
    match = _SCHEMA.match(schema)
    if match is None or match["kind"] != record.kind:
        raise errors.MalformedFile(
            where=where,
            expected=f'a record of kind "{record.kind}" ("{wanted}")',
            found=f'"{schema}"',
            remedy="Give a file of the right kind.",
        )
    version = int(match["version"])
    if version < record.version:
        raise errors.SchemaOlder(
            where=where,
            expected=wanted,
            found=schema,
            remedy="Read it with the release that wrote it, or write it again with this one.",
        )
    if version > record.version:
        raise errors.SchemaNewer(
            where=where, expected=wanted, found=schema, remedy="Install a newer moegauge to read it."
        )


def decode_record(data: bytes, record: type[RecordT], *, where: str) -> RecordT:
    """Decode canonical or plain JSON into a record.

    Args:
        data: the bytes of the file.
        record: the record type wanted.
        where: the file, for messages.

    Raises:
        MalformedFile: not JSON, or a field is missing, unknown or of the wrong type.
        SchemaMissing, SchemaOlder, SchemaNewer: see :func:`check_schema`.
    """
    try:
        tag = msgspec.json.decode(data, type=_Tag)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFile(
            where=where,
            expected=f"a JSON object with schema {record.tag()}",
            found=f"{error} ({len(data)} bytes)",
            remedy="The file is cut or is not JSON; write it again.",
        ) from error
    check_schema(tag.schema, record, where=where)
    try:
        return msgspec.json.decode(data, type=record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFile(
            where=where,
            expected=f"the fields of {record.tag()} (docs/formats)",
            found=str(error),
            remedy="The record was edited or damaged; write it again.",
        ) from error


def canonical_bytes(value: object) -> bytes:
    """Canonical JSON of a record or of any value made of plain types."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) + b"\n"
