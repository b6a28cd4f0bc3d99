"""Which served invocations are compared: a few of each stratum of executed rows and active experts."""

from __future__ import annotations

from collections.abc import Sequence

from moegauge.records.kernel_compare import Invocation, ServedStratum


def stratum_name(executed_rows: int, active_experts: int) -> str:
    """Stratum of an invocation: rows and active experts, each between two powers of two."""
    return f"rows {_octave(executed_rows)}, experts {_octave(active_experts)}"


def _octave(number: int) -> str:
    if number < 2:
        return str(number)
    low = 1 << (number.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def served_strata(invocations: Sequence[Invocation]) -> tuple[ServedStratum, ...]:
    """How often each stratum was served, the one with the fewest rows first."""
    num: dict[str, int] = {}
    for one in sorted(invocations, key=_order):
        num[one.stratum] = num.get(one.stratum, 0) + 1
    return tuple(ServedStratum(name=name, num_served=count) for name, count in num.items())


def chosen(invocations: Sequence[Invocation], per_stratum: int) -> tuple[Invocation, ...]:
    """Up to so many of each stratum, evenly spread over it in order of rows, experts, iteration and layer."""
    members: dict[str, list[Invocation]] = {}
    for one in sorted(invocations, key=_order):
        members.setdefault(one.stratum, []).append(one)
    return tuple(one for group in members.values() for one in _spread(group, per_stratum))


def _spread(group: list[Invocation], num: int) -> list[Invocation]:
    if len(group) <= num:
        return group
    return [group[(2 * index + 1) * len(group) // (2 * num)] for index in range(num)]


def _order(one: Invocation) -> tuple[int, ...]:
    return one.executed_rows, one.active_experts, one.iteration, one.layer, one.rank
