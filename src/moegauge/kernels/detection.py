"""Which registered kind's kernels a trace holds: by name first, by whole sequences where names do not decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moegauge import errors
from moegauge.kernels.kind import KernelKind, not_seen
from moegauge.kernels.registry import KINDS, kernel_kind
from moegauge.kernels.sequences import StreamOrder
from moegauge.kernels.trace import Trace
from moegauge.records.capture import Finding


def kind_in(name: str | None, traces: Sequence[Trace]) -> KernelKind:
    """The kind named, or the only one whose kernels the traces hold; a named one must be there too.

    A kind that no real trace has confirmed is taken only where it is named.

    Raises:
        Incomplete: no kind's kernels, those of several, or those of an unconfirmed kind that was not named.
    """
    kinds = list(KINDS.values()) if name is None else [kernel_kind(name)]
    fits = fitting_kinds(kinds, traces)
    if len(fits) == 1 and (name is not None or fits[0].confirmed):
        return fits[0]
    raise errors.Incomplete(
        where=traces[0].source,
        expected=f"kernels of one registered kind ({', '.join(kind.name for kind in kinds)})",
        found=_other_kernels(kinds, fits, traces),
        remedy="Profile the device while it runs the kernel, give --kind, or register the kernel kind.",
    )


def unconfirmed(kind: KernelKind) -> tuple[Finding, ...]:
    """What a capture has to say where its kind is a hypothesis."""
    if kind.confirmed:
        return ()
    sentence = f"no real trace has confirmed the kernel names of {kind.name}; they are read from source text"
    return (Finding(code="KIND_NOT_CONFIRMED", sentence=sentence, num=1),)


def _other_kernels(kinds: Sequence[KernelKind], fits: Sequence[KernelKind], traces: Sequence[Trace]) -> str:
    if not fits:
        seen = {one for trace in traces for one in trace.op_names(kernels_only=False)}
        return not_seen(kinds[0].name if len(kinds) == 1 else "any of them", seen)
    if len(fits) == 1:
        return f"kernels of {fits[0].name}, a kind that no real trace has confirmed: it is taken only by --kind"
    return f"several: {[kind.name for kind in fits]}"


def fitting_kinds(kinds: Iterable[KernelKind], traces: Sequence[Trace]) -> list[KernelKind]:
    """The kinds whose kernels the traces hold; several only where neither names nor sequences tell them apart.

    Kinds share names (every Triton format runs ``fused_moe_kernel``), so each step is asked only while several are
    left, and a step that would leave none decides nothing.
    """
    names = {name for trace in traces for name in trace.op_names(kernels_only=True)}
    fits = [kind for kind in kinds if kind.runs_in(names)]
    if len(fits) > 1:
        names |= {trace.names[index] for trace in traces for index in trace.invalid.name.tolist()}
        fits = [kind for kind in fits if kind.every_role_in(names)] or fits
    if len(fits) > 1:
        fits = [kind for kind in fits if any(len(StreamOrder(trace, kind).cores()) for trace in traces)] or fits
    return fits
