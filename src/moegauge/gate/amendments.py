"""What an amendment may change: evidence mechanics, and the contract towards narrower. Never what decides.

The table lists the fields that may change; every other field of a registration, treatment, correctness, thresholds,
device policy and what a pass authorises included, is fixed from registration on.
"""

from __future__ import annotations

import msgspec

from moegauge import errors
from moegauge.records.registration import Registration

GROWING = frozenset(
    {
        "contract.predicates",
        "does_not_authorize",
        "exclusions",
        "disclosures",
        "identities",
        "stage0.required_checks",
        "stage0.commands",
    }
)
"""Lists that may get longer, and lose nothing."""

REPLACEABLE = frozenset({"code.lane", "code.devices", "code.environment"})
"""Where the lane's code is found; no rule depends on it."""

NARROWING = frozenset({"contract.predicates"})
"""Changes that make the contract narrower; before the source freeze only."""


def accept_amendment(before: Registration, after: Registration, *, frozen: bool) -> tuple[str, ...]:
    """Paths of the fields that an amendment changes, ascending.

    Args:
        before, after: the registration in force and the amended one.
        frozen: whether the sources are frozen.

    Raises:
        MisuseError: it changes nothing, changes a fixed field, shortens a list, or narrows the contract after freeze.
    """
    old, new = _leaves(before), _leaves(after)
    changed = tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))
    if not changed:
        raise _refused("amendment", "a change", "none", "Amend only what has to change.")
    for path in changed:
        if path in REPLACEABLE:
            continue
        if path not in GROWING:
            raise _refused(path, f"{old.get(path)!r}, as registered", repr(new.get(path)), "Register another lane.")
        lost = [item for item in _items(old[path]) if item not in _items(new[path])]
        if lost:
            raise _refused(path, f"{lost[0]!r} to stay", "it was taken out", "An amendment adds; it takes nothing out.")
        if frozen and path in NARROWING:
            raise _refused(
                path, "the contract as frozen", "a narrower one", "The contract is narrowed before the source freeze."
            )
    return changed


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _leaves(registration: Registration) -> dict[str, object]:
    """Fields by path, two levels deep: a list or a deeper record is one value."""
    leaves: dict[str, object] = {}
    for name, value in msgspec.to_builtins(registration).items():
        if isinstance(value, dict):
            leaves |= {f"{name}.{inner}": part for inner, part in value.items()}
        else:
            leaves[name] = value
    return leaves


def _refused(where: str, expected: str, found: str, remedy: str) -> errors.MisuseError:
    return errors.MisuseError(where=where, expected=expected, found=found, remedy=remedy)
