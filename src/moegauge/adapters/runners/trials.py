"""What tuning asks of a runner: to run works with configurations that it is given call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moegauge.adapters.runners.kernel_config import Config
from moegauge.adapters.runners.work import Checked, ClockTimes, ProfiledTimes, Work


class Trials(Protocol):
    """One kernel whose configuration can be chosen, on one device."""

    kernel_kind: str
    backend: str

    def facts(self, works: Sequence[Work]) -> dict[str, str]:
        """Conditions that hold for all trials, as a runner's. Every call has weights that the calls before evicted.

        Raises:
            MisuseError: the works are too small for that.
        """

    def surroundings(self) -> dict[str, str]:
        """As a runner's."""

    def found(self, rows: int) -> Config:
        """What the kernel's own code takes for so many rows."""

    def heuristic(self, rows: int) -> Config:
        """What it takes where it has no tuned file."""

    def file_name(self) -> str:
        """Name under which it looks for a tuned file."""

    def check(self, work: Work, config: Config, *, draw: int) -> Checked:
        """Compare one call with the float64 reference, as a runner's check.

        Raises:
            RuntimeError: the configuration does not compile, or does not fit the device.
        """

    def compile_ahead(self, trials: Sequence[tuple[Work, Config]], num_processes: int) -> None:
        """Compile configurations in several processes at once, so that what follows finds them compiled."""

    def run(self, trials: Sequence[tuple[Work, Config]]) -> ClockTimes | ProfiledTimes:
        """Run every trial once, in order; no two have the same iteration and layer."""
