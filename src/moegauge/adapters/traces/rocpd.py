"""rocpd, the database rocprofv3 writes: tables with the process's id behind their names.

Table and column names: rocpd_tables.sql and generateRocpd.cpp of rocprofiler-sdk. Times are ns. Views of the same names
without the id are never read. An event's ``stack_id`` is the correlation of the call that launched it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.traces.recorded_columns import RecordedOps, RecordedRanges, recorded_trace
from moegauge.adapters.traces.sqlite_tables import ABSENT, SqliteTables
from moegauge.kernels.trace import OpKind, Trace

Int64Array = NDArray[np.int64]

_DISPATCHES = re.compile(r"^rocpd_(?:kernel_dispatch|region)(?P<suffix>(?:_[0-9A-Za-z]+)*)$")
_COPIES = {
    "HOST_TO_DEVICE": "Memcpy HtoD",
    "DEVICE_TO_HOST": "Memcpy DtoH",
    "DEVICE_TO_DEVICE": "Memcpy DtoD",
}
_MARKERS = "MARKER_CORE"


class _Message(msgspec.Struct):
    message: str = ""


def is_rocpd(tables: SqliteTables) -> bool:
    """Whether a database has tables of rocpd."""
    return any(_DISPATCHES.match(name) for name in tables.columns)


def rocpd_trace(tables: SqliteTables) -> Trace:
    """Read a database of rocprofv3. Errors: see recorded_columns.recorded_trace and SqliteTables."""
    return _Rocpd(tables, _suffix(tables)).trace()


def _suffix(tables: SqliteTables) -> str:
    """The id behind the names of the only process whose tables are there."""
    found = sorted({match["suffix"] for name in tables.columns if (match := _DISPATCHES.match(name))})
    if len(found) > 1:
        raise errors.Ambiguous(
            where=tables.source,
            expected="the tables of one process",
            found=f"tables of {len(found)} ({', '.join(found[:4])})",
            remedy="Give the file of each rank as rocprofv3 wrote it, not a merged one.",
        )
    return found[0]


class _Rocpd:
    """The tables of one process, by their names without the id."""

    def __init__(self, tables: SqliteTables, suffix: str) -> None:
        self.tables, self.suffix = tables, suffix
        self.strings = self._by_id("rocpd_string", "string")
        self.stacks = self._numbers_by_id("rocpd_event", "stack_id")
        self.categories = self._numbers_by_id("rocpd_event", "category_id")
        self.devices = self._devices()

    def trace(self) -> Trace:
        kernels = self._kernels()
        calls, markers = self._regions()
        return recorded_trace(
            self.tables.source,
            [kernels, self._copies()],
            calls,
            markers,
            facts=self._facts(kernels),
            no_ops_remedy="Record with rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format rocpd.",
        )

    def _integers(self, table: str, names: list[str]) -> list[Int64Array]:
        return self.tables.integers(table + self.suffix, names)

    def _by_id(self, table: str, *columns: str) -> dict[int, str | None]:
        """The first of some text columns that is filled, by id."""
        (ids,), values = self._integers(table, ["id"]), self.tables.texts(table + self.suffix, columns)
        filled = [next((one for one in row if one), None) for row in zip(*values, strict=True)]
        return dict(zip(ids.tolist(), filled, strict=True))

    def _numbers_by_id(self, table: str, column: str) -> dict[int, int]:
        ids, values = self._integers(table, ["id", column])
        return dict(zip(ids.tolist(), values.tolist(), strict=True))

    def _devices(self) -> dict[int, int] | None:
        """Index among the GPUs of each GPU agent, by agent id; None where no agent was recorded."""
        ids, index = self._integers("rocpd_info_agent", ["id", "type_index"])
        (kinds,) = self.tables.texts("rocpd_info_agent" + self.suffix, ["type"])
        if not kinds:
            return None
        found = zip(ids.tolist(), index.tolist(), kinds, strict=True)
        return {agent: (agent if at == ABSENT else at) for agent, at, kind in found if kind == "GPU"}

    def _device(self, agents: Int64Array) -> Int64Array:
        if self.devices is None:
            return agents
        return _looked_up(self.devices, agents)

    def _kernels(self) -> RecordedOps:
        start, end, agent, stream, process, event, kernel = self._integers(
            "rocpd_kernel_dispatch", ["start", "end", "agent_id", "stream_id", "pid", "event_id", "kernel_id"]
        )
        names = self._by_id("rocpd_info_kernel_symbol", "display_name", "kernel_name")
        return RecordedOps(
            kind=OpKind.KERNEL,
            process=process,
            device=self._device(agent),
            stream=stream,
            start_ns=start,
            end_ns=end,
            correlation=_looked_up(self.stacks, event),
            names=[names.get(one) for one in kernel.tolist()],
        )

    def _copies(self) -> RecordedOps:
        """Copies from or to a device; one between two places in host memory is no device operation."""
        start, end, target, source, stream, process, event, name = self._integers(
            "rocpd_memory_copy",
            ["start", "end", "dst_agent_id", "src_agent_id", "stream_id", "pid", "event_id", "name_id"],
        )
        to, origin = self._device(target), self._device(source)
        device = np.where(to != ABSENT, to, origin)
        kept = np.flatnonzero(device != ABSENT)
        return RecordedOps(
            kind=OpKind.MEMCPY,
            process=process[kept],
            device=device[kept],
            stream=stream[kept],
            start_ns=start[kept],
            end_ns=end[kept],
            correlation=_looked_up(self.stacks, event)[kept],
            names=[_copy_name(self.strings.get(one)) for one in name[kept].tolist()],
        )

    def _regions(self) -> tuple[RecordedRanges, RecordedRanges]:
        """Host calls, and roctx ranges under their messages."""
        start, end, process, name, event = self._integers(
            "rocpd_region", ["start", "end", "pid", "name_id", "event_id"]
        )
        category = [self.strings.get(one) or "" for one in _looked_up(self.categories, event).tolist()]
        is_marker = np.array([one.startswith(_MARKERS) for one in category], dtype=bool)
        calls, markers = np.flatnonzero(~is_marker), np.flatnonzero(is_marker)
        messages = self._by_id("rocpd_event", "extdata") if len(markers) else {}
        correlation = _looked_up(self.stacks, event)

        def ranges(rows: NDArray[np.intp], names: list[str | None]) -> RecordedRanges:
            return RecordedRanges(
                process=process[rows],
                start_ns=start[rows],
                end_ns=end[rows],
                correlation=correlation[rows],
                names=names,
            )

        return (
            ranges(calls, [self.strings.get(one) for one in name[calls].tolist()]),
            ranges(markers, [self._message(messages.get(one)) for one in event[markers].tolist()]),
        )

    def _message(self, text: str | None) -> str:
        try:
            return msgspec.json.decode(text or "{}", type=_Message).message
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise errors.MalformedFile(
                where=f"{self.tables.source}: rocpd_event.extdata",
                expected="a JSON object with the message of a range",
                found=str(error),
                remedy="The file is damaged; record again.",
            ) from error

    def _facts(self, kernels: RecordedOps) -> dict[str, str]:
        products = self._by_id("rocpd_info_agent", "product_name", "name")
        used = set(kernels.device.tolist())
        models = sorted(
            {products[agent] or "" for agent, device in (self.devices or {}).items() if device in used} - {""}
        )
        return {"profiler": "rocprofv3"} | ({"device_model": ", ".join(models)} if models else {})


def _looked_up(table: Mapping[int, int], keys: Int64Array) -> Int64Array:
    return np.array([table.get(key, ABSENT) for key in keys.tolist()], dtype=np.int64)


def _copy_name(name: str | None) -> str:
    return next((short for long, short in _COPIES.items() if name and name.endswith(long)), name or "Memcpy")
