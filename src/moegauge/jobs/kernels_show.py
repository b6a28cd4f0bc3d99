"""moegauge kernels: the registered kernel kinds, and which of them can be run here."""

from __future__ import annotations

from moegauge.adapters.runners.registry import RUNNERS, missing_package
from moegauge.kernels.kind import KernelKind
from moegauge.kernels.registry import KINDS, kernel_kind
from moegauge.records.kernel_kind import KernelKindView, RoleView, RunnerView, VariantView


def kernel_views() -> list[KernelKindView]:
    """Every registered kind, in the order of the registry."""
    return [_view(kind) for kind in KINDS.values()]


def kernel_view(name: str) -> KernelKindView:
    """One registered kind.

    Raises:
        MisuseError: not registered.
    """
    return _view(kernel_kind(name))


def _view(kind: KernelKind) -> KernelKindView:
    outside = {name: pattern.pattern for name, pattern in kind.outside.items()}
    if kind.follows is not None:
        outside[kind.follows[0]] = f"right behind the last kernel: {kind.follows[1].pattern}"
    return KernelKindView(
        name=kind.name,
        backend=kind.backend,
        numeric_formats=kind.numeric_formats,
        confirmed=kind.confirmed,
        source=kind.source,
        boundary=kind.boundary,
        outside=outside,
        roles=tuple(
            RoleView(
                name=role.name,
                stages=(role.stage, *role.covers),
                pattern=role.pattern.pattern,
                exclusive=role.exclusive,
                told_apart=kind.told_apart.get(role.name, ()),
                names=role.names,
            )
            for role in kind.roles
        ),
        variants=tuple(
            VariantView(
                name=variant.name,
                sequence=(*variant.prefix, *kind.core),
                condition=variant.condition,
                confirmed=variant.confirmed_by_trace,
            )
            for variant in kind.variants
        ),
        host_operation=kind.host_operation,
        runners=tuple(
            RunnerView(name=name, missing_package=missing_package(name))
            for name, (of_kind, *_) in RUNNERS.items()
            if of_kind == kind.name
        ),
    )
