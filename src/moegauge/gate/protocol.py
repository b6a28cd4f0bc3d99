"""The only door to a verdict.

:class:`Gate` takes the steps of a lane one by one, in the order of docs/gate.md, and does no I/O: it gets records and
the digests of their files. It keeps the digest of the step before, so that steps cannot be reordered; it cannot skip,
repeat or leave a terminal state; and it accepts a verdict only where it comes to the same one from the evidence.

    Gate() -> accept(RegistrationStep) -> accept(Stage0Step) -> accept(AuditStep) twice -> accept(FreezeStep)
           -> accept(RehearsalStep) -> accept(PacketStep a) -> accept(VerdictStep, run) -> ... b ...

Loading rules:
  - a step is accepted in the states of ``ALLOWED`` alone, and only where ``number``, ``previous`` and time follow;
  - a stage 0 that fails leaves the lane REGISTERED, a rehearsal that fails takes the freeze back; both stay on record;
  - after a packet every failure is terminal.
"""

from __future__ import annotations

from moegauge import errors
from moegauge.gate.amendments import accept_amendment
from moegauge.gate.checks import audit_failures, freeze_failures, stage0_failures
from moegauge.gate.packets import packet_failures
from moegauge.gate.rehearsal import rehearsal_failures
from moegauge.gate.verdict import Case, Judged, RunEvidence, judge
from moegauge.records.decision import Reason
from moegauge.records.lane import (
    AmendmentStep,
    AuditStep,
    FreezeStep,
    RegistrationStep,
    RehearsalStep,
    Stage0Step,
    Step,
)
from moegauge.records.packet import PacketStep
from moegauge.records.registration import Registration
from moegauge.records.verdict import LaneStatus, VerdictStep

_S = LaneStatus
_BEFORE_FREEZE = frozenset({_S.REGISTERED, _S.STAGE0_PASS})

ALLOWED: dict[type[Step], frozenset[LaneStatus | None]] = {
    RegistrationStep: frozenset({None}),
    AmendmentStep: _BEFORE_FREEZE | {_S.SOURCE_FROZEN, _S.REHEARSED},
    Stage0Step: _BEFORE_FREEZE,
    AuditStep: _BEFORE_FREEZE,
    FreezeStep: frozenset({_S.STAGE0_PASS}),
    RehearsalStep: frozenset({_S.SOURCE_FROZEN}),
    PacketStep: frozenset({_S.REHEARSED, _S.COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS}),
    VerdictStep: frozenset({_S.PHASE_A_AUTHORIZED, _S.PHASE_B_AUTHORIZED}),
}
"""In which states each step is accepted; None is a lane that is not registered."""


