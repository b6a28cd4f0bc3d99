"""What this host remembers of lanes, outside every lane folder: consumed packets and the steps that were taken.

A lane folder can be copied, and its last files deleted. So a packet is consumed here as well, keyed by its digest and
by lane and phase, and every step's digest is kept: a copy cannot run again, and a lane cannot go back to an earlier
step, on the host that took it. A host that never saw a lane remembers nothing of it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moegauge import errors
from moegauge.evidence.lane_folder import write_new
from moegauge.records.lane import Phase
from moegauge.records.packet import ConsumedMarker
from moegauge.records.schema import canonical_bytes


def state_folder(environment: Mapping[str, str]) -> Path:
    """Where host state lies: MOEGAUGE_STATE_DIR, else XDG_STATE_HOME/moegauge, else ~/.local/state/moegauge."""
    if named := environment.get("MOEGAUGE_STATE_DIR"):
        return Path(named)
    if state := environment.get("XDG_STATE_HOME"):
        return Path(state) / "moegauge"
    return Path.home() / ".local" / "state" / "moegauge"


class HostState:
    """Host state below one folder; nothing in it is ever written over or deleted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_consumed(self, packet: str | None, lane_id: str, phase: Phase) -> bool:
        """Whether a packet (None: any), or any packet of the lane's phase, was consumed on this host."""
        by_packet, by_phase = self._markers(packet or "", lane_id, phase)
        return by_phase.exists() or (packet is not None and by_packet.exists())

    def consume(self, marker: ConsumedMarker, lane_id: str) -> None:
        """Consume a packet.

        Raises:
            MisuseError: it was consumed before.
        """
        for path in self._markers(marker.packet, lane_id, marker.phase):
            write_new(path, canonical_bytes(marker))

    def remember(self, lane_id: str, number: int, digest: str) -> None:
        """Remember a step.

        Raises:
            Inconsistent: another step of this number was taken on this host.
        """
        found = self.step_digest(lane_id, number)
        if found is None:
            write_new(self._steps(lane_id) / f"{number:04d}", f"{digest}\n".encode())
        elif found != digest:
            raise errors.Inconsistent(
                where=f"step {number}",
                expected=f"{found}, which this host remembers",
                found=digest,
                remedy="Another step of this number was taken from another copy of the lane; go on with that copy.",
            )

    def step_digest(self, lane_id: str, number: int) -> str | None:
        """Digest of a step as this host remembers it; None where it does not."""
        path = self._steps(lane_id) / f"{number:04d}"
        return path.read_text().strip() if path.is_file() else None

    def lost_steps(self, lane_id: str, digests: Sequence[str]) -> list[str]:
        """One sentence for each remembered step that a lane folder lacks or has otherwise."""
        folder = self._steps(lane_id)
        lines = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.name.isdigit():
                continue
            number = int(path.name)
            remembered = path.read_text().strip()
            if number >= len(digests):
                lines.append(f"step {number}: this host remembers {remembered}; the lane folder does not have it")
            elif digests[number] != remembered:
                lines.append(f"step {number}: this host remembers {remembered}; the lane folder has {digests[number]}")
        return lines

    @contextmanager
    def lock(self, lane_id: str) -> Iterator[None]:
        """Hold a lane for a run; the lock goes with the process.

        Raises:
            MisuseError: another process holds it.
        """
        path = self.folder / "locks" / _hex(lane_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise errors.MisuseError(
                    where="lane",
                    expected="a lane that no other process is running",
                    found="one that is being run now",
                    remedy="Wait for it to end; nothing was changed.",
                ) from error
            yield

    def _markers(self, packet: str, lane_id: str, phase: Phase) -> tuple[Path, Path]:
        consumed = self.folder / "consumed"
        return consumed / f"{_hex(packet)}.json", consumed / f"{_hex(lane_id)}-phase-{phase}.json"

    def _steps(self, lane_id: str) -> Path:
        return self.folder / "steps" / _hex(lane_id)


def _hex(digest: str) -> str:
    return digest.rpartition(":")[2]


def boot_id() -> str:
    """Identity of the running kernel's boot."""
    path = Path("/proc/sys/kernel/random/boot_id")
    if not path.is_file():
        raise errors.MissingFile(
            where=str(path), expected="the boot id of the kernel", found="nothing", remedy="Run on Linux."
        )
    return path.read_text().strip()


def is_writable(folder: Path) -> bool:
    """Whether a folder can be made and written."""
    folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)
