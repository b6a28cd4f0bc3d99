"""Kineto Chrome traces (torch profiler): exact integer ns, columns, and nothing dropped in silence.

``ts`` and ``dur`` are microseconds written as decimals. They are never read as floats: at today's epoch a double
steps by a quarter of a microsecond. Time is joined to launches by correlation, which is unique in a process only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec
import numpy as np

from moegauge import errors
from moegauge.adapters.compression import read_unpacked, unpacked
from moegauge.adapters.traces.kineto_json import Args, Event, KinetoFile, decode_kineto, malformed
from moegauge.kernels.trace import NONE, InvalidOps, Launches, OpKind, Ops, Scopes, Trace
from moegauge.records.capture import Finding

_OP_KINDS = {"kernel": OpKind.KERNEL, "gpu_memcpy": OpKind.MEMCPY, "gpu_memset": OpKind.MEMSET}
_LAUNCH_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime"})
_LAST_NS = 1 << 62  # so that a start and a duration still add up in 64 bits
_PLAIN_US = re.compile(rb"^-?[0-9]{1,16}(\.[0-9]{1,3})?$")


def read_kineto(path: Path) -> Trace:
    """Read one Kineto trace file (gzip or plain).

    Raises:
        MissingFile, MalformedFile, LimitExceeded: see adapters.compression.
        Incomplete: the trace holds launch calls but no device operation, or nothing at all.
        Ambiguous: a correlation has two launch calls that nothing tells apart.
    """
    return parse_kineto(read_unpacked(path), source=str(path))


def parse_kineto(data: bytes, *, source: str) -> Trace:
    """Parse the bytes of a Kineto trace. See :func:`read_kineto`."""
    data = unpacked(data, where=source)
    file, findings = decode_kineto(data, source)
    return _Columns(source, findings).build(file)


@dataclass
class _Rows:
    """Growing integer rows, read out as columns."""

    rows: list[tuple[int, ...]] = field(default_factory=list)

    def columns(self, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(self.rows, dtype=np.int64).reshape(-1, width).T.copy()


class _Columns:
    """Builds the normal form from decoded events, one pass for each kind of row."""

    def __init__(self, source: str, findings: list[Finding]) -> None:
        self.source = source
        self.findings = findings
        self.names: dict[str, int] = {}
        self.processes: dict[str, int] = {}
        self.streams: dict[tuple[int, int], int] = {}
        self.sub_ns = 0

    def build(self, file: KinetoFile) -> Trace:
        events = file.trace_events
        owners = self._owners(events)
        launches, index = self._launches(events, owners)
        ops, invalid = self._ops(events, index, launches)
        if not len(ops):
            raise self._no_ops(len(launches), len(invalid.name))
        host, device = self._scopes(events)
        if self.sub_ns:
            self.findings.append(
                Finding(code="SUB_NS", sentence="times finer than 1 ns were rounded to even", num=self.sub_ns)
            )
        return Trace(
            source=self.source,
            rank=file.distributed.rank if file.distributed else None,
            world_size=file.distributed.world_size if file.distributed else None,
            facts=_facts(file, ops),
            names=list(self.names),
            ops=ops,
            invalid=invalid,
            launches=launches,
            host_scopes=host,
            device_scopes=device,
            streams=list(self.streams),
            findings=tuple(self.findings),
        )

    def _no_ops(self, num_launches: int, num_invalid: int) -> errors.Incomplete:
        return errors.Incomplete(
            where=self.source,
            expected="device operations (kernel rows)",
            found=f"no kernel records ({num_launches} launch calls, {num_invalid} rows without usable time stamps)",
            remedy="The first profiler session of a process can record nothing; warm the profiler up and record again.",
        )

    def _name(self, name: str | None) -> int:
        return self.names.setdefault(name or "", len(self.names))

    def _process(self, pid: object) -> int:
        return self.processes.setdefault(str(pid), len(self.processes))

    def _stream(self, device: int, stream: int) -> int:
        return self.streams.setdefault((device, stream), len(self.streams))

    def _owners(self, events: Iterable[Event]) -> dict[tuple[int, int], int]:
        """Name of the operator or annotation that carries each (process, External id)."""
        found: dict[tuple[int, int], int] = {}
        for event in events:
            if event.cat in {"cpu_op", "user_annotation"} and event.args is not None:
                external = event.args.external_id
                if isinstance(external, int):
                    found.setdefault((self._process(event.pid), external), self._name(event.name))
        return found

    def _launches(
        self, events: Iterable[Event], owners: dict[tuple[int, int], int]
    ) -> tuple[Launches, dict[int, list[int]]]:
        rows = _Rows()
        index: dict[int, list[int]] = {}
        for event in events:
            if event.cat not in _LAUNCH_CATEGORIES or event.args is None:
                continue
            correlation, external = event.args.correlation, event.args.external_id
            start = self._ns(event.ts)
            if not isinstance(correlation, int) or start is None:
                continue
            process = self._process(event.pid)
            owner = owners.get((process, external), NONE) if isinstance(external, int) else NONE
            index.setdefault(correlation, []).append(len(rows.rows))
            rows.rows.append((process, start, self._name(event.name), correlation, owner))
        process_, start_, name_, correlation_, owner_ = rows.columns(5)
        launches = Launches(process=process_, start_ns=start_, name=name_, correlation=correlation_, owner=owner_)
        return launches, index

    def _ops(self, events: Iterable[Event], index: dict[int, list[int]], launches: Launches) -> tuple[Ops, InvalidOps]:
        rows, invalid, raw = _Rows(), _Rows(), []
        open_joins: list[tuple[int, int, list[int]]] = []
        for number, event in enumerate(events):
            if event.cat not in _OP_KINDS or event.ph != "X":
                continue
            args = event.args or Args()
            candidates = index.get(args.correlation, []) if isinstance(args.correlation, int) else []
            launch = candidates[0] if len(candidates) == 1 else NONE
            start, length = self._ns(event.ts), self._ns(event.dur)
            place = args.place()
            if place is None:
                raise malformed(self.source, f"event {number} ({event.name}): no integer device and stream")
            if start is None or length is None or length <= 0 or start <= 0:
                invalid.rows.append((self._name(event.name), launch))
                raw.append(f"{(event.name or '')[:60]}: ts={bytes(event.ts)!r} dur={bytes(event.dur)!r}")
                continue
            self._stream(*place)
            if len(candidates) > 1:
                open_joins.append((len(rows.rows), place[0], candidates))
            kind = _OP_KINDS[event.cat]
            rows.rows.append((int(kind), *place, start, start + length, self._name(event.name), launch))
        kind_, device_, stream_, start_, end_, name_, launch_ = rows.columns(7)
        self._separate(open_joins, launches, device_, launch_)
        self._report_invalid(raw)
        invalid_name, invalid_launch = invalid.columns(2)
        return (
            Ops(kind=kind_, device=device_, stream=stream_, start_ns=start_, end_ns=end_, name=name_, launch=launch_),
            InvalidOps(name=invalid_name, launch=invalid_launch, raw=tuple(raw)),
        )

    def _report_invalid(self, raw: list[str]) -> None:
        if raw:
            self.findings.append(
                Finding(
                    code="INVALID_TIMESTAMPS",
                    sentence="device rows without usable time stamps (0, negative, or no duration) are in no sum",
                    num=len(raw),
                    examples=tuple(raw[:5]),
                )
            )

    def _separate(
        self,
        open_joins: list[tuple[int, int, list[int]]],
        launches: Launches,
        device: np.ndarray[tuple[int], np.dtype[np.int64]],
        launch: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> None:
        """Decide between launch calls of one correlation: rule out processes known to use other devices only."""
        known = launch != NONE
        uses = set(zip(launches.process[launch[known]].tolist(), device[known].tolist(), strict=True))
        seen = {process for process, _ in uses}
        for row, on_device, candidates in open_joins:
            process = {c: int(launches.process[c]) for c in candidates}
            fits = [c for c in candidates if process[c] not in seen or (process[c], on_device) in uses]
            if len(fits) != 1:
                raise errors.Ambiguous(
                    where=self.source,
                    expected="one launch call for each correlation of a process",
                    found=f"correlation {launches.correlation[candidates[0]]} on {len(candidates)} launch calls",
                    remedy="Export each process's trace to its own file.",
                )
            launch[row] = fits[0]

    def _scopes(self, events: Iterable[Event]) -> tuple[Scopes, Scopes]:
        host, device = _Rows(), _Rows()
        for event in events:
            if event.cat not in {"user_annotation", "gpu_user_annotation"} or event.ph != "X":
                continue
            start, length = self._ns(event.ts), self._ns(event.dur)
            if start is None or length is None or length < 0:
                continue
            if event.cat == "user_annotation":
                host.rows.append((self._process(event.pid), start, start + length, self._name(event.name)))
            elif isinstance(event.pid, int) and isinstance(event.tid, int):
                place = self._stream(event.pid, event.tid)
                device.rows.append((place, start, start + length, self._name(event.name)))
        return _scopes(host), _scopes(device)

    def _ns(self, text: msgspec.Raw) -> int | None:
        """Exact ns of a decimal number of us; None where there is no number."""
        data = bytes(text)
        if _PLAIN_US.match(data):
            whole, _, fraction = data.partition(b".")
            ns = int(whole) * 1000
            part = int(fraction.ljust(3, b"0"))
            exact = ns - part if data[:1] == b"-" else ns + part
            return exact if abs(exact) < _LAST_NS else None
        try:
            value = Decimal(data.decode("ascii")) * 1000
        except (InvalidOperation, UnicodeDecodeError):
            return None
        if not value.is_finite() or abs(value) >= _LAST_NS:
            return None
        rounded = int(value.to_integral_value())
        self.sub_ns += rounded != value
        return rounded


def _scopes(rows: _Rows) -> Scopes:
    place, start, end, name = rows.columns(4)
    return Scopes(place=place, start_ns=start, end_ns=end, name=name)


def _facts(file: KinetoFile, ops: Ops) -> dict[str, str]:
    models = {device.id: device.name for device in file.device_properties}
    used = sorted({models[int(device)] for device in np.unique(ops.device) if int(device) in models})
    versions = {
        "cuda_driver": file.cuda_driver_version,
        "cuda_runtime": file.cuda_runtime_version,
        "cupti": file.cupti_version,
    }
    facts = {name: str(value) for name, value in versions.items() if value is not None}
    return facts | ({"device_model": ", ".join(used)} if used else {})
