"""The steps of a lane before a packet: registration, amendment, stage 0, audit, source freeze, rehearsal.

Each step is a file of its own and holds the digest of the step before it, so that the order they were taken in
cannot be changed afterwards. See docs/formats/lane.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from moegauge.records.adequacy import MutationResult
from moegauge.records.capture import FileDigest
from moegauge.records.registration import Registration
from moegauge.records.schema import Record


class Step(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every step says.

    Attributes:
        number: place in the lane, from 0.
        previous: digest of the file of the step before; None for the first.
        at_ns: UTC time the step was taken, ns since 1970. No step is earlier than the one before it.
        tool_version: moegauge version that took it.
        files: further files of the lane folder that belong to the step, by POSIX path.
    """

    number: int
    previous: str | None
    at_ns: int
    tool_version: str
    files: dict[str, FileDigest]


class RegistrationStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The registration, frozen. ``files`` holds registration.toml and every exploration that came before."""

    kind: ClassVar[str] = "gate-registration"
    version: ClassVar[int] = 1

    registration: Registration


class AmendmentStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dated change of the registration, with its reason.

    Attributes:
        registration: the whole registration as amended.
        changed: paths of the fields that differ from before, ascending.
    """

    kind: ClassVar[str] = "gate-amendment"
    version: ClassVar[int] = 1

    date: str
    reason: str
    registration: Registration
    changed: tuple[str, ...]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check of stage 0: how many cases it held something against, and what it found."""

    name: str
    passed: bool
    num_cases: int
    sentence: str


class SourceState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source repository as it stood.

    Attributes:
        commit: what is checked out.
        changed_paths: files that differ between the starting commit and this one.
        uncommitted: files that differ from the commit, or are not tracked; the lane's own folder is left out.
    """

    name: str
    commit: str
    changed_paths: tuple[str, ...]
    uncommitted: tuple[str, ...]


class Stage0Step(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pass of stage 0 over the sources as they stand. Repeatable until the source freeze.

    Attributes:
        mutations: by subject, every wrong candidate of the lane's code and the words it was killed by.
        coverage: by subject, what was counted over the fixtures, by the name of the registered bound.
        device_libraries: device libraries that were loaded while it ran; none ever is.
    """

    kind: ClassVar[str] = "gate-stage0"
    version: ClassVar[int] = 1

    sources: tuple[SourceState, ...]
    checks: tuple[CheckResult, ...]
    mutations: dict[str, MutationResult]
    coverage: dict[str, dict[str, int]]
    device_libraries: tuple[str, ...]


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something an audit found, and the commit that closed it; None while it is open."""

    sentence: str
    closing_commit: str | None = None


class AuditStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A read-only audit of the sources.

    Attributes:
        auditor: who audited. A convention, not a proof of identity.
        text: the audit in its author's words; no two of a lane are the same.
        commits: commit of each source that was read, by name.
        read: what was read, one line each.
        findings: none where nothing was found.
    """

    kind: ClassVar[str] = "gate-audit"
    version: ClassVar[int] = 1

    auditor: str
    text: str
    commits: dict[str, str]
    read: tuple[str, ...]
    findings: tuple[AuditFinding, ...]


class FixtureDigests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fixture: digest of its inputs, and of the oracle's words at every boundary."""

    inputs: str
    oracle: dict[str, str]


class FreezeStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sources, the tool and the fixtures that every later step has to find again.

    Attributes:
        commits: commit of each source, by name; all clean.
        tool_digest: digest over the modules of moegauge.
        code: digest of every module file of the lane's code, by module name.
        fixtures: fixtures by subject and name.
    """

    kind: ClassVar[str] = "gate-freeze"
    version: ClassVar[int] = 1

    commits: dict[str, str]
    tool_digest: str
    code: dict[str, str]
    fixtures: dict[str, dict[str, FixtureDigests]]


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rehearsed campaign: the fault that was put in, the status it had to end in, and the one it ended in."""

    fault: str
    expected: str
    found: str
    sentence: str

    @property
    def passed(self) -> bool:
        """Whether it ended as it had to."""
        return self.expected == self.found


class RehearsalStep(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole runner, analyser and packet code against a simulated device.

    A rehearsal with a campaign that ended otherwise invalidates the freeze.
    """

    kind: ClassVar[str] = "gate-rehearsal"
    version: ClassVar[int] = 1

    tool_digest: str
    campaigns: tuple[Rehearsed, ...]


Phase = Literal["a", "b"]
