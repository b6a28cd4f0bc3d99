"""Counter rules: formulas, aggregation over launches, pairs, limits, and profiles that are no evidence."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from lane_builder import registration
from moegauge.gate.counters import CounterTable, counter_failures, quantity_value
from moegauge.records.counter_rules import CounterProtocol, CounterRule, Quantity
from moegauge.records.subject import Subject

F = Fraction


def table(kernels: tuple[str, ...], units: dict[str, str] | None = None, **metrics: tuple[Any, ...]) -> CounterTable:
    columns = {
        name.replace("__", "."): tuple(None if v is None else F(str(v)) for v in values)
        for name, values in metrics.items()
    }
    return CounterTable(kernels, columns, {"bytes.sum": "byte"} if units is None else units)


def case(**changes: Any) -> tuple[CounterProtocol, Subject]:
    found = registration(
        subjects__0__incumbent__launches_per_cycle=2, subjects__0__candidate__launches_per_cycle=1, **changes
    )
    return found.counters, found.subjects[0]


def incumbent(*values: Any) -> CounterTable:
    """One discarded cycle, then two cycles of (scale, add)."""
    return table(("scale", "add") * 3, bytes__sum=(9999, 9999, *values))


def candidate(*values: Any) -> CounterTable:
    return table(("scale_add",) * 3, bytes__sum=(9999, *values))


def profiles(b2: CounterTable | None = None) -> dict[str, CounterTable]:
    return {
        "a1": incumbent(60, 40, 60, 40),
        "b1": candidate(102, 102),
        "b2": candidate(102, 102) if b2 is None else b2,
        "a2": incumbent(60, 40, 60, 40),
    }


def test_bytes_of_a_cycle_are_added_over_its_launches_and_the_limit_is_inclusive() -> None:
    figures, reasons = counter_failures(*case(), profiles())
    assert reasons == []
    assert [(one.pair, one.incumbent, one.candidate) for one in figures] == [
        ("A1B1", "100", "102"),
        ("A2B2", "100", "102"),
        ("aggregate", "100", "102"),
    ]


def test_one_pair_that_fails_is_not_rescued_by_the_aggregate() -> None:
    given = profiles(candidate(103, 102)) | {"b1": candidate(90, 90)}
    figures, reasons = counter_failures(*case(), given)
    assert [one.passed for one in figures] == [True, False, True]
    assert [why.code for why in reasons] == ["COUNTER_RULE_MISSED"]
    assert "A2B2: read_bytes is 100 for the incumbent and 102.5 for the candidate" in reasons[0].sentence


@pytest.mark.parametrize(
    ("rule", "limit", "left", "right", "passes"),
    [
        ("at_most_ratio", "1.02", "0", "0", True),
        ("at_most_ratio", "1.02", "0", "1/1000", False),
        ("at_most_rise", "0.5", "40", "40.5", True),
        ("at_most_rise", "0.5", "40", "40.51", False),
        ("at_most_fall", "0.5", "40", "39.5", True),
        ("at_most_fall", "0.5", "40", "39.49", False),
        ("at_most", "0", "7", "0", True),
        ("at_most", "0", "7", "1", False),
        ("equal", "47", "94", "47", True),
        ("equal", "47", "94", "46", False),
    ],
)
def test_each_limit_and_its_edge(rule: Any, limit: str, left: str, right: str, passes: bool) -> None:
    from moegauge.gate.counters import holds  # noqa: PLC0415 - one name for one table

    assert holds(CounterRule(quantity="q", rule=rule, limit=limit), F(left), F(right)) is passes


def test_a_percentage_of_two_launches_is_a_mean_weighted_by_their_time() -> None:
    quantity = Quantity(name="busy", metrics=("pct",), unit="%", over_launches="weighted_mean", weight="ns")
    found = table(("scale", "add"), pct=(90, 30), ns=(1000, 3000))
    assert quantity_value(quantity, found, num_cycles=1) == 45  # (90 + 3 x 30) / 4


@pytest.mark.parametrize(("over", "value"), [("mean", 60), ("max", 90), ("sum_per_cycle", 120)])
def test_the_registered_aggregation_decides(over: Any, value: int) -> None:
    quantity = Quantity(name="busy", metrics=("pct",), unit="%", over_launches=over)
    assert quantity_value(quantity, table(("scale", "add"), pct=(90, 30)), num_cycles=1) == value


def test_a_formula_adds_metrics_divides_and_scales() -> None:
    quantity = Quantity(
        name="stalled",
        metrics=("a", "b"),
        divided_by=("cycles",),
        scale="100",
        unit="",
        over_launches="mean",
    )
    assert quantity_value(quantity, table(("k",), a=(1,), b=(2,), cycles=(8,)), num_cycles=1) == F("37.5")


def failing(b2: CounterTable, **changes: Any) -> tuple[str, str]:
    figures, reasons = counter_failures(*case(**changes), profiles(b2))
    assert figures == []
    return reasons[0].code, reasons[0].sentence


def test_a_metric_that_is_not_in_the_profile_is_no_evidence() -> None:
    code, sentence = failing(table(("scale_add",) * 3, other=(1, 1, 1)))
    assert (code, "no value of bytes.sum" in sentence) == ("COUNTER_MISSING", True)


def test_a_launch_without_a_value_is_no_evidence_and_never_0() -> None:
    assert failing(candidate(102, None))[0] == "COUNTER_MISSING"


def test_a_profile_without_any_kernel_is_no_evidence() -> None:
    code, sentence = failing(table((), bytes__sum=()))
    assert (code, "no kernel at all" in sentence) == ("PROFILE_INVALID", True)


def test_a_profile_in_which_no_kernel_matches_names_those_that_were_seen() -> None:
    code, sentence = failing(table(("memcpy",) * 3, bytes__sum=(1, 1, 1)))
    assert (code, "no kernel is called scale_add; seen: memcpy" in sentence) == ("PROFILE_INVALID", True)


def test_a_foreign_kernel_is_no_evidence_unless_it_is_registered_as_ignored() -> None:
    foreign = table(("fill", *("scale_add",) * 3), bytes__sum=(5, 9999, 102, 102))
    assert failing(foreign)[0] == "PROFILE_INVALID"
    assert counter_failures(*case(counters__ignored_kernels=["fill"]), profiles(foreign))[1] == []


def test_a_launch_too_few_fails() -> None:
    code, sentence = failing(table(("scale_add",) * 2, bytes__sum=(1, 102)))
    assert (code, "2 launches in the profile; 3 registered" in sentence) == ("LAUNCHES_DIFFER", True)


def test_another_unit_than_registered_is_no_evidence() -> None:
    kilo = table(("scale_add",) * 3, {"bytes.sum": "Kbyte"}, bytes__sum=(1, 1, 1))
    code, sentence = failing(kilo)
    assert (code, "is in 'Kbyte'; 'byte' is registered" in sentence) == ("PROFILE_INVALID", True)


def test_a_metric_that_has_to_be_0_and_is_not_makes_the_profile_invalid() -> None:
    spilled = table(("scale_add",) * 3, bytes__sum=(1, 102, 102), spills=(0, 0, 1))
    clean = {name: _with_zeros(one) for name, one in profiles().items()}
    figures, reasons = counter_failures(*case(counters__zero_metrics=["spills"]), clean | {"b2": spilled})
    assert (figures, [why.code for why in reasons]) == ([], ["PROFILE_INVALID"])
    assert "spills is not 0 in every launch" in reasons[0].sentence


def _with_zeros(one: CounterTable) -> CounterTable:
    return CounterTable(one.kernels, {**one.metrics, "spills": (F(0),) * len(one.kernels)}, one.units)


def test_a_division_by_0_is_no_evidence() -> None:
    quantity = {
        "name": "q",
        "metrics": ["bytes.sum"],
        "divided_by": ["n"],
        "unit": "byte",
        "over_launches": "mean",
    }
    given = {
        name: CounterTable(one.kernels, {**one.metrics, "n": (F(0),) * len(one.kernels)}, one.units)
        for name, one in profiles().items()
    }
    found = case(counters__quantities=[quantity], counters__rules=[{"quantity": "q", "rule": "equal", "limit": "1"}])
    figures, reasons = counter_failures(*found, given)
    assert (figures, [why.code for why in reasons]) == ([], ["PROFILE_INVALID"])


def test_an_arm_without_a_profile_is_no_evidence() -> None:
    given = profiles()
    del given["a2"]
    assert [why.code for why in counter_failures(*case(), given)[1]] == ["OBSERVATION_MISSING"]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("counters__rules", [], "an empty set of counter rules would pass anything"),
        ("counters__rules", [{"quantity": "x", "rule": "equal", "limit": "1"}], "no quantity 'x'"),
        ("counters__rules", [{"quantity": "read_bytes", "rule": "equal", "limit": "1e3"}], "a ratio is a decimal"),
        ("counters__num_cycles", 0, "num_cycles: at least 1"),
    ],
)
def test_counter_rules_that_decide_nothing_are_refused(path: str, value: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        registration(**{path: value})
