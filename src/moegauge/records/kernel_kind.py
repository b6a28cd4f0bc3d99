"""A registered kernel kind as it is shown: what docs/kernels.md describes, without patterns that run code."""

from __future__ import annotations

import msgspec


class RoleView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel's part in the sequence.

    Attributes:
        name: of the role. stages: of the boundary that this one kernel does. pattern: regular expression in the name.
        exclusive: the name occurs in fused MoE work alone.
        told_apart: what the kernels of this one name are, in order; empty where the sequence holds it once.
        names: kernel names of the source.
    """

    name: str
    stages: tuple[str, ...]
    pattern: str
    exclusive: bool
    told_apart: tuple[str, ...]
    names: tuple[str, ...]


class VariantView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole sequence of roles, when it runs, and whether a real trace has shown it."""

    name: str
    sequence: tuple[str, ...]
    condition: str
    confirmed: bool


class RunnerView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter that runs the kind. ``missing_package``: why it cannot be imported here; None where it can."""

    name: str
    missing_package: str | None


class KernelKindView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One registered kernel kind.

    Attributes:
        name, backend: of the kind. numeric_formats: what its GEMMs read.
        confirmed: a real trace has shown these names in this order. source: where they come from.
        boundary: stages inside the measured interval. outside: known stages that are not -> pattern.
        roles, variants: kernels by role, and the sequences they run in.
        host_operation: what runs on the host's clock; None for device kernels.
        runners: adapters that run the kind.
    """

    name: str
    backend: str
    numeric_formats: tuple[str, ...]
    confirmed: bool
    source: str
    boundary: tuple[str, ...]
    outside: dict[str, str]
    roles: tuple[RoleView, ...]
    variants: tuple[VariantView, ...]
    host_operation: str | None
    runners: tuple[RunnerView, ...]
