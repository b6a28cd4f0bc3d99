"""Where ranks in processes of their own wait for each other, on a few words of shared memory.

No lock: every rank writes its own word only, so one that is killed leaves nothing locked behind it. A rank spins while
it waits, on cores that are its own, as ranks do in a collective of the engine; a sleeping one would wake up late.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

_LEFT = 2**62
"""The word of a rank that nobody has to wait for any more."""


class GivenUp(Exception):
    """The parent told all ranks to stop waiting: one of them failed."""


class StartLine:
    """Numbered steps that all ranks begin and end together. Passed to a process when it is made.

    Args:
        num_ranks: ranks, each with an index from 0.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._words = get_context("spawn").RawArray(ctypes.c_int64, num_ranks + 1)
        self.reset()

    def reset(self) -> None:
        """Begin at step 0 again; while no rank is on the line."""
        self._words[: self._num_ranks] = [-1] * self._num_ranks

    def give_up(self) -> None:
        """Send away every rank that waits, or comes to wait."""
        self._words[self._num_ranks] = 1

    @contextmanager
    def step(self, index: int, number: int) -> Iterator[None]:
        """Begin a step once every rank is there, and leave it once every rank is done.

        A rank without work at a step takes no part in it, and is waited for until it is past its earlier steps.

        Args:
            index: whose step it is. number: of the step, larger than that of its last one.

        Raises:
            GivenUp
        """
        self._arrive(index, 2 * number)
        yield
        self._arrive(index, 2 * number + 1)

    def leave(self, index: int) -> None:
        """No further step of this rank before the next reset."""
        self._words[index] = _LEFT

    def _arrive(self, index: int, at: int) -> None:
        words, num = self._words, self._num_ranks
        words[index] = at
        while min(words[:num]) < at:
            if words[num]:
                raise GivenUp
