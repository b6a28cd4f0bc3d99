"""What a parent and the process of one rank say to each other: msgspec records as bytes, one answer to each request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from moegauge import errors
from moegauge.adapters.runners.work import RunCondition, Work
from moegauge.jobs.profile_specs import Spec


class SentWork(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A work, its arrays as little-endian bytes, and the digest that its routed ids have."""

    iteration: int
    layer: int
    rank: int
    top_k: int
    topk_ids: bytes
    topk_weights: bytes | None
    expert_map: bytes | None
    input_digest: str

    def work(self) -> Work:
        """The work again, with arrays of its own."""
        return Work(
            iteration=self.iteration,
            layer=self.layer,
            rank=self.rank,
            topk_ids=np.frombuffer(self.topk_ids, dtype="<i4").reshape(-1, self.top_k).copy(),
            topk_weights=None
            if self.topk_weights is None
            else np.frombuffer(self.topk_weights, dtype="<f4").reshape(-1, self.top_k).copy(),
            expert_map=None if self.expert_map is None else np.frombuffer(self.expert_map, dtype="<i4").copy(),
        )


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Under which conditions would these works be measured? Answered by Described."""

    condition: RunCondition
    works: tuple[SentWork, ...]


class Check(msgspec.Struct, frozen=True, tag=True):
    """Hold the output of one work against float64. Answered by Passed."""

    work: SentWork


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Run these works once, together with the other ranks. Answered by Measured.

    Attributes:
        places: (iteration, layer) of the works of all ranks, in order; each is a step of the start line.
        draw: hidden states of the check afterwards.
    """

    condition: RunCondition
    works: tuple[SentWork, ...]
    places: tuple[tuple[int, int], ...]
    draw: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The runner is made. The first thing a process says, unless it failed."""

    name: str
    kernel_kind: str
    works_at_once: int


class Described(msgspec.Struct, frozen=True, tag=True):
    """Conditions of all works, and the digest of the kernel configuration of each."""

    facts: dict[str, str]
    config_digests: tuple[str | None, ...]


class Passed(msgspec.Struct, frozen=True, tag=True):
    """The output was right."""


class Measured(msgspec.Struct, frozen=True, tag=True):
    """Times of the works, in their order, checked afterwards.

    Attributes:
        columns: of each work, see adapters.profile_db.Sample. kernel_names: likewise.
        before, after: surroundings. instruments: ns that two instruments give for the whole, by name.
    """

    columns: tuple[dict[str, int], ...]
    kernel_names: tuple[tuple[str, ...], ...]
    before: dict[str, str]
    after: dict[str, str]
    instruments: dict[str, int]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The kernel failed: a RowStatus, and the original text."""

    status: str
    text: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A MoegaugeError by its parts.

    Attributes:
        wrong_output: whether what was timed turned out to be wrong.
    """

    code: str
    where: str
    expected: str
    found: str
    remedy: str
    wrong_output: bool


Request = Describe | Check | Measure
Reply = Ready | Described | Passed | Measured | Failed | Refused

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def sent(specs: Sequence[Spec]) -> tuple[SentWork, ...]:
    """What the process of a rank needs of some specs."""
    return tuple(
        SentWork(
            iteration=spec.iteration,
            layer=spec.layer,
            rank=spec.rank,
            top_k=spec.topk_ids.shape[1],
            topk_ids=spec.topk_ids.astype("<i4").tobytes(),
            topk_weights=None if spec.topk_weights is None else spec.topk_weights.astype("<f4").tobytes(),
            expert_map=None if spec.expert_map is None else spec.expert_map.astype("<i4").tobytes(),
            input_digest=spec.match.input_digest,
        )
        for spec in specs
    )


def refusal(error: errors.MoegaugeError, *, wrong_output: bool = False) -> Refused:
    """An error as it is sent."""
    return Refused(**error.as_dict(), wrong_output=wrong_output)


def error_of(refused: Refused) -> errors.MoegaugeError:
    """The error that was sent."""
    kinds: list[type[errors.MoegaugeError]] = [errors.MisuseError, *errors.EvidenceError.__subclasses__()]
    return {kind.code: kind for kind in kinds}[refused.code](
        where=refused.where, expected=refused.expected, found=refused.found, remedy=refused.remedy
    )
