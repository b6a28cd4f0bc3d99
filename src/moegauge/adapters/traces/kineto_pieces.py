"""A Kineto trace a MiB of text at a time, so that its events are never all objects at once.

The text of the events' array is cut between events. That a cut stands there is not guessed: what lies between two cuts
has to decode as a list of its own, and it can only where brackets and quotes balance. What is left when all of that is
taken out (the head, the last events, the tail) has to decode as a trace. A file that cannot be cut like this, or is
damaged, is decoded as a whole by :func:`kineto_json.decode_kineto`, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from moegauge.adapters.traces.kineto_json import Event, KinetoFile

PIECE_BYTES = 1 << 20
_MAX_UNCUT_BYTES = 64 << 20
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUTS = (b"},\n  {", b"},\n{", b"}, {", b"},{")
"""Ways in which two events follow each other. The first is Kineto's own."""

TakeEvents = Callable[[list[Event]], None]


def decode_pieces(text: Iterable[bytes], take: TakeEvents) -> KinetoFile | None:
    """Decode a trace piece by piece.

    Args:
        text: the unpacked file, in pieces of any size.
        take: called with the events, in order, some thousands a time. Their Raw fields hold only until it returns.

    Returns:
        The file without its events; None where it cannot be read in pieces. What was taken then counts for nothing.
    """
    try:
        return _decode(iter(text), take)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _decode(text: Iterator[bytes], take: TakeEvents) -> KinetoFile | None:
    events, window = msgspec.json.Decoder(list[Event]), _Window()
    head: bytes | None = None
    for piece in text:
        window.append(piece)
        if head is None:
            head = window.take_head()
        if len(window) < PIECE_BYTES:
            continue
        whole = None if head is None else window.whole_events()
        if whole is not None:
            take(events.decode(whole))
            window.drop(len(whole))
        elif len(window) > _MAX_UNCUT_BYTES:
            return None
    rest = window.rest()
    if head is None or _KEY.search(rest):
        return None
    file = msgspec.json.decode(head + rest, type=KinetoFile)
    take(file.trace_events)
    file.trace_events = []
    return file


class _Window:
    """The text that was read and not yet decoded, in one buffer that is written again and again.

    (A buffer of its own for every piece costs as much as decoding it: the pages are given back and faulted in again.)
    """

    def __init__(self) -> None:
        self._text = bytearray(2 * PIECE_BYTES)
        self._text[:1] = b"["
        self._end = 1

    def __len__(self) -> int:
        return self._end - 1

    def append(self, piece: bytes) -> None:
        """Add text at the end."""
        end = self._end + len(piece)
        if end > len(self._text):
            self._text = self._text[: self._end] + bytearray(2 * end)
        self._text[self._end : end] = piece
        self._end = end

    def take_head(self) -> bytes | None:
        """Cut off everything up to the first event; None where the events do not begin here."""
        found = _KEY.search(self._text, 1, self._end)
        if found is None:
            return None
        head = bytes(self._text[1 : found.end()])
        msgspec.json.decode(head + b"]}")  # fails where the key stands inside something else
        self.drop(found.end())
        return head

    def whole_events(self) -> memoryview | None:
        """A list of the events that end here; None where none does. The comma behind them becomes its bracket."""
        cut = next((at + 1 for cut in _CUTS if (at := self._text.rfind(cut, 1, self._end)) > 0), None)
        if cut is None:
            return None
        self._text[cut : cut + 1] = b"]"
        return memoryview(self._text)[: cut + 1]

    def drop(self, num: int) -> None:
        """Drop what stands before an index."""
        rest = self._text[num : self._end]
        self._end = 1 + len(rest)
        self._text[1 : self._end] = rest

    def rest(self) -> bytes:
        """What is left."""
        return bytes(self._text[1 : self._end])
