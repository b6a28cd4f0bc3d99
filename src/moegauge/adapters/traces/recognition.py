"""Which profiler wrote this file? Told by its bytes and its tables, never by its name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from moegauge import errors
from moegauge.adapters.compression import read_unpacked, unpacked
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.adapters.traces.nsys import NSYS_TABLES, nsys_trace
from moegauge.adapters.traces.rocpd import is_rocpd, rocpd_trace
from moegauge.adapters.traces.sqlite_tables import SQLITE_MAGIC, SqliteTables
from moegauge.kernels.trace import Trace

_NUM_SHOWN = 8
_NUM_SNIFFED = 4096
_BLANKS = b" \t\r\n"


def read_trace(path: Path) -> Trace:
    """Read a recording of device operations, gzip or plain, in any format of docs/formats/traces.md.

    Raises:
        MissingFile, MalformedFile, LimitExceeded: see adapters.compression and the readers.
        Incomplete: no device operation was recorded.
        Ambiguous: the file holds device operations of several processes, or a correlation has two launch calls.
    """
    return parse_trace(read_unpacked(path), source=str(path))


def parse_trace(data: bytes, *, source: str) -> Trace:
    """Parse the bytes of a recording. See :func:`read_trace`."""
    data = unpacked(data, where=source)
    if data.startswith(SQLITE_MAGIC):
        with closing(SqliteTables(data, source)) as tables:
            return _from_tables(tables)
    if data[:_NUM_SNIFFED].lstrip(_BLANKS)[:1] != b"{":
        raise _unknown(data, source)
    return parse_kineto(data, source=source)


def _unknown(data: bytes, source: str) -> errors.MalformedFile:
    return errors.MalformedFile(
        where=source,
        expected="a Kineto trace (a JSON object), or an SQLite export of Nsight Systems or rocprofv3; gzip or plain",
        found=f"{len(data)} bytes that begin with {data[:_NUM_SHOWN]!r}",
        remedy="Export it first (an .nsys-rep with 'nsys export --type sqlite'); see docs/formats/traces.md.",
    )


def _from_tables(tables: SqliteTables) -> Trace:
    if not NSYS_TABLES.isdisjoint(tables.columns):
        return nsys_trace(tables)
    if is_rocpd(tables):
        return rocpd_trace(tables)
    shown = ", ".join(sorted(tables.columns)[:_NUM_SHOWN]) or "none"
    raise errors.MalformedFile(
        where=tables.source,
        expected="a database of Nsight Systems (CUPTI_ACTIVITY_KIND_...) or of rocprofv3 (rocpd_kernel_dispatch...)",
        found=f"an SQLite database with {len(tables.columns)} tables: {shown}"[:400],
        remedy="Use 'nsys export --type sqlite' or 'rocprofv3 --output-format rocpd'; see docs/formats/traces.md.",
    )
