"""A profile spec: inputs to measure that a person gives, without a capture. See docs/formats/profile-spec.md."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode
from moegauge.records.schema import Record


class IdsInput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="given_ids"
):
    """Routed ids that a person gives: what runs, but no ExactInput, since no kernel in serving ran on them.

    Attributes:
        topk_ids: [rows, top_k] logical expert ids, -1 = skipped slot; every layer runs the same.
    """

    topk_ids: tuple[tuple[int, ...], ...]


class PopularityInput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="given_popularity"
):
    """A popularity that a person gives, and how rows are drawn from it; every layer draws its own.

    Attributes:
        popularity: [num_experts] counts, or ``uniform`` (the same count for every expert).
        rows: executed rows. sampler, seed: what draws them.
    """

    popularity: Literal["uniform"] | tuple[int, ...]
    rows: int
    sampler: str
    seed: int


class ProfileSpec(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank of a model and the inputs it is to be measured on. The kernel kind is that of the runner.

    Attributes:
        model: dimensions. numeric_format: dtype name.
        num_layers: MoE layers, numbered from 0; every input runs in each of them.
        launch_mode: how to launch where the request does not say otherwise.
        tp_size, ep_size, dp_size: None where nobody says.
        num_local_experts: experts the rank owns. expert_map: see RankIdentity; None where it owns all.
        inputs: input i runs as iteration i.
    """

    kind: ClassVar[str] = "profile-spec"
    version: ClassVar[int] = 1

    model: ModelShape
    numeric_format: str
    num_layers: int
    launch_mode: LaunchMode
    tp_size: int | None
    ep_size: int | None
    dp_size: int | None
    num_local_experts: int
    expert_map: tuple[int, ...] | None
    inputs: tuple[IdsInput | PopularityInput, ...]
