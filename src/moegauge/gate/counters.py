"""Counter rules: the launches of an arm become one figure by the registered formula, and figures are held to limits.

Every rule has to hold for both matched pairs (A1 with B1, A2 with B2) and for the aggregate; a metric that is not in
the profile is invalid evidence and never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from moegauge.records.counter_rules import CounterProtocol, CounterRule, Quantity
from moegauge.records.decision import Reason, reason
from moegauge.records.ratio import parse_ratio, ratio_text
from moegauge.records.subject import Arm, Subject
from moegauge.records.verdict import CounterFigure

ARMS = ("a1", "b1", "b2", "a2")
"""Order of the counter phase."""


class _Pair(NamedTuple):
    name: str
    incumbent: tuple[str, ...]
    candidate: tuple[str, ...]


PAIRS = (
    _Pair("A1B1", ("a1",), ("b1",)),
    _Pair("A2B2", ("a2",), ("b2",)),
    _Pair("aggregate", ("a1", "a2"), ("b1", "b2")),
)
"""What every rule is held against."""


@dataclass(frozen=True)
class CounterTable:
    """Launches of a profile, as columns.

    Attributes:
        kernels: [num_launches] kernel name of each launch, in launch order.
        metrics: [num_launches] exact values by metric name; None where the profile has no value.
        units: unit by metric name, empty where the profile states none.
    """

    kernels: tuple[str, ...]
    metrics: Mapping[str, tuple[Fraction | None, ...]]
    units: Mapping[str, str]

    def rows(self, index: Sequence[int]) -> CounterTable:
        """The launches at some positions."""
        return CounterTable(
            tuple(self.kernels[i] for i in index),
            {name: tuple(values[i] for i in index) for name, values in self.metrics.items()},
            self.units,
        )


class CounterProblem(Exception):
    """A profile that is no evidence, with its reason; caught where the profile is judged, and nowhere else."""

    def __init__(self, why: Reason) -> None:
        self.why = why
        super().__init__(why.sentence)


def counter_failures(
    protocol: CounterProtocol, subject: Subject, profiles: Mapping[str, CounterTable]
) -> tuple[list[CounterFigure], list[Reason]]:
    """Figures of a subject's four arms, and the reasons against: rules missed, or profiles that are no evidence."""
    missing = [arm for arm in ARMS if arm not in profiles]
    if missing:
        return [], [reason("OBSERVATION_MISSING", f"{subject.name}: no profile of arm {arm}.") for arm in missing]
    counted: dict[str, CounterTable] = {}
    reasons: list[Reason] = []
    for arm in ARMS:
        where = f"{subject.name}, {arm.upper()}"
        try:
            counted[arm] = counted_launches(
                protocol, subject.incumbent if arm[0] == "a" else subject.candidate, profiles[arm], where=where
            )
        except CounterProblem as problem:
            reasons.append(problem.why)
    if reasons:
        return [], reasons
    try:
        figures = [_figure(protocol, rule, subject.name, pair, counted) for rule in protocol.rules for pair in PAIRS]
    except CounterProblem as problem:
        return [], [problem.why]
    return figures, [_missed(one) for one in figures if not one.passed]


def counted_launches(protocol: CounterProtocol, arm: Arm, table: CounterTable, *, where: str) -> CounterTable:
    """The launches of an arm that count: its kernels, without the discarded cycles.

    Raises:
        CounterProblem: a foreign kernel, none of the arm's, a wrong number of launches, a metric without value, a
            unit that is not the registered one, or a metric that has to be 0 and is not.
    """
    _check_kernels(protocol, arm, table, where)
    own = table.rows([i for i, name in enumerate(table.kernels) if name in arm.kernels])
    wanted = (protocol.discarded_cycles + protocol.num_cycles) * arm.launches_per_cycle
    if len(own.kernels) != wanted:
        raise _problem("LAUNCHES_DIFFER", f"{where}: {len(own.kernels)} launches in the profile; {wanted} registered.")
    kept = own.rows(range(protocol.discarded_cycles * arm.launches_per_cycle, wanted))
    _check_values(protocol, kept, where)
    return kept


def check_profile(protocol: CounterProtocol, arm: Arm, table: CounterTable, *, where: str) -> None:
    """Hold a profile of any number of launches against kernels, metrics and units.

    Raises:
        CounterProblem: as :func:`counted_launches`, the number of launches aside.
    """
    _check_kernels(protocol, arm, table, where)
    _check_values(protocol, table.rows([i for i, name in enumerate(table.kernels) if name in arm.kernels]), where)


def _check_values(protocol: CounterProtocol, kept: CounterTable, where: str) -> None:
    for name in protocol.metric_names():
        if name not in kept.metrics or None in kept.metrics[name]:
            raise _problem("COUNTER_MISSING", f"{where}: the profile has no value of {name}.")
    for name in protocol.zero_metrics:
        if any(kept.metrics[name]):
            raise _problem("PROFILE_INVALID", f"{where}: {name} is not 0 in every launch.")
    for quantity in protocol.quantities:
        for name in quantity.metrics:
            if kept.units.get(name, "") != quantity.unit:
                found = kept.units.get(name, "")
                raise _problem("PROFILE_INVALID", f"{where}: {name} is in {found!r}; {quantity.unit!r} is registered.")


