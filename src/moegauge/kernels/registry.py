"""Kernel kinds as data: measured boundary, kernel names by role, and the sequence of one invocation.

The sequence is a variant's prefix followed by the kind's core. Which variant an invocation runs follows from its
rows, its experts and whether it has an expert map; nothing is inferred from what the trace happens to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from moegauge import errors


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
    """

    name: str
    stage: str
    pattern: re.Pattern[str]
    exclusive: bool


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
        anchor: role of the core that tells the kind; None for the core's first, where no other kind begins with it.
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
    suspicious: re.Pattern[str] = re.compile(r"moe|expert", re.IGNORECASE)
    source: str = ""
    anchor: str | None = None
    host_operation: str | None = None

    def __post_init__(self) -> None:
        known = {role.name for role in self.roles}
        used = {name for variant in self.variants for name in variant.prefix} | set(self.core)
        if not self.core or not self.variants or used - known:
            raise ValueError(f"kernel kind {self.name}: core or variants missing, or unknown roles {used - known}")

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
        """Whether the kernel that tells the kind is among the names."""
        anchor = next(role.pattern for role in self.roles if role.name == (self.anchor or self.core[0]))
        return any(anchor.search(name) for name in kernel_names)

    def num_of_core(self, kernel_names: Iterable[str]) -> int:
        """How many roles of the core are among the names: what tells kinds apart that share the first of them."""
        names = list(kernel_names)
        core = [role.pattern for role in self.roles if role.name in self.core]
        return sum(any(pattern.search(name) for name in names) for pattern in core)

    def not_seen(self, names: Iterable[str]) -> str:
        """The sentence for a trace without the kind's kernels, with what it holds instead."""
        return f"no kernel matched {self.name}; seen: {sorted({name[:60] for name in names})[:12]}"


def kernel_kind(name: str) -> KernelKind:
    """Look a kind up by name.

    Raises:
        MisuseError: not registered.
    """
    if name not in KINDS:
        raise errors.MisuseError(
            where=f"kernel kind {name!r}",
            expected=f"one of {', '.join(sorted(KINDS))}",
            found="a name that is not registered",
            remedy="Choose a registered kind.",
        )
    return KINDS[name]


def numeric_format_in(kind: str, recorded: str) -> str:
    """Format in which a kind runs inputs of a capture: the recorded one where it takes that, else its own.

    Args:
        kind: name; one that is not registered runs what was recorded. recorded: format of the captured kernel.
    """
    formats = KINDS[kind].numeric_formats if kind in KINDS else (recorded,)
    return recorded if recorded in formats else formats[0]


def host_operation(kind: str) -> str | None:
    """Name of the operation that a registered kind runs on the host; None for device kernels and unregistered kinds."""
    return KINDS[kind].host_operation if kind in KINDS else None


def _role(name: str, stage: str, pattern: str, *, exclusive: bool = True) -> Role:
    return Role(name=name, stage=stage, pattern=re.compile(pattern), exclusive=exclusive)


def _small_batch(shape: InvocationShape) -> bool:
    return shape.executed_rows * shape.top_k < 1024 and shape.num_experts <= 64


def _naive(shape: InvocationShape) -> bool:
    return not shape.has_expert_map and shape.executed_rows * shape.top_k * 4 <= shape.num_experts


def _alignment_variants(before: tuple[str, ...], confirmed: frozenset[str]) -> tuple[Variant, ...]:
    """How vLLM's Triton experts lay out the rows of each expert.

    Args:
        before: roles that come first in every variant. confirmed: variants that a real trace has shown.
    """
    rules: tuple[tuple[str, tuple[str, ...], str, Callable[[InvocationShape], bool]], ...] = (
        (
            "naive_block_assignment",
            ("fill",),
            "no expert_map and executed rows x top_k x 4 <= num_experts",
            _naive,
        ),
        (
            "small_batch_expert_map",
            ("align_small", "map_compare", "map_index"),
            "expert_map, executed rows x top_k < 1024 and num_experts <= 64",
            lambda shape: shape.has_expert_map and _small_batch(shape),
        ),
        ("small_batch", ("align_small",), "executed rows x top_k < 1024 and num_experts <= 64", _small_batch),
        (
            "align_sort_expert_map",
            ("align", "sort", "map_compare", "map_index"),
            "expert_map",
            lambda shape: shape.has_expert_map,
        ),
        ("align_sort", ("align", "sort"), "otherwise", lambda shape: True),
    )
    return tuple(
        Variant(
            name=name,
            prefix=before + prefix,
            condition=condition,
            applies=applies,
            confirmed_by_trace=name in confirmed,
        )
        for name, prefix, condition, applies in rules
    )


