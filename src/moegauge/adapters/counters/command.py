"""A profiler that is a command: the registered words, with the program that runs an arm behind them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from moegauge.evidence.store import read_bytes
from moegauge.gate.ports import DeviceFailure
from moegauge.records.counter_rules import CounterProtocol
from moegauge.records.observation import ArmName

PROGRAM = "moegauge.jobs.gate_arm"
"""Module that runs whole cycles of one arm and nothing else."""


@dataclass(frozen=True)
class CommandCounters:
    """Profiles an arm of a device by running the registered command."""

    protocol: CounterProtocol
    device: str

    def profile(self, subject: str, arm: ArmName, *, num_cycles: int, cache_control: str) -> bytes:
        """The file that the command wrote.

        Raises:
            DeviceFailure: the command is not there, failed, or wrote no file.
        """
        with tempfile.TemporaryDirectory(prefix="moegauge-profile-") as scratch:
            file = Path(scratch) / "profile"
            words = command_words(self.protocol, file, cache_control=cache_control)
            words += [sys.executable, "-m", PROGRAM, self.device, subject, arm, str(num_cycles)]
            try:
                done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603 - the registered words
            except OSError as error:
                raise DeviceFailure(f"{words[0]}: {error.strerror or error}") from error
            said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
            if done.returncode:
                raise DeviceFailure(f"{words[0]} ended with {done.returncode}: {said[-1] if said else 'no word'}")
            if not file.is_file():
                raise DeviceFailure(f"{words[0]} wrote no profile: {said[-1] if said else 'no word'}")
            return read_bytes(file)


def command_words(protocol: CounterProtocol, file: Path, *, cache_control: str) -> list[str]:
    """The registered command with its places filled in."""
    places = {"{file}": str(file), "{metrics}": ",".join(protocol.metric_names()), "{cache_control}": cache_control}
    return [places.get(word, word) for word in protocol.command]
