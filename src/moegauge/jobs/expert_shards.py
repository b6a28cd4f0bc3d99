"""Inputs of expert-parallel ranks that were never served: those of a one-rank capture, derived rank by rank.

Under tensor and expert parallelism every rank of a group gets the same routed rows and runs the experts it owns. So
what each rank of such a group would have executed follows from what one rank with all experts did execute. That is a
derivation and not a recording: such inputs have types of their own, which no lookup of a served rank finds.
"""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.digest import expert_map_digest
from moegauge.jobs.profile_specs import InputChoice, InputSource, Spec, SpecSource

_DERIVED = re.compile(r"(?P<type>.+)_derived_ep(?P<ranks>[1-9][0-9]{0,8})\Z")


def derived_type(input_type: str, num_ranks: int) -> str:
    """Name of an input that is derived for the ranks of a group."""
    return f"{input_type}_derived_ep{num_ranks}"


def served_type(input_type: str) -> tuple[str, int | None]:
    """The input that a derived one was made from and its number of ranks; None where it is not derived."""
    found = _DERIVED.match(input_type)
    return (input_type, None) if found is None else (found["type"], int(found["ranks"]))


def linear_expert_map(rank: int, num_ranks: int, num_experts: int) -> NDArray[np.int32]:
    """Local index of each expert on a rank, -1 where another owns it: int32 [num_experts].

    Ranks own consecutive experts; where these do not come out even, the first ranks own one more. That is what vLLM
    calls linear placement (vllm/model_executor/layers/fused_moe, determine_expert_map, 0.25.1).
    """
    shares = np.array_split(np.arange(num_experts), num_ranks)
    found = np.full(num_experts, -1, dtype=np.int32)
    found[shares[rank]] = np.arange(len(shares[rank]), dtype=np.int32)
    return found


def ranks_of(served: SpecSource, num_ranks: int | None) -> InputSource:
    """Inputs of a capture as they are (None), or derived for the ranks of a group.

    Raises:
        MisuseError: see ShardedSource.
    """
    return served if num_ranks is None else ShardedSource(served, num_ranks)


class ShardedSource:
    """Specs of the ranks of a group, derived from a capture of one rank; an InputSource.

    Raises:
        MisuseError: the capture has several ranks, or there are not as many experts as ranks.
    """

    spec = None
    num_parts = 1

    def __init__(self, served: SpecSource, num_ranks: int) -> None:
        experts = served.model.num_experts
        if served.num_ranks != 1 or served.ranks.get(0) != experts:
            raise _refusal("a capture of one rank with all experts", f"{served.num_ranks} ranks")
        if not 2 <= num_ranks <= experts:
            raise _refusal(f"2 to {experts} ranks (the model's experts)", str(num_ranks))
        self._served, self.num_ranks = served, num_ranks
        self.where, self.capture_digest = served.where, served.capture_digest
        self.model, self.numeric_format, self.layers = served.model, served.numeric_format, served.layers
        self.expert_maps = {rank: linear_expert_map(rank, num_ranks, experts) for rank in range(num_ranks)}
        self.ranks = {rank: int((one >= 0).sum()) for rank, one in self.expert_maps.items()}

    def specs(self, choice: InputChoice) -> list[Spec]:
        """Specs of every served invocation on every rank, ordered by rank, iteration, layer.

        Raises:
            MisuseError: an unknown input type. Inconsistent: a popularity that cannot be rebuilt.
        """
        served = self._served.specs(choice)
        return [self._on_rank(spec, rank) for rank in self.expert_maps for spec in served]

    def _on_rank(self, spec: Spec, rank: int) -> Spec:
        subject = msgspec.structs.replace(
            spec.match.subject,
            tp_size=self.num_ranks,
            ep_size=self.num_ranks,
            num_local_experts=self.ranks[rank],
            expert_map_digest=expert_map_digest(tuple(self.expert_maps[rank].tolist())),
        )
        input_type = derived_type(spec.match.input_type, self.num_ranks)
        match = msgspec.structs.replace(spec.match, subject=subject, input_type=input_type)
        return replace(spec, rank=rank, match=match, expert_map=self.expert_maps[rank])


def _refusal(expected: str, found: str) -> errors.MisuseError:
    remedy = "Derive ranks from a capture of one GPU; moegauge capture show says what a capture holds."
    return errors.MisuseError(where="--expert-parallel", expected=expected, found=found, remedy=remedy)
