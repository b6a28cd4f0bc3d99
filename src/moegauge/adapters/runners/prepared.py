"""What was prepared for the last few lists of works, kept for when they run again."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from moegauge.adapters.runners.work import RunCondition, Work

Prepared = TypeVar("Prepared")
_KEPT = 32


class KeptPrepared(Generic[Prepared]):
    """Values by the works and the condition that they were prepared for; the oldest make room."""

    def __init__(self) -> None:
        self._values: OrderedDict[int, Prepared] = OrderedDict()

    def of(self, works: Sequence[Work], condition: RunCondition, prepare: Callable[[], Prepared]) -> Prepared:
        """The value for a list of works under a condition, prepared where there is none."""
        key = _key(works, condition)
        if key not in self._values:
            self._values[key] = prepare()
            while len(self._values) > _KEPT:
                self._values.popitem(last=False)
        return self._values[key]


def _key(works: Sequence[Work], condition: RunCondition) -> int:
    """Identity of a list of works under a condition."""
    value = zlib.crc32(f"{condition.launch_mode} {condition.cache_state} {condition.co_running}".encode())
    for work in works:
        value = zlib.crc32(f"{work.iteration} {work.layer} {work.rank}".encode(), value)
        value = zlib.crc32(work.topk_ids.tobytes(), value)
    return value
