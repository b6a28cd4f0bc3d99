"""Counter rules of a registration: metric names, formulas, how launches are put together, and limits.

How an arm of two launches becomes one figure decides the verdict, so it is registered: bytes are added, percentages
are a mean weighted by time, or whatever the registration says.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from moegauge.records.ratio import parse_ratio

OverLaunches = Literal["sum_per_cycle", "weighted_mean", "mean", "max"]
Limit = Literal["at_most_ratio", "at_most_rise", "at_most_fall", "equal", "at_most"]


class Quantity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of an arm, computed from the metrics of its launches.

    A launch has the sum of ``metrics``, divided by the sum of ``divided_by`` where that is not empty and multiplied
    by ``scale``. ``over_launches`` puts the launches of an arm together; ``weight`` is the metric a weighted mean
    weighs with.

    Attributes:
        unit: unit that the profiler's file has to state for every metric of the sum; empty for none.
    """

    name: str
    metrics: tuple[str, ...]
    unit: str
    over_launches: OverLaunches
    divided_by: tuple[str, ...] = ()
    scale: str = "1"
    weight: str | None = None

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError(f"{self.name}: a quantity of no metric")
        if (self.over_launches == "weighted_mean") != (self.weight is not None):
            raise ValueError(f"{self.name}: a weighted mean, and no other, names its weight")
        parse_ratio(self.scale)

    def metric_names(self) -> tuple[str, ...]:
        """Every metric that the quantity reads, each once."""
        weight = () if self.weight is None else (self.weight,)
        return tuple(dict.fromkeys((*self.metrics, *self.divided_by, *weight)))


class CounterRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit on one quantity, for both matched pairs and for the aggregate.

    ``at_most_ratio``: candidate <= limit x incumbent (an incumbent of 0 asks for a candidate of 0).
    ``at_most_rise``: candidate - incumbent <= limit. ``at_most_fall``: incumbent - candidate <= limit.
    ``equal`` and ``at_most``: of the candidate alone.
    """

    quantity: str
    rule: Limit
    limit: str

    def __post_init__(self) -> None:
        parse_ratio(self.limit)


class CounterProtocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counter phase of every subject: arms A1, B1, B2, A2.

    Attributes:
        reader: format of the profiler's file: ``ncu``, ``unitrace`` or ``torch_profiler``.
        cache_control: what the profiler does to caches between launches, as its own option names it.
        discarded_cycles: first cycles of an arm that count nowhere. num_cycles: cycles that count.
        quantities, rules: at least one each.
        zero_metrics: metrics that are 0 for every launch that counts, else the evidence is invalid.
        ignored_kernels: kernels a profile may hold besides those of the arm.
        command: words of a profiler's command line, behind which the runner puts the program that runs an arm;
            ``{file}``, ``{metrics}`` and ``{cache_control}`` stand for themselves as whole words. Empty where the
            lane's code has a profiler of its own.
    """

    reader: Literal["ncu", "unitrace", "torch_profiler"]
    cache_control: str
    discarded_cycles: int
    num_cycles: int
    quantities: tuple[Quantity, ...]
    rules: tuple[CounterRule, ...]
    zero_metrics: tuple[str, ...] = ()
    ignored_kernels: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.discarded_cycles < 0 or self.num_cycles < 1:
            raise ValueError("num_cycles: at least 1; discarded_cycles: at least 0")
        if not self.rules:
            raise ValueError("rules: an empty set of counter rules would pass anything")
        missing = [place for place in ("{file}", "{metrics}", "{cache_control}") if place not in self.command]
        if self.command and missing:
            raise ValueError(f"command: {missing[0]} has to stand in it, as a word of its own")
        names = [one.name for one in self.quantities]
        if len(set(names)) != len(names):
            raise ValueError("quantities: each name once")
        unknown = [rule.quantity for rule in self.rules if rule.quantity not in names]
        if unknown:
            raise ValueError(f"rules: no quantity {unknown[0]!r}")

    def metric_names(self) -> tuple[str, ...]:
        """Every metric that a profile has to hold, each once."""
        found = [name for one in self.quantities for name in one.metric_names()]
        return tuple(dict.fromkeys((*found, *self.zero_metrics)))
