"""The ladder report: pairs, rungs, verdict. See docs/formats/ladder-report.md."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from moegauge.records.decision import Reason, Status
from moegauge.records.explanation import Explanation
from moegauge.records.measurement import Origin
from moegauge.records.schema import Record


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of a report."""


class Sides(_Plain, frozen=True, kw_only=True):
    """One integer for each side; None where a side has none."""

    left: int | None
    right: int | None


class Unmatched(_Plain, frozen=True, kw_only=True):
    """Captured work that no comparison covers.

    Attributes:
        side: ``left`` or ``right``.
        what: what kind of work, and which where it is few.
        why: reason code.
        num: how many invocations (or kernels, where ``what`` says so; those do not count towards num_captured).
        ns: their time; None where it was not captured.
    """

    side: str
    what: str
    why: str
    num: int
    ns: int | None


class Selection(_Plain, frozen=True, kw_only=True):
    """Which iteration (and layer) a selected pair is about; both None for a capture-wide pair."""

    iteration: int | None
    layer: int | None


class InputLabel(_Plain, frozen=True, kw_only=True):
    """Which representation fed the right side."""

    type: str
    window: str | None
    sampler: str | None
    version: int | None
    seed: int | None
    digest: str | None


class Links(_Plain, frozen=True, kw_only=True):
    """Where the evidence of a pair lies (paths relative to the report folder) and its digest."""

    capture: str
    input: str
    measurements: str
    report: str


class RankPair(_Plain, frozen=True, kw_only=True):
    """Corresponding ranks. ``identity`` says what ties them: DEVICE_UUID, or RANK_NUMBER (identity unverified)."""

    rank: int
    identity: str
    left_ns: int
    right_ns: int
    diff_ns: int
    relative_ratio: float | None


class Pair(_Plain, frozen=True, kw_only=True):
    """One comparison. diff = right - left; relative = diff / left (None, with a reason, where left is 0).

    A MATCH or DIVERGED pair has an interval; an UNAVAILABLE one has no totals that could be read as complete.
    """

    status: Status
    reason: Reason
    flags: tuple[str, ...]
    left_ns: int | None
    right_ns: int | None
    diff_ns: int | None
    abs_diff_ns: int | None
    relative_ratio: float | None
    interval_ratio: tuple[float, float] | None
    num_passes: int | None
    num_iterations: int
    num_invocations: int
    num_captured_invocations: Sides
    captured_ns: Sides
    lower_bound_ns: Sides
    unmatched: tuple[Unmatched, ...]
    sum_abs_layer_diff_ns: int | None
    num_beyond_invocation_tolerance: int | None
    origin: Origin
    tolerance_ratio: float
    selection: Selection
    corresponding_ranks: tuple[RankPair, ...] | None
    input: InputLabel
    links: Links

    def __post_init__(self) -> None:
        judged = self.status in {Status.MATCH, Status.DIVERGED}
        if judged and (self.interval_ratio is None or self.left_ns is None or self.right_ns is None):
            raise ValueError(f"a pair with status {self.status} needs both times and an interval")
        if None not in {self.left_ns, self.right_ns} and self.diff_ns is None:
            raise ValueError("a pair with both times has a difference")


class Rung(_Plain, frozen=True, kw_only=True):
    """One rung: the worse of its selected and its capture-wide pair."""

    rung: int
    status: Status
    reason: Reason
    flags: tuple[str, ...]
    left: str
    right: str
    isolates: str
    selected: Pair | None
    capture_wide: Pair | None


class Verdict(_Plain, frozen=True, kw_only=True):
    """What the ladder allows to be said.

    Attributes:
        first_divergence: lowest rung that is DIVERGED or flagged CANCELLATION.
        claims_stop_at: lowest rung that is not a MATCH or is flagged CANCELLATION; None where the ladder is intact.
        sentence: the verdict in words.
        cannot_say: statements that the missing pieces make impossible.
    """

    first_divergence: int | None
    claims_stop_at: int | None
    sentence: str
    cannot_say: tuple[str, ...]


class ConditionRow(_Plain, frozen=True, kw_only=True):
    """One condition on both sides: SAME, DIFFERS or NOT_RECORDED (on at least one side)."""

    name: str
    left: str | None
    right: str | None
    verdict: str


class Settings(_Plain, frozen=True, kw_only=True):
    """The choices of the run that decide the verdict."""

    tolerance_ratio: float
    invocation_tolerance_ratio: float
    launch_mode: str
    cache_state: str | None
    select_iteration: int | None
    select_layer: int | None
    sampler: str
    seed: int
    padding: str
    explain: dict[str, str]


class ServedTime(_Plain, frozen=True, kw_only=True):
    """All closed rank invocations of the capture together: busy union, spans, and foreign work inside the spans."""

    busy_ns: int
    span_ns: int
    foreign_ns: int


class EvidenceLink(_Plain, frozen=True, kw_only=True):
    """A piece of evidence: path relative to the report folder, and its digest."""

    path: str
    digest: str


class Evidence(_Plain, frozen=True, kw_only=True):
    """What the report was computed from."""

    capture: EvidenceLink
    measurements: EvidenceLink
    tables: dict[str, str]


class LadderReport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """report.json of a report folder."""

    kind: ClassVar[str] = "ladder"
    version: ClassVar[int] = 1

    tool_version: str
    subject: str
    capture_name: str
    settings: Settings
    verdict: Verdict
    rungs: tuple[Rung, ...]
    conditions: tuple[ConditionRow, ...]
    served: ServedTime
    limits: tuple[str, ...]
    notes: tuple[str, ...]
    explanation: Explanation | None
    evidence: Evidence
