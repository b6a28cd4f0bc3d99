"""compare.json: an old and a new implementation on the same captured inputs. See docs/formats/compare-report.md."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from moegauge.records.decision import Reason, Status
from moegauge.records.observation import Mismatch
from moegauge.records.schema import Record


class Side(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One implementation.

    Attributes:
        name: as given: a registered runner, or ``pkg.module:function``.
        code_digest: of the source file that holds it; None where it has none.
    """

    name: str
    code_digest: str | None


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was decided before anything ran.

    Attributes:
        margin_ratio: how much slower counts as not worse (0.02: up to 2 %). level: of every interval.
        bound_ratio: largest error against float64 that passes; None where only equal bits pass.
        norm: how that error is measured.
        num_blocks: A-B-B-A blocks of every invocation. calls_per_arm: calls of each arm of a block.
        per_stratum: invocations measured of each stratum. max_rows: larger invocations were left out; None for none.
        seed: of weights and hidden states.
    """

    margin_ratio: float
    level: float
    bound_ratio: float | None
    norm: str
    num_blocks: int
    calls_per_arm: int
    per_stratum: int
    max_rows: int | None
    seed: int


class Invocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One served rank invocation that was compared.

    Attributes:
        iteration, layer, rank: which. stratum: its stratum. input_digest: of its routed ids.
        executed_rows: rows. active_experts: experts with a row. max_expert_rows: rows of the most loaded one.
    """

    iteration: int
    layer: int
    rank: int
    stratum: str
    input_digest: str
    executed_rows: int
    active_experts: int
    max_expert_rows: int


class ServedStratum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often serving ran a stratum; its weight."""

    name: str
    num_served: int


class SideBits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one side computed for one invocation.

    Attributes:
        output_digest, again_digest: words of two calls on the same input.
        in_batch_digest, alone_digest: words of the probed tokens, out of the batch and each in a call of its own.
        error_ratio: error against float64; None where it is not finite. bias_ratio: mean signed error over the root
            mean square of the reference. worst_token: row of the largest error. worst_token_ratio: that error.
    """

    output_digest: str
    again_digest: str
    in_batch_digest: str
    alone_digest: str
    error_ratio: float | None
    bias_ratio: float | None
    worst_token: int
    worst_token_ratio: float | None


class BitsObservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Both sides on one invocation. ``mismatch``: where head's words differ from base's; None where they do not.

    ``changed_inputs``: names of inputs that a side left other than it found them.
    """

    base: SideBits
    head: SideBits
    mismatch: Mismatch | None
    changed_inputs: tuple[str, ...]


class CompareBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One A-B-B-A block of one invocation: times in ns of every call of base, head, head, base."""

    a1_ns: tuple[int, ...]
    b1_ns: tuple[int, ...]
    b2_ns: tuple[int, ...]
    a2_ns: tuple[int, ...]


class Raw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was observed; everything in :class:`Result` follows from it and the options.

    Attributes:
        served: every stratum that was eligible. num_left_out: served rank invocations that were not (too many rows).
        invocations: what was compared. bits: one an invocation.
        blocks: for each block, one an invocation; empty where exactness had already decided.
    """

    served: tuple[ServedStratum, ...]
    num_left_out: int
    invocations: tuple[Invocation, ...]
    bits: tuple[BitsObservation, ...]
    blocks: tuple[tuple[CompareBlock, ...], ...]

    def __post_init__(self) -> None:
        wanted = len(self.invocations)
        if len(self.bits) != wanted or any(len(block) != wanted for block in self.blocks):
            raise ValueError(f"bits and blocks do not hold one entry for each of {wanted} invocations")


class Exactness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The classes, kept apart. None of ``within_bound``: no bound was declared."""

    bit_exact: bool
    base_repeatable: bool
    head_repeatable: bool
    base_batch_invariant: bool
    head_batch_invariant: bool
    within_bound: bool | None


class TimeRatio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Head's time over base's: below 1 is faster.

    Attributes:
        ratio: mean over blocks. low_ratio, high_ratio: its interval. num_wins: blocks in which head was faster.
    """

    ratio: float
    low_ratio: float
    high_ratio: float
    num_wins: int
    num_blocks: int


class StratumTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time of one stratum, and its share of the served invocations that were eligible."""

    name: str
    share_ratio: float
    num_measured: int
    time: TimeRatio


class Loss(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An invocation on which head was slower: its own interval lies above 1. ``index``: into the invocations."""

    index: int
    time: TimeRatio


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows.

    Attributes:
        status: MATCH: exact (or inside the bound) and not worse; DIVERGED: not; INCONCLUSIVE: cannot be judged.
        reason: why. exactness: the classes.
        time: served-weighted; None where it was not judged. strata, losses: in parts; empty likewise.
    """

    status: Status
    reason: Reason
    exactness: Exactness
    time: TimeRatio | None
    strata: tuple[StratumTime, ...]
    losses: tuple[Loss, ...]


class CompareReport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of a compare folder.

    Attributes:
        tool_version: moegauge version. preregistered: always false. capture_name, capture_digest: of the inputs.
        base, head: the sides. options: decided before. conditions: device, versions, how time was taken.
        raw: observations. result: derived from them.
    """

    kind: ClassVar[str] = "compare-report"
    version: ClassVar[int] = 1

    tool_version: str
    preregistered: bool
    capture_name: str
    capture_digest: str
    base: Side
    head: Side
    options: Options
    conditions: dict[str, str]
    raw: Raw
    result: Result
