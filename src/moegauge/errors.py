"""Every failure moegauge raises on purpose.

    MoegaugeError
    ├── EvidenceError          what was read is not what it has to be
    │   ├── MissingFile        a file or folder is not there, or is empty
    │   ├── MalformedFile      the bytes are not the format they claim to be (cut, corrupt, wrong type)
    │   ├── SchemaMissing      a record without a schema
    │   ├── SchemaOlder        a record of a version this release no longer reads
    │   ├── SchemaNewer        a record of a version this release does not know yet
    │   ├── DigestMismatch     the bytes are not the bytes that were recorded
    │   ├── LimitExceeded      larger than the stated bound
    │   ├── Ambiguous          two readings are possible and nothing decides between them
    │   ├── Inconsistent       two pieces of evidence contradict each other
    │   └── Incomplete         a part that was declared is not there
    └── MisuseError            the request itself makes no sense (wrong order, wrong argument)

Each carries four sentences parts: where, what was expected, what was found, and what to do next. The command
line prints them and exits 2; it is the only place that does.
"""

from __future__ import annotations

from typing import ClassVar


class MoegaugeError(Exception):
    """Base of both families.

    Attributes:
        code: stable name of the kind of failure, for programs.
        where: the file, row or argument at fault.
        expected: what would have been right.
        found: what was there instead.
        remedy: what to do next.
    """

    code: ClassVar[str] = "ERROR"

    def __init__(self, *, where: str, expected: str, found: str, remedy: str) -> None:
        self.where = where
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(f"{where}: expected {expected}, found {found}. {remedy}")

    def as_dict(self) -> dict[str, str]:
        """Return the failure as plain strings, for ``--json``."""
        return {
            "code": self.code,
            "where": self.where,
            "expected": self.expected,
            "found": self.found,
            "remedy": self.remedy,
        }


class EvidenceError(MoegaugeError):
    """What was read is not what it has to be."""

    code = "EVIDENCE"


class MissingFile(EvidenceError):
    """A file or folder is not there, or holds nothing."""

    code = "MISSING_FILE"


class MalformedFile(EvidenceError):
    """The bytes are not the format they claim to be."""

    code = "MALFORMED_FILE"


class SchemaMissing(EvidenceError):
    """A record does not say what kind and version it is."""

    code = "SCHEMA_MISSING"


class SchemaOlder(EvidenceError):
    """A record of a version that this release no longer reads."""

    code = "SCHEMA_OLDER"


class SchemaNewer(EvidenceError):
    """A record of a version that this release does not know yet."""

    code = "SCHEMA_NEWER"


class DigestMismatch(EvidenceError):
    """The bytes are not the bytes that were recorded."""

    code = "DIGEST_MISMATCH"


class LimitExceeded(EvidenceError):
    """Larger than the stated bound."""

    code = "LIMIT_EXCEEDED"


class Ambiguous(EvidenceError):
    """Two readings are possible and nothing decides between them."""

    code = "AMBIGUOUS"


class Inconsistent(EvidenceError):
    """Two pieces of evidence contradict each other."""

    code = "INCONSISTENT"


class Incomplete(EvidenceError):
    """A part that was declared is not there."""

    code = "INCOMPLETE"


class MisuseError(MoegaugeError):
    """The request itself makes no sense."""

    code = "MISUSE"
