"""A lane's code: where it is imported from, its digests, and the digest of moegauge itself."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import moegauge
from moegauge import errors
from moegauge.evidence.digest import bytes_digest, file_digest, record_digest
from moegauge.evidence.lane_folder import Kept
from moegauge.records.lane import AmendmentStep, RegistrationStep
from moegauge.records.registration import Registration


def source_paths(registration: Registration, root: Path) -> dict[str, Path]:
    """Folder of each source, by name. ``root``: what the registered paths are relative to, the lane folder."""
    return {one.name: (root / one.path).resolve() for one in registration.sources}


def put_on_path(registration: Registration, root: Path) -> None:
    """Import the lane's code from its first source before anything else."""
    sys.path.insert(0, str(next(iter(source_paths(registration, root).values()))))
    importlib.invalidate_caches()


def entry(text: str) -> Any:
    """What an entry ``package.module:NAME`` names.

    Raises:
        MisuseError: no such module or name, or the module cannot be imported.
    """
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise errors.MisuseError(
            where=text,
            expected="a module of the lane's code that can be imported here, with that name in it",
            found=str(error),
            remedy="Check code.lane and code.devices of the registration.",
        ) from error


def code_digests(registration: Registration, root: Path) -> dict[str, str]:
    """Digest of every module beside the entries, the entries included; by path from the first source.

    Modules of an installed package are named by their path from its root. Nothing is imported.
    """
    first = next(iter(source_paths(registration, root).values()))
    found = {}
    for text in (registration.code.lane, registration.code.devices):
        file = _module_file(text.partition(":")[0], first)
        beside = sorted(file.parent.rglob("*.py")) if (file.parent / "__init__.py").is_file() else [file]
        for path in beside:
            name = path.relative_to(first if first in path.parents else _package_root(path)).as_posix()
            found[name] = file_digest(path)
    return found


def _package_root(path: Path) -> Path:
    """The folder that a module's outermost package lies in."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return root


def _module_file(module: str, first: Path) -> Path:
    for candidate in (first / f"{module.replace('.', '/')}.py", first / module.replace(".", "/") / "__init__.py"):
        if candidate.is_file():
            return candidate
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise errors.MisuseError(
            where=module,
            expected="a module in the first source, or an installed one",
            found="none",
            remedy="Check code.lane and code.devices of the registration.",
        )
    return Path(spec.origin)


def tool_digest() -> str:
    """Digest over every module of moegauge: ``moegauge-modules-v1+sha256:<hex>``."""
    root = Path(moegauge.__file__).parent
    files = {path.relative_to(root).as_posix(): file_digest(path) for path in sorted(root.rglob("*.py"))}
    return "moegauge-modules-v1+" + bytes_digest(record_digest(files).encode())


def registration_in_force(steps: Iterable[Kept]) -> Registration | None:
    """The registration of the last step that has one; None where there is none."""
    registered = [one.record.registration for one in steps if isinstance(one.record, RegistrationStep | AmendmentStep)]
    return registered[-1] if registered else None
