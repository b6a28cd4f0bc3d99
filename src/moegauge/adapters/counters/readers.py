"""Readers and writers of profiles, by the name a registration gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from moegauge.adapters.counters.ncu import read_ncu, write_ncu
from moegauge.adapters.counters.torch_profiler import read_torch_profile, write_torch_profile
from moegauge.adapters.counters.unitrace import read_unitrace, write_unitrace
from moegauge.gate.counters import CounterTable


class Reader(Protocol):
    """Reads a profiler's file."""

    def __call__(self, data: bytes, metrics: Collection[str], *, where: str) -> CounterTable:
        """Read launches and the wanted metrics; EvidenceError where the file cannot be used."""
        ...


READERS: Mapping[str, Reader] = {
    "ncu": read_ncu,
    "unitrace": read_unitrace,
    "torch_profiler": read_torch_profile,
}

WRITERS: Mapping[str, Callable[[CounterTable], bytes]] = {
    "ncu": write_ncu,
    "unitrace": write_unitrace,
    "torch_profiler": write_torch_profile,
}
"""What a rehearsal's profiles are written with, so that the registered reader reads them."""
