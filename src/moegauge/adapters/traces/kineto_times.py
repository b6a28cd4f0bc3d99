"""Decimal microseconds to exact integer ns, a column at a time.

They are never read as floats: at today's epoch a double steps by a quarter of a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

NO_NUMBER = -(1 << 63)
"""In a column of times: the text is no number of us below 2^62 ns."""
_LIMIT_NS = 1 << 62
_MAX_TEXT = len("999999999999999.999")
_PLAIN_US = re.compile(rb"^-?[0-9]{1,15}(\.[0-9]{1,3})?$")


def exact_ns(texts: Sequence[msgspec.Raw]) -> tuple[Int64Array, int]:
    """Times in ns, and how many were finer than 1 ns and rounded to even.

    Args:
        texts: JSON texts of n numbers of us; anything else reads as NO_NUMBER.
    """
    lines = b"\n".join(texts) + b"\n" if texts else b""
    if _three_decimals_each(lines, len(texts)):
        return np.fromstring(lines.translate(None, b"."), dtype=np.int64, sep="\n"), 0
    read = [_ns(bytes(text)) for text in texts]
    ns = np.array([NO_NUMBER if one is None else one[0] for one in read], dtype=np.int64)
    return ns, sum(one is not None and one[1] for one in read)


def _three_decimals_each(lines: bytes, num: int) -> bool:
    """Whether there are num lines, each of 1 to 15 digits, a point and 3 digits: as Kineto writes them."""
    if lines.translate(None, b"0123456789.\n"):
        return False
    text = np.frombuffer(lines, dtype=np.uint8)
    ends, points = np.flatnonzero(text == ord("\n")), np.flatnonzero(text == ord("."))
    if len(ends) != num or len(points) != num:
        return False
    lengths = np.diff(ends, prepend=-1) - 1
    return bool((ends - points == 4).all() and (lengths >= 5).all() and (lengths <= _MAX_TEXT).all())


def _ns(text: bytes) -> tuple[int, bool] | None:
    """Exact ns of one text and whether it was rounded; None where there is no number."""
    if _PLAIN_US.match(text):
        whole, _, fraction = text.partition(b".")
        ns, part = int(whole) * 1000, int(fraction.ljust(3, b"0"))
        return (ns - part if text[:1] == b"-" else ns + part), False
    try:
        value = Decimal(text.decode("ascii")) * 1000
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or abs(value) >= _LIMIT_NS:
        return None
    rounded = int(value.to_integral_value())
    return rounded, rounded != value
