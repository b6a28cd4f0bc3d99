"""Flags that say what a spec file says, for one layer of one rank that owns every expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product

from cyclopts import Parameter

from moegauge import errors
from moegauge.cli.arguments import numbers
from moegauge.jobs.given_inputs import Given, read_popularity
from moegauge.records.identity import ModelShape
from moegauge.records.measurement import LaunchMode
from moegauge.records.profile_spec import PopularityInput, ProfileSpec

_WHERE = "shape flags"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ShapeFlags:
    """A shape, and the rows and popularity to measure it on.

    Attributes:
        hidden_size: Width of the hidden states.
        intermediate_size: Width of one expert's intermediate activation.
        experts: Experts, all of them on this rank.
        top_k: Experts a row is routed to.
        dtype: bfloat16 or float32.
        rows: Executed rows of each invocation, as 1,8,64-66.
        popularity: uniform, or a file with a JSON array of integer counts, one an expert.
    """

    hidden_size: int | None = None
    intermediate_size: int | None = None
    experts: int | None = None
    top_k: int | None = None
    dtype: str | None = None
    rows: str | None = None
    popularity: str | None = None

    def typed(self) -> list[str]:
        """Names of the flags that were given."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [flag for flag, value in zip(FLAGS, values, strict=True) if value is not None]

    def given(self, *, samplers: Sequence[str], seed: int, launch_mode: str) -> Given:
        """The spec that the flags stand for: one layer, an input for each sampler and number of rows.

        Args:
            samplers, seed: what draws. launch_mode: eager or graph.

        Raises:
            MisuseError: a flag is missing, or makes no sense. EvidenceError: a file of counts that cannot be read.
        """
        shape, numeric_format, popularity, rows = self._complete()
        if launch_mode not in {"eager", "graph"}:
            raise errors.MisuseError(
                where="--launch-mode",
                expected="eager or graph, since no capture or spec says it",
                found=launch_mode,
                remedy="Name the launch mode.",
            )
        counts = read_popularity(popularity)
        spec = ProfileSpec(
            schema=ProfileSpec.tag(),
            model=shape,
            numeric_format=numeric_format,
            num_layers=1,
            launch_mode=LaunchMode(launch_mode),
            tp_size=None,
            ep_size=None,
            dp_size=None,
            num_local_experts=shape.num_experts,
            expert_map=None,
            inputs=tuple(
                PopularityInput(popularity=counts, rows=num, sampler=sampler, seed=seed)
                for sampler, num in product(samplers, sorted(rows))
            ),
        )
        return Given(spec, _WHERE)

    def _complete(self) -> tuple[ModelShape, str, str, frozenset[int]]:
        """Shape, dtype, popularity and numbers of rows, where no flag was left out."""
        hidden, intermediate, experts, top_k = self.hidden_size, self.intermediate_size, self.experts, self.top_k
        if (
            hidden is None or intermediate is None or experts is None or top_k is None
            or self.dtype is None or self.rows is None or self.popularity is None
        ):  # fmt: skip
            missing = [flag for flag in FLAGS if flag not in self.typed()]
            raise errors.MisuseError(
                where=_WHERE,
                expected=f"all of {', '.join(FLAGS)}",
                found=f"no {', '.join(missing)}",
                remedy="Nothing is guessed; give the missing ones, or a --capture or a --spec.",
            )
        try:
            shape = ModelShape(hidden_size=hidden, intermediate_size=intermediate, num_experts=experts, top_k=top_k)
        except ValueError as error:
            raise errors.MisuseError(
                where=_WHERE, expected="the sizes of a model", found=str(error), remedy="Correct them."
            ) from error
        rows = numbers(self.rows, "--rows")
        if 0 in rows:
            raise errors.MisuseError(
                where="--rows", expected="numbers of at least 1", found="0", remedy="Leave 0 rows out: nothing runs."
            )
        return shape, self.dtype, self.popularity, rows


FLAGS = tuple(f"--{field.name.replace('_', '-')}" for field in fields(ShapeFlags))
