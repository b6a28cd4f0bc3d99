"""A place for each rank of an invocation: cores of its own on the host, or a GPU of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

_PROCESSORS = Path("/sys/devices/system/cpu")
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Place:
    """Where the process of a rank runs.

    Attributes:
        cores: logical processors that it is bound to, as many as its torch has threads; None where it is not bound.
        gpu: the one entry of CUDA_VISIBLE_DEVICES that it sees; None where it sees what its parent sees.
        threads: of its torch on the host, beside a GPU; None for as many as torch finds. Ranks check their outputs
            there at the same time, and threads of all of them on every core wait for each other.
    """

    cores: tuple[int, ...] | None = None
    gpu: str | None = None
    threads: int | None = None

    def take(self) -> None:
        """Move this process there. To be called before torch is imported, which reads both once."""
        if self.cores is not None:
            for task in _TASKS.iterdir():
                os.sched_setaffinity(int(task.name), self.cores)
            os.environ["OMP_NUM_THREADS"] = str(len(self.cores))
        if self.gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpu
        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)

    def __str__(self) -> str:
        if self.cores is not None:
            return f"cores {numbers_text(self.cores)}"
        return "an unbound process" if self.gpu is None else f"GPU {self.gpu}"


def places_for(num_ranks: int, *, on_gpu: bool) -> tuple[tuple[Place, ...], str]:
    """A place for each of some ranks, or none where there are too few of them.

    Returns:
        The places, and what there is for how many ranks, for messages.
    """
    if on_gpu:
        gpus = _visible_gpus()
        threads = max(1, (os.cpu_count() or 1) // num_ranks)
        places = [Place(gpu=gpu, threads=threads) for gpu in gpus[:num_ranks]] if len(gpus) >= num_ranks else []
        return tuple(places), f"{_counted(len(gpus), 'visible GPU')} for {num_ranks} ranks"
    if not hasattr(os, "sched_getaffinity"):
        return (), "a system that binds no process to cores"
    usable = os.sched_getaffinity(0)
    sets = core_sets(usable, num_ranks)
    there = f"{_counted(len(usable), 'core')} that this process may use for {num_ranks} ranks"
    return tuple(Place(cores=cores) for cores in sets), there


def core_sets(usable: Iterable[int], num_ranks: int) -> list[tuple[int, ...]]:
    """As many processors for each rank, whole physical cores where there are enough, neighbours together.

    What is left over stays idle: ranks with different numbers of cores could not be compared.

    Args:
        usable: logical processors. num_ranks: how many sets.

    Returns:
        One set a rank; none at all where there are fewer processors than ranks.
    """
    physical: dict[tuple[int, int], list[int]] = {}
    for processor in sorted(usable):
        physical.setdefault(_physical_core(processor), []).append(processor)
    cores = [tuple(physical[key]) for key in sorted(physical)]
    if len(cores) < num_ranks:
        cores = [(processor,) for processor in chain.from_iterable(cores)]
    each = len(cores) // num_ranks
    if not each:
        return []
    return [tuple(sorted(chain(*cores[rank * each : (rank + 1) * each]))) for rank in range(num_ranks)]


def numbers_text(numbers: Iterable[int]) -> str:
    """Numbers as 0-3,7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _counted(num: int, what: str) -> str:
    return f"{num or 'no'} {what}{'' if num == 1 else 's'}"


def _physical_core(processor: int) -> tuple[int, int]:
    """(package, core) of a logical processor as the kernel reports it; itself where it does not."""
    topology = _PROCESSORS / f"cpu{processor}" / "topology"
    try:
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text())
    except (OSError, ValueError):
        return -1, processor


def _visible_gpus() -> list[str]:
    """Entries of CUDA_VISIBLE_DEVICES that torch counts, or the numbers of all devices; none without torch."""
    try:
        import torch  # noqa: PLC0415 - an engine is loaded only where one is asked for
    except ModuleNotFoundError:
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [] if listed is None else [name.strip() for name in listed.split(",")]
    return [names[number] if names else str(number) for number in range(torch.cuda.device_count())]