_ALIGNMENT_ROLES = (
    _role("align", "permute", r"moe_align_block_size_kernel"),
    _role("align_small", "permute", r"moe_align_block_size_small_batch_expert_kernel"),
    _role("sort", "permute", r"count_and_sort_expert_tokens_kernel"),
    _role("fill", "permute", r"FillFunctor<int>", exclusive=False),
    _role("map_compare", "permute", r"unrolled_elementwise_kernel", exclusive=False),
    _role("map_index", "permute", r"index_elementwise_kernel", exclusive=False),
    _role("gemm", "experts", r"^fused_moe_kernel"),
    _role("sum", "topk_weight_and_reduce", r"vllm::moe::moe_sum"),
)
_OUTSIDE = {"router": re.compile(r"topkGating|grouped_topk_fused_kernel|moeTopK"), "combine": re.compile(r"^nccl")}
_FINALIZE = ("finalize", re.compile(r"^memcpy32_post$|^Memcpy DtoD|direct_copy_kernel|copy_kernel"))

_VLLM_TRITON_MOE = KernelKind(
    name="vllm_triton_moe",
    backend="vllm TritonExperts",
    numeric_formats=("bfloat16",),
    boundary=("permute", "experts", "activation", "topk_weight_and_reduce"),
    roles=(*_ALIGNMENT_ROLES, _role("act", "activation", r"vllm::act_and_mul_kernel", exclusive=False)),
    core=("gemm", "act", "gemm", "sum"),
    variants=_alignment_variants((), frozenset({"naive_block_assignment", "align_sort_expert_map", "align_sort"})),
    outside=_OUTSIDE,
    follows=_FINALIZE,
    source="vLLM 0.25.1: traces of Qwen3-MoE and Laguna shapes on an H200; small-batch conditions from its source",
)

_VLLM_TRITON_MOE_FP8_BLOCK = KernelKind(
    name="vllm_triton_moe_fp8_block",
    backend="vllm TritonExperts",
    numeric_formats=("fp8_w8a8_block",),
    boundary=("prepare", "permute", "experts", "activation", "topk_weight_and_reduce"),
    roles=(
        *_ALIGNMENT_ROLES,
        _role("quant", "prepare", r"^(void )?per_token_group_quant_8bit_kernel", exclusive=False),
        _role("act_quant", "activation", r"vllm::silu_and_mul_per_block_quant_kernel", exclusive=False),
    ),
    core=("gemm", "act_quant", "gemm", "sum"),
    variants=_alignment_variants(("quant",), frozenset()),
    outside=_OUTSIDE,
    follows=_FINALIZE,
    source="vLLM 0.25.1: its source and the kernel names in its compiled library; not yet confirmed by a real trace",
    anchor="act_quant",
)

_VLLM_CPU_MOE = KernelKind(
    name="vllm_cpu_moe",
    backend="vllm CPUUnquantizedExperts",
    numeric_formats=("bfloat16", "float32"),
    boundary=("permute", "experts", "activation", "unpermute", "topk_weight_and_reduce"),
    roles=(_role("operation", "experts", r"^cpu_fused_moe$"),),
    core=("operation",),
    variants=(
        Variant(
            name="one_operation",
            prefix=(),
            condition="always",
            applies=lambda shape: True,
            confirmed_by_trace=True,
        ),
    ),
    source="vllm-cpu 0.32.0: one host operation holds every stage; its caller times it on the host's clock",
    host_operation="cpu_fused_moe",
)

KINDS: dict[str, KernelKind] = {
    kind.name: kind for kind in (_VLLM_TRITON_MOE, _VLLM_TRITON_MOE_FP8_BLOCK, _VLLM_CPU_MOE)
}
"""Every registered kind by name."""
