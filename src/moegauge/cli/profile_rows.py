"""Which rows of a profile database a verb is about: options that run, query and count-missing share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cyclopts import Parameter

from moegauge import errors
from moegauge.cli.arguments import Many
from moegauge.jobs.profile_run import Wanted
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, UNPADDED, InputChoice

_INPUTS = {"exact": EXACT, "unpadded": UNPADDED, "iteration": ITERATION, "full-run": FULL_RUN}
_RANGE = re.compile(r"^([0-9]{1,6})(?:-([0-9]{1,6}))?\Z")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Rows of a capture, by input, launch mode and place.

    Attributes:
        capture: Capture folder whose inputs are meant.
        db: Profile database.
        runner: vllm_triton_moe (GPU), vllm_cpu_moe or torch_moe (host).
        input: exact, unpadded (exact without padded rows), iteration or full-run; may be given several times.
        sampler: What rebuilds an input from a popularity; may be given several times.
        seed: Seed of the sampler.
        padding: captured (padded rows keep their captured ids) or drawn.
        launch_mode: as-served, eager or graph.
        iterations: Only these, as 0-3,7.
        layers: Only these.
        ranks: Only these.
    """

    capture: Path
    db: Path
    runner: str
    input: Many = None
    sampler: Many = None
    seed: int = 0
    padding: str = "captured"
    launch_mode: str = "as-served"
    iterations: str | None = None
    layers: str | None = None
    ranks: str | None = None

    def wanted(self, *, num_passes: int = 7, cache_state: str = "in_order", co_running: int | None = None) -> Wanted:
        """The request in the terms of the jobs.

        Raises:
            MisuseError: an option makes no sense.
        """
        if num_passes < 1:
            raise errors.MisuseError(
                where="--passes", expected="at least 1", found=str(num_passes), remedy="Ask for more."
            )
        return Wanted(
            inputs=_inputs(self.input, self.sampler, self.seed, self.padding),
            iterations=_numbers(self.iterations, "--iterations"),
            layers=_numbers(self.layers, "--layers"),
            ranks=_numbers(self.ranks, "--ranks"),
            launch_mode=self.launch_mode,
            cache_state=cache_state,
            co_running=co_running,
            num_passes=num_passes,
        )


def _inputs(inputs: list[str] | None, samplers: list[str] | None, seed: int, padding: str) -> tuple[InputChoice, ...]:
    """Every combination of reconstructed input and sampler; an exact input once."""
    names = inputs or ["exact"]
    unknown = sorted(set(names) - set(_INPUTS))
    if unknown:
        raise errors.MisuseError(
            where="--input", expected=", ".join(_INPUTS), found=", ".join(unknown), remedy="Choose among them."
        )
    exact = [InputChoice(type=_INPUTS[name]) for name in ("exact", "unpadded") if name in names]
    rebuilt = product(
        [_INPUTS[name] for name in names if name in {"iteration", "full-run"}], samplers or ["counts_exact"]
    )
    return (*exact, *(InputChoice(type=kind, sampler=one, seed=seed, padding=padding) for kind, one in rebuilt))


def _numbers(text: str | None, where: str) -> frozenset[int] | None:
    if text is None:
        return None
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
