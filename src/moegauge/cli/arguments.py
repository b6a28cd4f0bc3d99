"""Arguments that several verbs have: their types, NAME=VALUE texts, and lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

from cyclopts import Parameter

from moegauge import errors

_RANGE = re.compile(r"^([0-9]{1,6})(?:-([0-9]{1,6}))?\Z")

Flag = Annotated[bool, Parameter(negative="")]
"""--name, without a --no-name."""

Many = Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)]
"""An option that may be given several times, one value each time."""


def named_values(
    texts: list[str] | None, where: str, *, among: Collection[str] = (), remedy: str = "See --help."
) -> dict[str, str]:
    """Values by name out of NAME=VALUE texts.

    Args:
        texts: as typed. where: the option. among: the names that are known; any name where empty. remedy: of a refusal.

    Raises:
        MisuseError: no such text, a name twice, or one that is not known.
    """
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name or not value or name in found or (among and name not in among):
            known = f", out of {', '.join(among)}" if among else ""
            raise errors.MisuseError(
                where=where, expected=f"NAME=VALUE, each name once{known}", found=text, remedy=remedy
            )
        found[name] = value
    return found


def numbers(text: str, where: str) -> frozenset[int]:
    """Whole numbers out of a text such as 0-3,7.

    Args:
        text: as typed. where: the option.

    Raises:
        MisuseError: no such text.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if last < first:
            raise errors.MisuseError(
                where=where,
                expected="numbers as 0-3,7, each below a million",
                found=text or "nothing",
                remedy="Give whole numbers, the smaller one first.",
            )
        found |= set(range(first, last + 1))
    return frozenset(found)
