"""The host processor: identity, last-level cache, and a way to push everything else out of it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def model_name() -> str:
    """Model name of the processor as the kernel reports it, else the machine type."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def host_surroundings(*, threads: int) -> dict[str, str]:
    """Load of the host right now, and the threads that work on it; clocks are not readable and therefore absent."""
    return {"load_average": f"{os.getloadavg()[0]:.2f}", "threads": str(threads)}


def memory_bytes() -> int:
    """Physical memory of the host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def last_level_cache_bytes() -> int | None:
    """Size of the largest cache of processor 0; None where the kernel does not say."""
    sizes = []
    for path in sorted(_CACHES.glob("index*/size")):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1] in _UNITS:
            sizes.append(int(text[:-1]) * _UNITS[text[-1]])
    return max(sizes, default=None)


class CacheFlush:
    """Writes a buffer of twice the last-level cache (64 MiB where that is unknown)."""

    def __init__(self) -> None:
        self.num_bytes = 2 * (last_level_cache_bytes() or (32 << 20))
        self._buffer = np.zeros(self.num_bytes // 8, dtype=np.int64)

    def __call__(self) -> None:
        """Write every word."""
        self._buffer += 1