class Gate:
    """A lane as far as its steps have been accepted. Attributes are read from outside, never set.

    Attributes:
        status: None before registration.
        reasons: why the last step left the status it did; empty after one that simply passed.
        registration: in force, amendments included. registration_digest: of the step it stands in.
        lane_id: digest of the registration step; what host state knows the lane by.
        stage0, audits, freeze, rehearsal, packet, verdict: last accepted, None where there is none.
    """

    def __init__(self) -> None:
        self.status: LaneStatus | None = None
        self.reasons: tuple[Reason, ...] = ()
        self.number = 0
        self.head: str | None = None
        self.at_ns = 0
        self.lane_id: str | None = None
        self.registration_digest = ""
        self.stage0: Stage0Step | None = None
        self.audits: tuple[AuditStep, ...] = ()
        self.freeze: FreezeStep | None = None
        self.freeze_digest = ""
        self.rehearsal: RehearsalStep | None = None
        self.packet: PacketStep | None = None
        self.packet_digest = ""
        self.verdict: VerdictStep | None = None
        self._registration: Registration | None = None

    @property
    def registration(self) -> Registration:
        """The registration in force.

        Raises:
            MisuseError: the lane is not registered.
        """
        if self._registration is None:
            raise errors.MisuseError(
                where="lane", expected="a registered lane", found="none", remedy="moegauge gate register LANE"
            )
        return self._registration

    def require(self, kind: type[Step]) -> None:
        """Refuse a step that is not next.

        Raises:
            MisuseError: the state does not allow it, or is terminal.
        """
        if self.status in ALLOWED[kind]:
            return
        if self.status is not None and self.status.terminal:
            raise errors.MisuseError(
                where=kind.kind,
                expected="a lane that is not at its end",
                found=f"{self.status}, which is terminal",
                remedy="There is no retry, rescue, source change or replacement packet; register another lane.",
            )
        raise errors.MisuseError(
            where=kind.kind,
            expected=f"a lane that is {' or '.join(sorted(one or 'not registered' for one in ALLOWED[kind]))}",
            found=self.status or "not registered",
            remedy="Take the steps in order: moegauge gate status LANE says what is next.",
        )

    def judge(self, run: RunEvidence) -> Judged:
        """Judge the authorised phase from its evidence."""
        self.require(VerdictStep)
        assert self.packet is not None  # noqa: S101 - a phase is authorised
        assert self.freeze is not None  # noqa: S101
        return judge(Case(self.registration, self.freeze, self.packet, self.packet_digest, run))

    def accept(self, step: Step, digest: str, run: RunEvidence | None = None) -> LaneStatus:
        """Accept the next step and return the status it leads to.

        Args:
            step: the step.
            digest: of its file.
            run: what the phase left behind; for a verdict alone.

        Raises:
            MisuseError: the step is not next, or its content cannot be accepted.
            Inconsistent: number, previous digest or time do not follow, or the evidence leads to another verdict.
        """
        self._follow(step)
        self.require(type(step))
        if isinstance(step, VerdictStep):
            self._verdict(step, run)
        elif isinstance(step, PacketStep):
            self._packet(step, digest)
        elif isinstance(step, RehearsalStep):
            self._rehearsal(step)
        elif isinstance(step, FreezeStep):
            self._freeze(step, digest)
        elif isinstance(step, AuditStep):
            self._audit(step)
        elif isinstance(step, Stage0Step):
            self._stage0(step)
        elif isinstance(step, RegistrationStep | AmendmentStep):
            self._register(step, digest)
        self.number, self.head, self.at_ns = step.number + 1, digest, step.at_ns
        assert self.status is not None  # noqa: S101 - every step leads to a status
        return self.status

    def _follow(self, step: Step) -> None:
        where = f"step {step.number}"
        if (step.number, step.previous) != (self.number, self.head):
            raise errors.Inconsistent(
                where=where,
                expected=f"step {self.number}, which holds {self.head or 'no digest'} as the step before",
                found=f"step {step.number}, which holds {step.previous or 'no digest'}",
                remedy="A step was removed, replaced or put in; restore the lane folder as it was.",
            )
        if step.at_ns < self.at_ns:
            raise errors.Inconsistent(
                where=where,
                expected=f"a time of at least {self.at_ns} ns, that of the step before",
                found=f"{step.at_ns} ns",
                remedy="The clock of this machine went back; set it right before the lane goes on.",
            )

    def _register(self, step: RegistrationStep | AmendmentStep, digest: str) -> None:
        if isinstance(step, AmendmentStep):
            frozen = self.status in {_S.SOURCE_FROZEN, _S.REHEARSED}
            changed = accept_amendment(self.registration, step.registration, frozen=frozen)
            if changed != step.changed or not (step.reason.strip() and step.date.strip()):
                raise _refused("amendment", f"a date, a reason and the changes {list(changed)}", str(step.changed))
        else:
            self.lane_id = digest
        self._registration, self.registration_digest = step.registration, digest
        self._back_to_registered(())

    def _back_to_registered(self, reasons: tuple[Reason, ...]) -> None:
        """Stage 0 and freeze have to be taken again; audits keep their place on record and are asked for again."""
        self.status, self.reasons = _S.REGISTERED, reasons
        self.stage0, self.freeze, self.rehearsal = None, None, None
        self.freeze_digest = ""

    def _stage0(self, step: Stage0Step) -> None:
        self.reasons = stage0_failures(self.registration, step)
        self.stage0 = None if self.reasons else step
        self.status = _S.REGISTERED if self.reasons else _S.STAGE0_PASS

    def _audit(self, step: AuditStep) -> None:
        words = step.text.casefold().split()
        if not words or any(words == audit.text.casefold().split() for audit in self.audits):
            raise _refused("audit", "a text of its own", "none, or that of an earlier audit")
        if set(step.commits) != {one.name for one in self.registration.sources} or not step.read:
            raise _refused("audit", "what was read, and the commit of every source", str(step.commits))
        self.audits += (step,)

    def _freeze(self, step: FreezeStep, digest: str) -> None:
        assert self.stage0 is not None  # noqa: S101 - STAGE0_PASS
        passed = {state.name: state.commit for state in self.stage0.sources}
        if step.commits != passed:
            raise _refused("source freeze", f"the commits that passed stage 0, {passed}", str(step.commits))
        failures = (*audit_failures(self.audits), *freeze_failures(self.registration, step))
        if failures:
            raise _refused("source freeze", "audits and fixtures that suffice", failures[0].sentence)
        self.freeze, self.freeze_digest = step, digest
        self.status, self.reasons = _S.SOURCE_FROZEN, ()

    def _rehearsal(self, step: RehearsalStep) -> None:
        assert self.freeze is not None  # noqa: S101 - SOURCE_FROZEN
        reasons = rehearsal_failures(step, self.freeze)
        if reasons:
            self._back_to_registered(reasons)
            return
        self.rehearsal = step
        self.status, self.reasons = _S.REHEARSED, ()

    def _packet(self, step: PacketStep, digest: str) -> None:
        phase = "a" if self.status is _S.REHEARSED else "b"
        if step.phase != phase:
            raise _refused("packet", f"a packet of phase {phase}", f"one of phase {step.phase}")
        assert self.freeze is not None  # noqa: S101 - REHEARSED
        failures = packet_failures(
            step,
            self.registration,
            self.freeze,
            registration_digest=self.registration_digest,
            freeze_digest=self.freeze_digest,
            before=self.packet,
            before_digest=self.packet_digest,
        )
        if failures:
            raise _refused("packet", "what was frozen", failures[0])
        self.packet, self.packet_digest = step, digest
        self.status = _S.PHASE_A_AUTHORIZED if phase == "a" else _S.PHASE_B_AUTHORIZED
        self.reasons = ()

    def _verdict(self, step: VerdictStep, run: RunEvidence | None) -> None:
        if run is None:
            raise _refused("verdict", "the evidence it is taken from", "none")
        judged = self.judge(run)
        said = Judged(step.status, step.devices)
        if (step.packet, said) != (self.packet_digest, judged):
            raise errors.Inconsistent(
                where=f"step {step.number}",
                expected=f"the verdict that the evidence leads to, {judged.status}",
                found=f"{step.status}, or other reasons and figures",
                remedy="The verdict or its evidence was edited; restore the lane folder as it was.",
            )
        self.verdict, self.status = step, step.status
        self.reasons = tuple(why for device in step.devices for why in device.reasons)


def _refused(where: str, expected: str, found: str) -> errors.MisuseError:
    return errors.MisuseError(
        where=where, expected=expected, found=found, remedy="Correct it; nothing was written or accepted."
    )
