"""Kernel kinds as text and rows."""

from __future__ import annotations

from collections.abc import Iterable

from moegauge.records.kernel_kind import KernelKindView, RoleView

KIND_HEADINGS = ("kind", "backend", "formats", "boundary", "confirmed by a trace", "runners")
ROLE_HEADINGS = ("role", "stages", "pattern in the kernel's name", "names, as the source has them")
VARIANT_HEADINGS = ("variant", "sequence", "when", "confirmed")


def kind_rows(kinds: Iterable[KernelKindView]) -> list[tuple[str, ...]]:
    """One row a kind."""
    return [
        (
            kind.name,
            kind.backend,
            ", ".join(kind.numeric_formats),
            " → ".join(kind.boundary),
            _yes(kind.confirmed),
            runners_text(kind),
        )
        for kind in kinds
    ]


def runners_text(kind: KernelKindView) -> str:
    """The runners of a kind, and what each of them lacks here."""
    found = [
        one.name if one.missing_package is None else f"{one.name} (not here: no package {one.missing_package})"
        for one in kind.runners
    ]
    return ", ".join(found) or "none"


def role_rows(kind: KernelKindView) -> list[tuple[str, ...]]:
    """One row a role."""
    return [(_role_name(role), "+".join(role.stages), role.pattern, "\n".join(role.names)) for role in kind.roles]


def variant_rows(kind: KernelKindView) -> list[tuple[str, ...]]:
    """One row a variant."""
    return [(one.name, " ".join(one.sequence), one.condition, _yes(one.confirmed)) for one in kind.variants]


def kind_facts(kind: KernelKindView) -> list[tuple[str, str]]:
    """What a kind is, without its kernels."""
    return [
        ("kind", kind.name),
        ("backend", kind.backend),
        ("formats", ", ".join(kind.numeric_formats)),
        ("boundary", " → ".join(kind.boundary)),
        *((f"outside: {name}", pattern) for name, pattern in kind.outside.items()),
        ("clock", "device" if kind.host_operation is None else f"host, around {kind.host_operation}"),
        ("confirmed", _confirmed(kind)),
        ("source", kind.source),
        ("runners", runners_text(kind)),
    ]


def _confirmed(kind: KernelKindView) -> str:
    if kind.confirmed:
        return "yes, by real recordings"
    return "no: read from source text; a capture takes it only by --kind"


def _role_name(role: RoleView) -> str:
    return role.name if not role.told_apart else f"{role.name} ({', then '.join(role.told_apart)})"


def _yes(confirmed: bool) -> str:
    return "yes" if confirmed else "no"
