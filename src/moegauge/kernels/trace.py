"""The one normal form of a device trace: columns of integers, names in one list. Readers produce it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from moegauge.records.capture import Finding

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NONE = -1
"""In an index column: there is none. Never a valid index, and never summed."""


class OpKind(IntEnum):
    """What a device operation is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


@dataclass(frozen=True, kw_only=True)
class Ops:
    """Device operations; every column int64 [n].

    Attributes:
        kind: OpKind. device, stream: where it ran. start_ns, end_ns: half-open interval.
        name: index into Trace.names. launch: index into Launches, or NONE.
    """

    kind: Int64Array
    device: Int64Array
    stream: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    name: Int64Array
    launch: Int64Array

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, kw_only=True)
class Launches:
    """Host calls that launched device operations; every column int64 [n].

    Attributes:
        process: index of the host process. start_ns: when the call began. name: index into Trace.names.
        correlation: the driver's id. owner: index into Trace.names of the operator or annotation whose External id
            the call carries, or NONE. (External ids and correlations are different namespaces.)
    """

    process: Int64Array
    start_ns: Int64Array
    name: Int64Array
    correlation: Int64Array
    owner: Int64Array

    def __len__(self) -> int:
        return len(self.process)


@dataclass(frozen=True, kw_only=True)
class Scopes:
    """Annotated ranges; every column int64 [n].

    Attributes:
        place: host process index, or a (device, stream) index, NONE-free.
        start_ns, end_ns: half-open. name: index into Trace.names.
    """

    place: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    name: Int64Array


@dataclass(frozen=True, kw_only=True)
class InvalidOps:
    """Device operations without usable time stamps, kept apart so that no sum can contain them.

    Columns int64 [n]; ``launch`` as in Ops. They count against the coverage of the iteration they belong to.
    """

    name: Int64Array
    launch: Int64Array
    raw: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One process's device trace.

    Attributes:
        source: file name, for messages.
        rank, world_size: from the trace itself; None where it does not say.
        facts: conditions the trace itself records (see records/measurement.CONDITIONS).
        names: every name once.
        streams: (device, stream) of each place of ``device_scopes``.
        findings: what the reader repaired or put aside.
    """

    source: str
    rank: int | None
    world_size: int | None
    facts: dict[str, str]
    names: list[str]
    ops: Ops
    invalid: InvalidOps
    launches: Launches
    host_scopes: Scopes
    device_scopes: Scopes
    streams: list[tuple[int, int]]
    findings: tuple[Finding, ...]

    def op_names(self, *, kernels_only: bool) -> list[str]:
        """Names of the device operations, each once."""
        chosen = self.ops.name[self.ops.kind == OpKind.KERNEL] if kernels_only else self.ops.name
        return [self.names[index] for index in np.unique(chosen).tolist()]
