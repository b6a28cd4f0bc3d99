"""Which rows of a profile database a verb is about: options that run, query and count-missing share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cyclopts import Parameter

from moegauge import errors
from moegauge.cli.arguments import Many, numbers
from moegauge.cli.profile_shape import FLAGS, ShapeFlags
from moegauge.jobs.given_inputs import Given, read_spec
from moegauge.jobs.profile_run import Wanted
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, GIVEN, ITERATION, UNPADDED, InputChoice

_INPUTS = {"exact": EXACT, "unpadded": UNPADDED, "iteration": ITERATION, "full-run": FULL_RUN}
_SAMPLER = "counts_exact"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Rows of a capture or of given inputs, by input, launch mode and place.

    Attributes:
        db: Profile database.
        runner: vllm_triton_moe or vllm_triton_moe_fp8_block (GPU), vllm_cpu_moe or torch_moe (host).
        capture: Capture folder whose inputs are meant.
        spec: JSON file that gives the inputs instead (docs/formats/profile-spec.md).
        shape: Flags that give them instead.
        input: Of a capture: exact, unpadded (exact without padded rows), iteration or full-run; may be given several
            times.
        sampler: What draws rows from a popularity (counts_exact unless given); may be given several times.
        seed: Seed of the sampler (0 unless given).
        padding: Of a capture: captured (padded rows keep their captured ids, unless given) or drawn.
        launch_mode: as-served (as the capture or the spec says), eager or graph.
        expert_parallel: Of a capture of one rank: derive what each of so many expert-parallel ranks would have run.
        iterations: Only these, as 0-3,7.
        layers: Only these.
        ranks: Only these.
    """

    db: Path
    runner: str
    capture: Path | None = None
    spec: Path | None = None
    shape: ShapeFlags = ShapeFlags()  # noqa: RUF009 - frozen
    input: Many = None
    sampler: Many = None
    seed: int | None = None
    padding: str | None = None
    launch_mode: str = "as-served"
    expert_parallel: int | None = None
    iterations: str | None = None
    layers: str | None = None
    ranks: str | None = None

    def inputs(self) -> Path | Given:
        """What the inputs come from: a capture folder, or what a spec or the shape flags give.

        Raises:
            MisuseError: none or several of the three, or an option that means nothing with the one.
            EvidenceError: a spec or a file of counts that cannot be read.
        """
        self._refuse_several()
        if self.capture is not None:
            return self.capture
        _refuse("a --capture beside it: given inputs have one form, and no padded rows", self, "input", "padding")
        _refuse("a --capture beside it: a spec gives its own share of the experts", self, "expert_parallel")
        if self.spec is not None:
            _refuse("no such option beside --spec: the spec says what draws its rows", self, "sampler", "seed")
            return read_spec(self.spec)
        samplers = self.sampler or [_SAMPLER]
        return self.shape.given(samplers=samplers, seed=self.seed or 0, launch_mode=self.launch_mode)

    def wanted(self, *, num_passes: int = 7, cache_state: str = "in_order", co_running: int | None = None) -> Wanted:
        """The request in the terms of the jobs.

        Raises:
            MisuseError: an option makes no sense.
        """
        if num_passes < 1:
            raise errors.MisuseError(
                where="--passes", expected="at least 1", found=str(num_passes), remedy="Ask for more."
            )
        given = (InputChoice(type=GIVEN),)
        return Wanted(
            inputs=given if self.capture is None else self._choices(),
            iterations=None if self.iterations is None else numbers(self.iterations, "--iterations"),
            layers=None if self.layers is None else numbers(self.layers, "--layers"),
            ranks=None if self.ranks is None else numbers(self.ranks, "--ranks"),
            launch_mode=self.launch_mode,
            cache_state=cache_state,
            co_running=co_running,
            num_passes=num_passes,
            expert_parallel=self.expert_parallel,
        )

    def _choices(self) -> tuple[InputChoice, ...]:
        """Every combination of reconstructed input and sampler; an exact input once."""
        names = self.input or ["exact"]
        unknown = sorted(set(names) - set(_INPUTS))
        if unknown:
            raise errors.MisuseError(
                where="--input", expected=", ".join(_INPUTS), found=", ".join(unknown), remedy="Choose among them."
            )
        exact = [InputChoice(type=_INPUTS[name]) for name in ("exact", "unpadded") if name in names]
        popularities = [_INPUTS[name] for name in names if name in {"iteration", "full-run"}]
        seed, padding = self.seed or 0, self.padding or "captured"
        rebuilt = (
            InputChoice(type=kind, sampler=one, seed=seed, padding=padding)
            for kind, one in product(popularities, self.sampler or [_SAMPLER])
        )
        return (*exact, *rebuilt)

    def _refuse_several(self) -> None:
        """Refuse none, or more than one, of a capture, a spec and the shape flags."""
        sources = [name for name, path in (("--capture", self.capture), ("--spec", self.spec)) if path is not None]
        flags = self.shape.typed()
        if len(sources) + bool(flags) != 1:
            raise errors.MisuseError(
                where="moegauge profile",
                expected=f"exactly one of --capture, --spec, or the shape flags ({', '.join(FLAGS)})",
                found=", ".join([*sources, *flags]) or "none of them",
                remedy="Say in one way what to measure.",
            )


def _refuse(expected: str, options: RowOptions, *names: str) -> None:
    """Refuse options that say nothing here, where they were typed."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            found = ", ".join(value) if isinstance(value, list) else str(value)
            raise errors.MisuseError(
                where=f"--{name.replace('_', '-')}", expected=expected, found=found, remedy="Leave it out."
            )
