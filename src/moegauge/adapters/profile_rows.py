"""What goes into a profile database and comes out of it: raw files, samples and rows."""

from __future__ import annotations

from dataclasses import dataclass

from moegauge.records.profile import InputLabel, ProfileKey, RowStatus


@dataclass(frozen=True)
class Artifact:
    """A raw file to keep: its name, its bytes, and the digest of its unpacked content."""

    name: str
    data: bytes
    content_digest: str


@dataclass(frozen=True)
class Sample:
    """One measured time.

    Attributes:
        key: key of its row. label: how its input came to be.
        columns: iteration, layer, rank, device, busy_ns, span_ns, foreign_ns, num_kernels.
        kernel_names: kernels seen, in order.
    """

    key: ProfileKey
    label: InputLabel
    columns: dict[str, int]
    kernel_names: tuple[str, ...]


@dataclass(frozen=True)
class ProfileRow:
    """A stored row: one generation of a key."""

    row_id: int
    key: ProfileKey
    label: InputLabel
    generation: int
    status: RowStatus
    error: str | None
