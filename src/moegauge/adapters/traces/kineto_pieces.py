"""A Kineto trace a few MiB of text at a time, so that its events are never all objects at once.

The text of the events' array is cut between events. That a cut stands there is not guessed: what lies between two cuts
has to decode as a list of its own, and it can only where brackets and quotes balance. What is left when all of that is
taken out (the head, the last events, the tail) has to decode as a trace. A file that cannot be cut like this, or is
damaged, is decoded as a whole by :func:`kineto_json.decode_kineto`, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from moegauge.adapters.traces.kineto_json import Event, KinetoFile

PIECE_BYTES = 4 << 20
_MAX_UNCUT_BYTES = 16 * PIECE_BYTES
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUTS = (b"},\n  {", b"},\n{", b"}, {", b"},{")
"""Ways in which two events follow each other. The first is Kineto's own."""

TakeEvents = Callable[[list[Event]], None]


def decode_pieces(text: Iterable[bytes], take: TakeEvents) -> KinetoFile | None:
    """Decode a trace piece by piece.

    Args:
        text: the unpacked file, in pieces of any size. take: called with the events, in order, some thousands a time.

    Returns:
        The file without its events; None where it cannot be read in pieces. What was taken then counts for nothing.
    """
    try:
        return _decode(iter(text), take)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _decode(text: Iterable[bytes], take: TakeEvents) -> KinetoFile | None:
    events, rest = msgspec.json.Decoder(list[Event]), bytearray()
    head: bytes | None = None
    for piece in text:
        rest += piece
        if head is None:
            head = _head(rest)
        if len(rest) < PIECE_BYTES:
            continue
        cut = -1 if head is None else _last_cut(rest)
        if cut > 0:
            take(events.decode(b"[" + rest[:cut] + b"]"))
            del rest[: cut + 1]
        elif len(rest) > _MAX_UNCUT_BYTES:
            return None
    if head is None or _KEY.search(rest):
        return None
    file = msgspec.json.decode(head + rest, type=KinetoFile)
    take(file.trace_events)
    file.trace_events = []
    return file


def _head(text: bytearray) -> bytes | None:
    """Cut off everything up to the first event; None where the events do not begin here."""
    found = _KEY.search(text)
    if found is None:
        return None
    head = bytes(text[: found.end()])
    msgspec.json.decode(head + b"]}")  # fails where the key stands inside something else
    del text[: found.end()]
    return head


def _last_cut(text: bytearray) -> int:
    """Place of the comma after the last event that ends here; -1 where no event does."""
    return next((at + 1 for cut in _CUTS if (at := text.rfind(cut)) >= 0), -1)
