"""Rows that a run could not measure, or measured wrongly: what it writes of them, and what it says at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from moegauge.adapters.profile_db import ProfileDb
from moegauge.jobs.kernel_failure import KernelFailed
from moegauge.jobs.targets import Target
from moegauge.records.profile import RowStatus


@dataclass(frozen=True)
class FailedRows:
    """Failures of one run.

    Attributes:
        database: open for writing. texts: (status, original text) of each different failure, in order.
    """

    database: ProfileDb
    texts: list[tuple[str, str]] = field(default_factory=list)

    def record(self, targets: Sequence[Target], failed: KernelFailed) -> None:
        """Write rows whose kernel failed."""
        if (failed.status, failed.text) not in self.texts:
            self.texts.append((failed.status, failed.text))
        self._mark(targets, failed.status, failed.text)

    def record_wrong_output(self, targets: Iterable[Target], measured: Iterable[Target], text: str) -> None:
        """Write rows whose output is wrong, and with them whatever the run measured before it was seen."""
        self._mark(targets, RowStatus.WRONG_OUTPUT, text)
        self._mark(measured, RowStatus.WRONG_OUTPUT, text, also_measured=True)

    def _mark(self, targets: Iterable[Target], status: RowStatus, text: str, *, also_measured: bool = False) -> None:
        failures = [(target.key, target.spec.label, status, text) for target in targets]
        self.database.add_failures(failures, also_measured=also_measured)
