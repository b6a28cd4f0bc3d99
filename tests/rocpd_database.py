"""Databases as rocprofv3 writes them, in plain SQL from version 3 of its schema."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from literal_workload import BASE, CALLS, OPS, RANGES

ID = "_00001a2b_7e1f_73a5_9d2c_0123456789ab"
NAMES = {"launch": "hipExtModuleLaunchKernel", "copy": "hipMemcpyAsync", "graph": "hipGraphLaunch"}
STRINGS = {
    "launch": 1, "copy": 2, "graph": 3, "HIP_RUNTIME_API_EXT": 4, "MARKER_CORE_RANGE_API": 5, "roctxRangePushA": 6,
    "MEMORY_COPY_DEVICE_TO_DEVICE": 7, "KERNEL_DISPATCH": 8, "MEMORY_COPY_HOST_TO_HOST": 9,
}  # fmt: skip

SCHEMA = """
CREATE TABLE rocpd_string{id} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_agent{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, type TEXT,
    absolute_index INTEGER, logical_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT);
CREATE TABLE rocpd_info_kernel_symbol{id} (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT);
CREATE TABLE rocpd_event{id} (id INTEGER PRIMARY KEY, category_id INTEGER, stack_id INTEGER,
    parent_stack_id INTEGER, correlation_id INTEGER, extdata JSONB DEFAULT "{{}}" NOT NULL);
CREATE TABLE rocpd_region{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER,
    agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT,
    "end" BIGINT, event_id INTEGER);
CREATE TABLE rocpd_memory_copy{id} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER,
    event_id INTEGER);
CREATE VIEW rocpd_kernel_dispatch_view AS SELECT * FROM rocpd_kernel_dispatch{id};
"""


class Database:
    """Writes one database, row by row."""

    def __init__(self, path: Path, *, id_: str = ID) -> None:
        self.path, self.id = path, id_
        self.connection = sqlite3.connect(path)
        self.connection.executescript(SCHEMA.format(id=id_))

    def insert(self, table: str, **values: object) -> int:
        names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        text = f"INSERT INTO rocpd_{table}{self.id} ({names}) VALUES ({marks})"  # noqa: S608
        row = self.connection.execute(text, list(values.values())).lastrowid
        assert row is not None
        return row

    def event(self, category: str, stack: object, extdata: object = "{}") -> int:
        return self.insert("event", category_id=STRINGS[category], stack_id=stack, extdata=extdata)

    def call(self, name: str, start: int, stack: object) -> None:
        event = self.event("HIP_RUNTIME_API_EXT", stack)
        self.insert(
            "region", pid=700, tid=701, start=BASE + start, end=BASE + start + 5, name_id=STRINGS[name], event_id=event
        )

    def kernel(self, name: int, start: object, end: object, stream: object, stack: object) -> None:
        event = self.event("KERNEL_DISPATCH", stack)
        self.insert(
            "kernel_dispatch", pid=700, agent_id=5, kernel_id=name, queue_id=1, stream_id=stream, start=start, end=end,
            event_id=event,
        )  # fmt: skip

    def copy(self, name: str, start: int, end: int, *, stream: int, stack: int, agents: Sequence[int]) -> None:
        event = self.event("KERNEL_DISPATCH", stack)
        self.insert(
            "memory_copy", pid=700, start=BASE + start, end=BASE + end, name_id=STRINGS[name], src_agent_id=agents[0],
            dst_agent_id=agents[1], stream_id=stream, event_id=event,
        )  # fmt: skip

    def marker(self, start: int, end: int, stack: int, extdata: object) -> None:
        event = self.event("MARKER_CORE_RANGE_API", stack, extdata)
        self.insert(
            "region", pid=700, tid=701, start=BASE + start, end=BASE + end, name_id=STRINGS["roctxRangePushA"],
            event_id=event,
        )  # fmt: skip

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path


def workload(path: Path, *, id_: str = ID) -> Database:
    """The literal workload; agent 5 is the first GPU, agent 0 the host."""
    database = Database(path, id_=id_)
    for name, number in STRINGS.items():
        database.insert("string", id=number, string=NAMES.get(name, name))
    database.insert("info_agent", id=0, type="CPU", type_index=0, name="host", product_name="A host")
    database.insert("info_agent", id=5, type="GPU", type_index=0, name="gfx942", product_name="GPU model A")
    database.insert("info_agent", id=6, type="GPU", type_index=1, name="gfx950", product_name="GPU model B")
    database.insert("info_kernel_symbol", id=1, kernel_name="_Z4gemm.kd", display_name="gemm")
    database.insert("info_kernel_symbol", id=2, kernel_name="act", display_name=None)
    for name, start, correlation in CALLS:
        database.call(name, start, correlation)
    for name, stream, start, end, correlation in OPS:
        if "Memcpy" in name:
            kind = "MEMORY_COPY_DEVICE_TO_DEVICE"
            database.copy(kind, start, end, stream=stream, stack=correlation, agents=(5, 5))
        else:
            database.kernel({"gemm": 1, "act": 2}[name], BASE + start, BASE + end, stream, correlation)
    for number, (text, start, end) in enumerate(RANGES):
        database.marker(start, end, 900 + number, json.dumps({"message": text}))
    return database
