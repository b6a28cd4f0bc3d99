"""What was measured: model shape, kernel, topology."""

from __future__ import annotations

import msgspec


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dimensions a fused MoE kernel sees.

    Attributes:
        hidden_size: width of the hidden states.
        intermediate_size: width of one expert's intermediate activation (before any tensor-parallel split).
        num_experts: logical experts of a layer, over all ranks.
        top_k: experts a token is routed to.
    """

    hidden_size: int
    intermediate_size: int
    num_experts: int
    top_k: int

    def __post_init__(self) -> None:
        for name in ("hidden_size", "intermediate_size", "num_experts", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} exceeds num_experts {self.num_experts}")


class KernelIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subject: one registered kernel kind, its numeric format and its measured boundary."""

    kind: str
    backend: str
    numeric_format: str
    boundary: tuple[str, ...]


class RankIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank as the capture saw it.

    Attributes:
        rank: number of the rank, from 0.
        recorded: whether its trace and routed rows are in the capture.
        why_missing: the reason where it is not recorded, else None.
        device: device index in its trace, None where not recorded.
        device_uuid: physical identity, None where not recorded.
        num_local_experts: experts the rank owns.
        expert_map: [num_experts] local index of each logical expert, -1 where another rank owns it; None where
            the rank owns all experts.
    """

    rank: int
    recorded: bool
    why_missing: str | None = None
    device: int | None = None
    device_uuid: str | None = None
    num_local_experts: int | None = None
    expert_map: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.recorded == (self.why_missing is not None):
            raise ValueError("a rank that is not recorded says why, one that is recorded does not")


class Topology(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the model is spread. A size that was not recorded is None, never 1.

    ``routed_scope`` says what one rank's routed rows cover: ``global`` (every rank holds the same rows of the
    whole group) or ``local`` (each rank holds its own tokens only).
    """

    world_size: int
    tp_size: int | None
    ep_size: int | None
    dp_size: int | None
    routed_scope: str
    ranks: tuple[RankIdentity, ...]

    def __post_init__(self) -> None:
        if self.routed_scope not in {"global", "local"}:
            raise ValueError(f"routed_scope is global or local, not {self.routed_scope!r}")
        if [rank.rank for rank in self.ranks] != list(range(self.world_size)):
            raise ValueError(f"ranks must be exactly 0..{self.world_size - 1}")