def _check_kernels(protocol: CounterProtocol, arm: Arm, table: CounterTable, where: str) -> None:
    seen = dict.fromkeys(table.kernels)
    foreign = [name for name in seen if name not in arm.kernels and name not in protocol.ignored_kernels]
    if not seen:
        raise _problem("PROFILE_INVALID", f"{where}: the profile holds no kernel at all.")
    if not any(name in arm.kernels for name in seen):
        wanted = ", ".join(arm.kernels)
        raise _problem("PROFILE_INVALID", f"{where}: no kernel is called {wanted}; seen: {', '.join(seen)}.")
    if foreign:
        raise _problem("PROFILE_INVALID", f"{where}: {foreign[0]} is neither the arm's nor registered as ignored.")


def quantity_value(quantity: Quantity, table: CounterTable, *, num_cycles: int) -> Fraction:
    """One figure of launches that were all found complete.

    Args:
        quantity: the registered formula.
        table: launches that count.
        num_cycles: cycles they make up.

    Raises:
        CounterProblem: a division by 0.
    """
    values = [_launch_value(quantity, table, i) for i in range(len(table.kernels))]
    if quantity.over_launches == "sum_per_cycle":
        return sum(values, Fraction(0)) / num_cycles
    if quantity.over_launches == "max":
        return max(values)
    if quantity.over_launches == "mean":
        return sum(values, Fraction(0)) / len(values)
    weights = [table.metrics[str(quantity.weight)][i] or Fraction(0) for i in range(len(values))]
    if sum(weights) == 0:
        raise _problem("PROFILE_INVALID", f"{quantity.name}: the weights of {quantity.weight} add up to 0.")
    return sum((w * v for w, v in zip(weights, values, strict=True)), Fraction(0)) / sum(weights)


def _launch_value(quantity: Quantity, table: CounterTable, i: int) -> Fraction:
    value = _added(quantity.metrics, table, i) * parse_ratio(quantity.scale)
    if not quantity.divided_by:
        return value
    divisor = _added(quantity.divided_by, table, i)
    if divisor == 0:
        raise _problem("PROFILE_INVALID", f"{quantity.name}: undefined, {' + '.join(quantity.divided_by)} is 0.")
    return value / divisor


def _added(names: Iterable[str], table: CounterTable, i: int) -> Fraction:
    values = [table.metrics[name][i] for name in names]
    return sum((value for value in values if value is not None), Fraction(0))


def _joined(counted: Mapping[str, CounterTable], arms: Sequence[str]) -> CounterTable:
    """Launches of several arms as one table."""
    first, *others = [counted[arm] for arm in arms]
    kernels, metrics = first.kernels, dict(first.metrics)
    for other in others:
        kernels += other.kernels
        metrics = {name: values + other.metrics[name] for name, values in metrics.items() if name in other.metrics}
    return CounterTable(kernels, metrics, first.units)


def _figure(
    protocol: CounterProtocol, rule: CounterRule, subject: str, pair: _Pair, counted: Mapping[str, CounterTable]
) -> CounterFigure:
    quantity = {one.name: one for one in protocol.quantities}[rule.quantity]
    incumbent, candidate = (
        quantity_value(quantity, _joined(counted, arms), num_cycles=len(arms) * protocol.num_cycles)
        for arms in (pair.incumbent, pair.candidate)
    )
    return CounterFigure(
        subject=subject,
        pair=pair.name,
        quantity=rule.quantity,
        rule=rule.rule,
        limit=rule.limit,
        incumbent=ratio_text(incumbent),
        candidate=ratio_text(candidate),
        passed=holds(rule, incumbent, candidate),
    )


def holds(rule: CounterRule, incumbent: Fraction, candidate: Fraction) -> bool:
    """Whether a rule holds; a ratio to an incumbent of 0 holds for a candidate of 0 alone."""
    limit = parse_ratio(rule.limit)
    return {
        "at_most_ratio": candidate <= limit * incumbent,
        "at_most_rise": candidate - incumbent <= limit,
        "at_most_fall": incumbent - candidate <= limit,
        "equal": candidate == limit,
        "at_most": candidate <= limit,
    }[rule.rule]


def _missed(one: CounterFigure) -> Reason:
    incumbent, candidate = float(parse_ratio(one.incumbent)), float(parse_ratio(one.candidate))
    return reason(
        "COUNTER_RULE_MISSED",
        f"{one.subject}, {one.pair}: {one.quantity} is {incumbent:.6g} for the incumbent and {candidate:.6g} for the "
        f"candidate; registered is {one.rule} {one.limit}.",
    )


def _problem(code: str, sentence: str) -> CounterProblem:
    return CounterProblem(reason(code, sentence))
