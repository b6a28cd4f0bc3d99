"""Every benchmark runs in its small form and finds what it has to; no time is looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def ran(name: str, *arguments: str) -> str:
    """What a benchmark prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / name), *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def test_ingest_finds_the_busy_time_of_the_bundled_trace() -> None:
    shown = ran("ingest.py", "--small")
    assert re.search(r"bundled: 25480 events, 782145 bytes gzip", shown)
    assert re.search(r"moegauge .* 186201203\n", shown)  # as the bundled capture's intervals add up
    assert re.search(r"generated: 4326 events", shown)
