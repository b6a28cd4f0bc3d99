"""What to measure: where specs come from, and those of a capture: one a rank invocation, exact or rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.profile_db import Artifact
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.evidence.capture_tables import ROUTED
from moegauge.evidence.digest import expert_map_digest, record_digest, routed_ids_digest
from moegauge.kernels.registry import numeric_format_in
from moegauge.records.identity import ModelShape, RankIdentity
from moegauge.records.profile import InputLabel, MatchKey, Subject
from moegauge.records.workload import ExactInput, FullRunPopularity, IterationPopularity
from moegauge.routing.reconstruction import full_run_popularity, iteration_popularity, rebuild

EXACT = "exact"
ITERATION = "iteration_popularity"
FULL_RUN = "full_run_popularity"
UNPADDED = "exact_without_padding"
INPUT_TYPES = (EXACT, ITERATION, FULL_RUN, UNPADDED)
"""Inputs of a capture."""
GIVEN_IDS = "given_ids"
GIVEN_POPULARITY = "given_popularity"
GIVEN = "given"
"""Choice of the inputs that a spec gives, each of its own type."""


@dataclass(frozen=True, kw_only=True)
class InputChoice:
    """Which representation, and how it is drawn (sampler, seed and padding mean nothing for an exact input)."""

    type: str
    sampler: str = "counts_exact"
    seed: int = 0
    padding: str = "captured"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One rank invocation to measure or to look up.

    Attributes:
        iteration, layer, rank: which invocation it stands for.
        match: key that selects rows. label: how the input came to be.
        topk_ids: int32 [executed_rows, top_k]. topk_weights: float32 or None. expert_map: int32 or None.
        served_launch_mode: eager, graph or None where not recorded.
    """

    iteration: int
    layer: int
    rank: int
    match: MatchKey
    label: InputLabel
    topk_ids: NDArray[np.int32]
    topk_weights: NDArray[np.float32] | None
    expert_map: NDArray[np.int32] | None
    served_launch_mode: str | None


class InputSource(Protocol):
    """Where inputs come from: a capture, or a spec that a person gave. What measuring needs of either."""

    @property
    def where(self) -> str:
        """Its place, for messages."""

    @property
    def capture_digest(self) -> str | None:
        """Digest of the capture's raw files; None where there is no capture."""

    @property
    def spec(self) -> Artifact | None:
        """The spec, to be kept beside the passes; None where there is a capture."""

    @property
    def model(self) -> ModelShape:
        """Dimensions."""

    @property
    def numeric_format(self) -> str:
        """Dtype name."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the MoE layers."""

    @property
    def ranks(self) -> Mapping[int, int]:
        """Experts of each rank whose inputs are there, by rank."""

    @property
    def num_ranks(self) -> int:
        """Ranks that an invocation has, whether or not their inputs are there."""

    @property
    def num_parts(self) -> int:
        """Ranks over which each expert's intermediate activation is split; 1 where each rank has whole experts."""

    def specs(self, choice: InputChoice) -> list[Spec]:
        """Every rank invocation of one representation."""


