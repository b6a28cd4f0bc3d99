"""The program under a profiler: whole cycles of one arm, and nothing else of the lane.

    python -m moegauge.jobs.gate_arm DEVICE SUBJECT ARM CYCLES [ROOT]

It runs in the lane folder, started by the runner of phase b through the registered ``counters.command``. Calls are
eager, whatever the timing is: a profiler looks at one kernel at a time. ROOT is what source paths are relative to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moegauge.evidence.lane_folder import DRAFT, read_steps
from moegauge.evidence.toml import read_toml
from moegauge.gate.ports import Lane
from moegauge.jobs.lane_code import entry, put_on_path, registration_in_force
from moegauge.records.observation import ArmName
from moegauge.records.registration import Registration


def main(arguments: Sequence[str]) -> int:
    """Run the arm."""
    device, subject, arm_text, cycles, *rest = arguments
    arm: ArmName = "incumbent" if arm_text == "incumbent" else "candidate"
    folder = Path.cwd()
    registration = registration_in_force(read_steps(folder)) or read_toml(
        folder / DRAFT, Registration
    )  # explored: draft
    put_on_path(registration, Path(rest[0]) if rest else Path())
    lane: Lane = entry(registration.code.lane)
    opened: Any = entry(registration.code.devices).open(registration, device)
    names = lane.fixtures(subject)[: registration.subject(subject).calls_per_cycle]
    try:
        opened.run_profiled(subject, arm, [lane.inputs(subject, name) for name in names], num_cycles=int(cycles))
    finally:
        opened.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
