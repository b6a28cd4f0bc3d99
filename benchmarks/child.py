"""Time a call and its peak memory in a process of its own, several of them in turn.

A child prints one line of JSON: what it found, its seconds, and its peak resident memory as the system saw it
(ru_maxrss, imports included). Rounds are interleaved, so that a slow moment of the machine falls on all alike.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moegauge


@dataclass(frozen=True)
class Measured:
    """What the children of one kind said: seconds and peak bytes of each round, and what the last one found."""

    seconds: list[float]
    peak_bytes: list[int]
    found: dict[str, Any]

    @property
    def median_s(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.seconds)

    @property
    def median_bytes(self) -> float:
        """Median peak over the rounds."""
        return statistics.median(self.peak_bytes)


def report(call: Callable[[], dict[str, Any]]) -> None:
    """In a child: run a call, print what it found with its seconds and the process's peak."""
    start = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"found": found, "seconds": seconds, "peak_bytes": peak}))


def rounds(commands: Mapping[str, Sequence[str]], repetitions: int) -> dict[str, Measured]:
    """Run each command in turn, some rounds."""
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(repetitions):
        for name, command in commands.items():
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                sys.exit(f"{name} failed ({ran.returncode}): {ran.stderr[-2000:]}")
            told[name].append(json.loads(ran.stdout.splitlines()[-1]))
    return {
        name: Measured([one["seconds"] for one in all_], [one["peak_bytes"] for one in all_], all_[-1]["found"])
        for name, all_ in told.items()
    }


def machine() -> str:
    """Versions and machine, for the first line of a table."""
    found = (platform.platform(), platform.processor() or platform.machine(), f"{os.cpu_count()} CPUs")
    return ", ".join([f"moegauge {moegauge.__version__}", f"Python {platform.python_version()}", *found])
