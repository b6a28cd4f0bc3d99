"""Where a time comes from, and the conditions it was taken under."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Origin(StrEnum):
    """MEASURED on a device, or PREDICTED from measured rows. The two are never added up."""

    MEASURED = "MEASURED"
    PREDICTED = "PREDICTED"


class LaunchMode(StrEnum):
    """How kernels reached the device: one launch call each, or one graph launch for many."""

    EAGER = "eager"
    GRAPH = "graph"


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded condition. A condition that was not recorded has no Fact: absence is not a value.

    Attributes:
        value: canonical text of the value.
        source: ``trace`` (read from the recording), ``engine`` (written by the engine's recorder) or ``declared``
            (a person said so).
    """

    value: str
    source: str

    def __post_init__(self) -> None:
        if self.source not in {"trace", "engine", "declared"}:
            raise ValueError(f"source of a fact is trace, engine or declared, not {self.source!r}")


CONDITIONS: dict[str, str] = {
    "profiler": "profiler and its settings",
    "kernel_config_digest": "digest of the kernel configuration or tactic chosen",
    "device_model": "model name of the device",
    "device_uuids": "device UUIDs by rank",
    "clocks": "clock state while measuring",
    "power": "power limit and draw while measuring",
    "throttle": "throttle reasons while measuring",
    "cache_state": "state of the caches when the kernel started",
    "torch": "version of torch",
    "vllm": "version of vLLM",
    "cuda_driver": "version of the CUDA driver API",
    "cuda_runtime": "version of the CUDA runtime",
    "cupti": "version of CUPTI",
    "threads": "threads of a host operation",
    "ranks": "whether the ranks of an invocation ran together, or one of them alone",
}
"""Conditions compared between the sides. They never select rows; they qualify the verdict."""

ON_DEVICE_ONLY = frozenset({"device_uuids", "clocks", "power", "throttle", "cuda_driver", "cuda_runtime", "cupti"})
"""Conditions that a kernel on the host does not have."""
ON_HOST_ONLY = frozenset({"threads"})
"""Conditions that a kernel on a device does not have."""


def conditions_on(*, host: bool) -> tuple[str, ...]:
    """Names of the conditions that matter to a kernel on the host, or on a device."""
    without = ON_DEVICE_ONLY if host else ON_HOST_ONLY
    return tuple(name for name in CONDITIONS if name not in without)


LIMITS: dict[str, str] = {
    "activations": "where the hidden states came from",
    "weights": "where the expert weights came from",
}
"""Facts of the isolated side that limit what *exact* means; a difference here is labelled, not judged."""

TOGETHER, ALONE = "together", "alone"
"""Values of the condition ``ranks``: all ranks with work in an invocation started it together, or one without them."""

Facts = dict[str, Fact]
