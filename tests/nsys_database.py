"""Databases as Nsight Systems exports them, written with plain SQL from its schema reference."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from literal_workload import BASE, CALLS, OPS, RANGES

Statement = tuple[str, Sequence[object]]

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
    launchType INTEGER, gridX INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,
    returnValue INTEGER, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
    domainId INTEGER);
"""

PID = 700
GLOBAL_PID = (1 << 56) | (PID << 24)
"""Process 700 on machine 1; a thread adds its own number in the lowest 24 bits."""
GLOBAL_TID = GLOBAL_PID + 701


def nsys_database(path: Path, statements: Iterable[tuple[str, Sequence[object]]], *, schema: str = SCHEMA) -> Path:
    """Write a database from a schema and statements with their values."""
    with sqlite3.connect(path) as database:
        database.executescript(schema)
        for statement, values in statements:
            database.execute(statement, values)
    database.close()
    return path


def string(number: int, value: str) -> tuple[str, Sequence[object]]:
    return "INSERT INTO StringIds VALUES (?, ?)", (number, value)


def kernel(
    start: object, end: object, *, name: object, correlation: object, stream: object = 7, process: object = GLOBAL_PID
) -> tuple[str, Sequence[object]]:
    return (
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, "
        "demangledName) VALUES (?, ?, 0, ?, ?, ?, ?)",
        (start, end, stream, correlation, process, name),
    )


def copy(
    start: object, end: object, *, kind: int, correlation: object, stream: int = 7
) -> tuple[str, Sequence[object]]:
    return (
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, correlationId, globalPid, copyKind) "
        "VALUES (?, ?, 0, ?, ?, ?, ?)",
        (start, end, stream, correlation, GLOBAL_PID, kind),
    )


def call(
    start: object, *, name: object, correlation: object, thread: object = GLOBAL_TID
) -> tuple[str, Sequence[object]]:
    return (
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId) VALUES (?, ?, ?, ?, ?)",
        (start, None, thread, correlation, name),
    )


def nvtx(
    start: object, end: object, *, text: object = None, text_id: object = None, thread: object = GLOBAL_TID
) -> tuple[str, Sequence[object]]:
    return (
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid) VALUES (?, ?, 59, ?, ?, ?)",
        (start, end, text, text_id, thread),
    )


NAMES = {"launch": "cudaLaunchKernel_v7000", "copy": "cudaMemcpyAsync_v3020", "graph": "cudaGraphLaunch_v10000"}
STRINGS = {"gemm": 1, "act": 2, "launch": 3, "copy": 4, "graph": 5}


def workload() -> list[Statement]:
    """The literal workload as rows."""
    rows = [string(number, NAMES.get(name, name)) for name, number in STRINGS.items()]
    for name, stream, start, end, correlation in OPS:
        if name in STRINGS:
            rows.append(kernel(BASE + start, BASE + end, name=STRINGS[name], correlation=correlation, stream=stream))
        else:
            rows.append(copy(BASE + start, BASE + end, kind=8, correlation=correlation, stream=stream))
    rows += [call(BASE + start, name=STRINGS[name], correlation=c) for name, start, c in CALLS]
    return rows + [nvtx(BASE + start, BASE + end, text=text) for text, start, end in RANGES]