class SpecSource:
    """Specs of a capture; an InputSource. Popularities and exact inputs are read once and kept."""

    spec = None

    def __init__(self, capture: CaptureFolder, *, subject_kind: tuple[str, str] | None = None) -> None:
        self.capture = capture
        kernel = capture.record.kernel
        self.kernel_kind, self.backend = subject_kind or (kernel.kind, kernel.backend)
        self.where, self.numeric_format = str(capture.path), numeric_format_in(self.kernel_kind, kernel.numeric_format)
        self.capture_digest, self.model, self.layers = (
            capture.raw_digest,
            capture.record.model,
            capture.record.moe_layers,
        )
        ranks = capture.record.topology.ranks
        self.num_ranks = len(ranks)
        self.ranks = {rank.rank: rank.num_local_experts for rank in ranks if rank.num_local_experts is not None}
        whole = any(local < self.model.num_experts for local in self.ranks.values())
        self.num_parts = 1 if whole else capture.record.topology.tp_size or 1

    @cached_property
    def exact_inputs(self) -> dict[tuple[int, int, int], ExactInput]:
        """Exact input of every rank invocation whose rows were recorded in full, by (iteration, layer, rank)."""
        record = self.capture.record
        maps = {
            rank.rank: None if rank.expert_map is None else np.array(rank.expert_map, dtype=np.int32)
            for rank in record.topology.ranks
        }
        written = self.capture.invocations.filter((pl.col("routed_status") == ROUTED) & (pl.col("executed_rows") > 0))
        logical = self.capture.iterations.select("iteration", "rank", "logical_tokens")
        written = written.join(logical, on=["iteration", "rank"]).sort("rank", "iteration", "layer")
        table = self.capture.routed_inputs.sort("rank", "iteration", "layer", "row")
        ids = table["topk_ids"].to_numpy()
        weights = _weights(table["topk_weights"], record.model.top_k)
        starts = table.with_row_index("at").group_by("iteration", "layer", "rank").agg(pl.col("at").min(), pl.len())
        found = written.join(starts, on=["iteration", "layer", "rank"], maintain_order="left")
        columns = ("iteration", "layer", "rank", "at", "len", "logical_tokens", "weights_recorded", "executed_rows")
        return {
            (iteration, layer, rank): ExactInput(
                iteration=iteration,
                layer=layer,
                rank=rank,
                topk_ids=np.ascontiguousarray(ids[at : at + length]),
                topk_weights=np.ascontiguousarray(weights[at : at + length]) if has_weights else None,
                num_logical_rows=logical_rows if logical_rows is not None else executed,
                expert_map=maps[rank],
            )
            for iteration, layer, rank, at, length, logical_rows, has_weights, executed in found.select(
                columns
            ).iter_rows()
        }

    @cached_property
    def iteration_popularities(self) -> dict[tuple[int, int, int], IterationPopularity]:
        """Popularity of every exact input, by (iteration, layer, rank)."""
        num_experts = self.capture.record.model.num_experts
        return {key: iteration_popularity(one, num_experts) for key, one in self.exact_inputs.items()}

    @cached_property
    def full_run_popularities(self) -> dict[tuple[int, int], FullRunPopularity]:
        """Popularity over the whole capture, by (layer, rank)."""
        groups: dict[tuple[int, int], list[IterationPopularity]] = {}
        for (_, layer, rank), one in sorted(self.iteration_popularities.items()):
            groups.setdefault((layer, rank), []).append(one)
        return {key: full_run_popularity(group) for key, group in groups.items()}

    def specs(self, choice: InputChoice) -> list[Spec]:
        """Specs of every invocation with an exact input, ordered by rank, iteration, layer.

        Raises:
            MisuseError: an unknown input type. Inconsistent: a popularity that cannot be rebuilt.
        """
        if choice.type not in INPUT_TYPES:
            raise errors.MisuseError(
                where="--input", expected=", ".join(INPUT_TYPES), found=choice.type, remedy="Choose one of them."
            )
        modes = {
            (iteration, rank): mode
            for iteration, rank, mode in self.capture.iterations.select("iteration", "rank", "launch_mode").iter_rows()
        }
        ranks = {rank.rank: rank for rank in self.capture.record.topology.ranks}
        return [
            self._spec(exact, choice, ranks[exact.rank], modes[(exact.iteration, exact.rank)])
            for _, exact in sorted(self.exact_inputs.items(), key=lambda item: (item[0][2], item[0][0], item[0][1]))
            if choice.type != UNPADDED or 0 < exact.num_logical_rows < len(exact.topk_ids)
        ]

    def _spec(self, exact: ExactInput, choice: InputChoice, rank: RankIdentity, mode: str | None) -> Spec:
        ids, label = self._ids(exact, choice)
        match = MatchKey(
            subject=self._subject(rank),
            executed_rows=len(ids),
            input_type=choice.type,
            input_digest=routed_ids_digest(ids),
        )
        return Spec(
            iteration=exact.iteration,
            layer=exact.layer,
            rank=exact.rank,
            match=match,
            label=label,
            topk_ids=ids,
            topk_weights=None if exact.topk_weights is None else exact.topk_weights[: len(ids)],
            expert_map=exact.expert_map,
            served_launch_mode=mode,
        )

    def _ids(self, exact: ExactInput, choice: InputChoice) -> tuple[NDArray[np.int32], InputLabel]:
        if choice.type == EXACT:
            return exact.topk_ids, InputLabel()
        if choice.type == UNPADDED:
            return np.ascontiguousarray(exact.topk_ids[: exact.num_logical_rows]), InputLabel(padding="left out")
        popularity: IterationPopularity | FullRunPopularity
        if choice.type == ITERATION:
            popularity = self.iteration_popularities[(exact.iteration, exact.layer, exact.rank)]
        else:
            popularity = self.full_run_popularities[(exact.layer, exact.rank)]
        rebuilt = rebuild(popularity, exact, sampler=choice.sampler, seed=choice.seed, padding=choice.padding)
        label = InputLabel(
            window=rebuilt.window,
            sampler=rebuilt.sampler,
            version=rebuilt.version,
            seed=rebuilt.seed,
            padding=rebuilt.padding,
            popularity_digest=rebuilt.popularity_digest,
        )
        return rebuilt.topk_ids, label

    def _subject(self, rank: RankIdentity) -> Subject:
        return subject_of(self.capture, rank, kernel_kind=self.kernel_kind, backend=self.backend)


def subject_of(capture: CaptureFolder, rank: RankIdentity, *, kernel_kind: str, backend: str) -> Subject:
    """The kernel on one rank of a capture.

    Raises:
        MisuseError: the rank was not recorded.
    """
    if rank.num_local_experts is None:
        raise errors.MisuseError(
            where=f"rank {rank.rank}",
            expected="a recorded rank",
            found="one that is missing",
            remedy="Record all ranks.",
        )
    record = capture.record
    return Subject(
        kernel_kind=kernel_kind,
        backend=backend,
        numeric_format=numeric_format_in(kernel_kind, record.kernel.numeric_format),
        shape=record.model,
        tp_size=record.topology.tp_size,
        ep_size=record.topology.ep_size,
        dp_size=record.topology.dp_size,
        num_local_experts=rank.num_local_experts,
        expert_map_digest=expert_map_digest(rank.expert_map),
    )


def _weights(column: pl.Series, top_k: int) -> NDArray[np.float32]:
    """Weights as float32 [rows, top_k], NaN where they were not recorded."""
    filled = column.fill_null(pl.Series([[float("nan")] * top_k], dtype=column.dtype))
    return np.asarray(filled.to_numpy(), dtype=np.float32).reshape(-1, top_k)


def exact_match(capture: CaptureFolder, rank: RankIdentity, executed_rows: int, routed_digest: str) -> MatchKey:
    """Key of an exact input of a capture, from its digest alone.

    Args:
        capture: the capture. rank: the rank. executed_rows, routed_digest: of the invocation.
    """
    kernel = capture.record.kernel
    return MatchKey(
        subject=subject_of(capture, rank, kernel_kind=kernel.kind, backend=kernel.backend),
        executed_rows=executed_rows,
        input_type=EXACT,
        input_digest=routed_digest,
    )


def inputs_digest(specs: Sequence[Spec]) -> str:
    """One digest over the inputs of many specs, in order."""
    return record_digest([spec.match.input_digest for spec in specs])
