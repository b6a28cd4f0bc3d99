"""A kernel that fails by itself: what that makes of its row, and which row takes its place in the first check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from moegauge.jobs.targets import Target, smallest_and_largest
from moegauge.records.profile import RowStatus


class KernelFailed(Exception):
    """A kernel could not be run.

    Attributes:
        status: for the rows concerned. text: the original text.
    """

    def __init__(self, status: RowStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@contextmanager
def kernel_failures() -> Iterator[None]:
    """Turn what an engine raises into KernelFailed."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise KernelFailed(status_of(error), str(error)) from error


def status_of(error: BaseException) -> RowStatus:
    """What a kernel's own error makes of its row."""
    text = f"{type(error).__name__} {error}".lower()
    short_of_memory = any(words in text for words in ("outofmemory", "out of memory", "allocate memory"))
    if short_of_memory or isinstance(error, MemoryError):
        return RowStatus.OUT_OF_MEMORY
    return RowStatus.LAUNCH_FAILED


def first_failures(
    targets: Sequence[Target], check: Callable[[Target], object]
) -> Iterator[tuple[Target, KernelFailed]]:
    """Check the smallest and the largest of some targets, and give those that fail.

    One that finds too little memory gives way to the next smallest or largest. After any other failure nothing is
    checked: the state of the device is not known.

    Args:
        targets: what is to be timed. check: of one; raises KernelFailed.
    """
    left, passed = list(targets), set[str]()
    while left:
        ends = smallest_and_largest(left, lambda target: target.key.match.executed_rows)
        target = next((one for one in ends if one.digest not in passed), None)
        if target is None:
            return
        try:
            check(target)
            passed.add(target.digest)
        except KernelFailed as failed:
            yield target, failed
            if failed.status != RowStatus.OUT_OF_MEMORY:
                return
            left = [one for one in left if one.digest != target.digest]
