"""Exact numbers in records: a ratio is text ("0.02", "1/11", "19731/128"), never a float, so that no threshold is
ever missed or met by rounding."""

from __future__ import annotations

import re
from fractions import Fraction

_RATIO = re.compile(r"^-?[0-9]{1,30}(\.[0-9]{1,30}|/[1-9][0-9]{0,29})?\Z")


def parse_ratio(text: str) -> Fraction:
    """The exact value of a decimal or of a fraction of integers.

    Raises:
        ValueError: anything else, an exponent included.
    """
    if not _RATIO.match(text):
        raise ValueError(f"a ratio is a decimal or a fraction of integers as text, not {text!r}")
    return Fraction(text)


def ratio_text(value: Fraction) -> str:
    """Text that :func:`parse_ratio` reads back as the same value."""
    return str(value)
