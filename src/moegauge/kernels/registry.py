"""Kernel kinds by name. Each is an entry of a module in ``kinds``; what an entry says stands in ``kind``."""

from __future__ import annotations

from moegauge import errors
from moegauge.kernels.kind import InvocationShape, KernelKind, Role, Variant
from moegauge.kernels.kinds import FAMILIES

__all__ = [
    "KINDS",
    "InvocationShape",
    "KernelKind",
    "Role",
    "Variant",
    "host_operation",
    "kernel_kind",
    "numeric_format_in",
]

KINDS: dict[str, KernelKind] = {kind.name: kind for family in FAMILIES for kind in family}
"""Every registered kind by name."""


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
