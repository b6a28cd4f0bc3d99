"""What a kernel kind is: measured boundary, kernel names by role, and the sequence of one invocation.

The sequence is a variant's prefix followed by the kind's core. Which variant an invocation runs follows from its
rows, its experts and whether it has an expert map; nothing is inferred from what the trace happens to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class InvocationShape:
    """What decides the variant of an invocation on one rank."""

    executed_rows: int
    top_k: int
    num_experts: int
    has_expert_map: bool


@dataclass(frozen=True, kw_only=True)
class Role:
    """A kernel's part in the sequence.

    Attributes:
        name: short name, unique in the kind.
        stage: stage of the measured boundary (design terms: permute, experts, activation, ...).
        pattern: regular expression searched in the demangled kernel name.
        exclusive: the name occurs in fused MoE work alone; such a kernel outside a closed invocation is a stray.
        covers: further stages that this one kernel does.
        names: kernel names as they stand in the source; the pattern finds each of them.
    """

    name: str
    stage: str
    pattern: re.Pattern[str]
    exclusive: bool
    covers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def stages(self) -> str:
        """Every stage it does, joined by a plus sign."""
        return "+".join((self.stage, *self.covers))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One prefix of the core and the condition under which it runs."""

    name: str
    prefix: tuple[str, ...]
    condition: str
    applies: Callable[[InvocationShape], bool]
    confirmed_by_trace: bool


@dataclass(frozen=True, kw_only=True)
class KernelKind:
    """A registered fused MoE kernel kind.

    Attributes:
        boundary: stages inside the measured interval, in order.
        roles: kernels inside the boundary.
        core: role names every invocation runs, in order on one stream without anything between.
        variants: tried in order; the first whose condition holds is the one expected.
        outside: known stages of a MoE layer that are not in the boundary: name -> pattern.
        follows: outside stage that is recognised by standing right behind the core (kernel or copy).
        suspicious: names that look like MoE work; one that no role or outside stage explains is listed as unknown.
        source: where names and conditions come from.
        confirmed: a real trace has shown these names in this order. Where none has, all of it is read from source text.
        told_apart: roles that the core runs several times under one name -> what each of them is, in order.
        host_operation: the one operation of a kind that runs on the host and is timed there; None for device kernels.
    """

    name: str
    backend: str
    numeric_formats: tuple[str, ...]
    boundary: tuple[str, ...]
    roles: tuple[Role, ...]
    core: tuple[str, ...]
    variants: tuple[Variant, ...]
    outside: dict[str, re.Pattern[str]] = field(default_factory=dict)
    follows: tuple[str, re.Pattern[str]] | None = None
    suspicious: re.Pattern[str] = re.compile(r"moe|expert|grouped_gemm|matmul_ogs|batched_triton|^bmm_", re.IGNORECASE)
    source: str = ""
    host_operation: str | None = None
    confirmed: bool = False
    told_apart: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        known = {role.name for role in self.roles}
        used = {name for variant in self.variants for name in variant.prefix} | set(self.core)
        if not self.core or not self.variants or used - known:
            raise ValueError(f"kernel kind {self.name}: core or variants missing, or unknown roles {used - known}")
        repeated = {name: self.core.count(name) for name in self.core if self.core.count(name) > 1}
        if repeated != {name: len(parts) for name, parts in self.told_apart.items()}:
            raise ValueError(f"kernel kind {self.name}: {repeated} are not told apart by {dict(self.told_apart)}")

    def variant(self, shape: InvocationShape) -> Variant | None:
        """The variant an invocation of this shape runs, or None where no condition holds."""
        return next((variant for variant in self.variants if variant.applies(shape)), None)

    def expected(
        self, executed_rows: Sequence[int], *, top_k: int, num_experts: int, has_expert_map: bool
    ) -> list[Variant | None]:
        """The variant of each of several invocations that differ in executed rows only."""
        by_rows = {
            rows: self.variant(
                InvocationShape(executed_rows=rows, top_k=top_k, num_experts=num_experts, has_expert_map=has_expert_map)
            )
            for rows in set(executed_rows)
        }
        return [by_rows[rows] for rows in executed_rows]

    def runs_in(self, kernel_names: Iterable[str]) -> bool:
        """Whether the kernel every invocation begins its core with is among the names."""
        anchor = next(role.pattern for role in self.roles if role.name == self.core[0])
        return any(anchor.search(name) for name in kernel_names)

    def every_role_in(self, kernel_names: Iterable[str]) -> bool:
        """Whether each role of the core finds a kernel among the names."""
        names = list(kernel_names)
        wanted = [role.pattern for role in self.roles if role.name in self.core]
        return all(any(pattern.search(name) for name in names) for pattern in wanted)


def not_seen(what: str, names: Iterable[str]) -> str:
    """The sentence for a trace without the kernels of a kind (or of any of several), with what it holds instead."""
    return f"no kernel matched {what}; seen: {sorted({name[:60] for name in names})[:12]}"
