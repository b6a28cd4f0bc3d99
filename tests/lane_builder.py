"""Builds lanes in memory: registrations, steps and runs that pass, from which a test takes or changes one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moegauge.evidence.digest import record_digest
from moegauge.gate.protocol import Gate
from moegauge.gate.rehearsal import FAULTS, expected_status, fault_label
from moegauge.gate.verdict import RunEvidence, Seen
from moegauge.records.adequacy import MutationResult
from moegauge.records.decision import reason
from moegauge.records.lane import (
    AmendmentStep,
    AuditFinding,
    AuditStep,
    CheckResult,
    FixtureDigests,
    FreezeStep,
    RegistrationStep,
    RehearsalStep,
    Rehearsed,
    SourceState,
    Stage0Step,
    Step,
)
from moegauge.records.observation import (
    ArmSample,
    BindingObservation,
    BlockObservation,
    BoundaryWords,
    EndObservation,
    ExactnessObservation,
    FixtureObservation,
    Observation,
    RepeatObservation,
)
from moegauge.records.packet import ConsumedMarker, DeviceIdentity, PacketStep, Surroundings
from moegauge.records.registration import Registration

COMMIT = "a" * 40
LATER = "b" * 40

REGISTRATION: dict[str, Any] = {
    "lane": "scale-add",
    "date": "2026-11-29",
    "question": "May one launch replace two?",
    "contract": {"platform": "cpu", "selector": "FUSED=1", "predicates": ["rows are 8"]},
    "subjects": [
        {
            "name": "scale-add",
            "incumbent": {"description": "scale, then add", "kernels": ["scale", "add"], "launches_per_cycle": 94},
            "candidate": {"description": "one launch", "kernels": ["scale_add"], "launches_per_cycle": 47},
            "calls_per_cycle": 47,
            "boundaries": [{"name": "final", "dtype": "bfloat16", "shape": [2, 2]}],
            "corpus": [{"name": "random", "num_fixtures": 3}, {"name": "edges", "num_fixtures": 1}],
            "exactness": {
                "num_repeats": 4,
                "repeat_fixtures": ["random/0"],
                "poison_words": [0x7FC1, 0xA5A5],
                "incumbent_vs_oracle": "equal",
            },
            "timing": {
                "warmup_cycles": 20,
                "num_blocks": 31,
                "cycles_per_arm": 64,
                "min_wins": 28,
                "min_median_saving_ns": 150_000,
            },
        }
    ],
    "counters": {
        "reader": "ncu",
        "cache_control": "none",
        "discarded_cycles": 1,
        "num_cycles": 2,
        "quantities": [
            {"name": "read_bytes", "metrics": ["bytes.sum"], "unit": "byte", "over_launches": "sum_per_cycle"}
        ],
        "rules": [{"quantity": "read_bytes", "rule": "at_most_ratio", "limit": "1.02"}],
    },
    "devices": {"names": ["card0"], "throttle": "forbidden"},
    "sources": [{"name": "kernel", "path": "..", "starting_commit": COMMIT, "changed_paths": ["kernel.py"]}],
    "code": {"lane": "my_lane.host:LANE", "devices": "my_lane.device:DEVICES"},
    "stage0": {"required_checks": ["guards"]},
    "identities": ["runtime"],
    "authorizes": "an endpoint preregistration",
    "does_not_authorize": ["an endpoint"],
    "exclusions": ["services"],
}


def registration(**changes: Any) -> Registration:
    """The registration with fields replaced; a name with ``__`` reaches into a record."""
    data = msgspec.to_builtins(msgspec.convert(REGISTRATION, Registration))
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner = data
        for parent in parents:
            inner = inner[int(parent) if parent.isdigit() else parent]
        inner[last] = value
    return msgspec.convert(data, Registration, strict=True)


@dataclass
class LaneBuilder:
    """A lane that is taken step by step; every method takes one step and says the status."""

    reg: Registration = field(default_factory=registration)
    gate: Gate = field(default_factory=Gate)
    at_ns: int = 1000
    steps: list[Step] = field(default_factory=list)

    def head(self) -> dict[str, Any]:
        self.at_ns += 10
        return {
            "number": self.gate.number,
            "previous": self.gate.head,
            "at_ns": self.at_ns,
            "tool_version": "test",
            "files": {},
        }

    def take(self, step: Step, run: RunEvidence | None = None) -> str:
        status = self.gate.accept(step, record_digest(step), run)
        self.steps.append(step)
        return str(status)

    def make(self, kind: type[Step], **values: Any) -> Any:
        return kind(schema=kind.tag(), **(self.head() | values))

    def register(self) -> str:
        return self.take(self.make(RegistrationStep, registration=self.reg))

    def amend(self, after: Registration, changed: tuple[str, ...], **values: Any) -> str:
        step = self.make(
            AmendmentStep,
            registration=after,
            changed=changed,
            **({"date": "2026-11-30", "reason": "one more exclusion"} | values),
        )
        status = self.take(step)
        self.reg = after
        return status

    def stage0_step(self, **values: Any) -> Stage0Step:
        checks = tuple(
            CheckResult(name=name, passed=True, num_cases=2, sentence="held") for name in ("compile", "guards")
        )
        state = SourceState(name="kernel", commit=LATER, changed_paths=("kernel.py",), uncommitted=())
        return self.make(
            Stage0Step,
            **(
                {
                    "sources": (state,),
                    "checks": checks,
                    "device_libraries": (),
                    "coverage": self.no_counts(),
                    "mutations": self.no_mutants(),
                }
                | values
            ),
        )

    def no_mutants(self) -> dict[str, MutationResult]:
        why = reason("NO_CHECKS", "There are no mutants.")
        return {one.name: MutationResult(checks=(), passed=False, reasons=(why,)) for one in self.reg.subjects}

    def no_counts(self) -> dict[str, dict[str, int]]:
        return {one.name: {} for one in self.reg.subjects}

    def audit_step(self, auditor: str, text: str, **values: Any) -> AuditStep:
        return self.make(
            AuditStep,
            **(
                {
                    "auditor": auditor,
                    "commits": {"kernel": LATER},
                    "read": ("kernel.py",),
                    "findings": (AuditFinding(sentence="half the columns", closing_commit=LATER),),
                    "text": text,
                }
                | values
            ),
        )

    def fixtures(self) -> dict[str, dict[str, FixtureDigests]]:
        return {
            subject.name: {
                f"{family.name}/{i}": FixtureDigests(
                    inputs=f"in-{family.name}-{i}",
                    oracle={one.name: f"words-{one.name}-{family.name}-{i}" for one in subject.boundaries},
                )
                for family in subject.corpus
                for i in range(family.num_fixtures)
            }
            for subject in self.reg.subjects
        }

    def freeze_step(self, **values: Any) -> FreezeStep:
        return self.make(
            FreezeStep,
            **(
                {
                    "commits": {"kernel": LATER},
                    "tool_digest": "tool",
                    "code": {"my_lane.host": "host"},
                    "fixtures": self.fixtures(),
                }
                | values
            ),
        )

    def rehearsal_step(self, **values: Any) -> RehearsalStep:
        campaigns = tuple(
            Rehearsed(
                fault=fault_label(fault),
                expected=str(expected_status(fault, self.reg)),
                found=str(expected_status(fault, self.reg)),
                sentence="",
            )
            for fault in FAULTS
        )
        return self.make(RehearsalStep, **({"tool_digest": "tool", "campaigns": campaigns} | values))

    def surroundings(self, name: str, phase: str = "a", **values: Any) -> Surroundings:
        return Surroundings(
            **(
                {
                    "device": DeviceIdentity(
                        uuid=f"GPU-{name}",
                        bus_id=f"bus-{name}",
                        model="test",
                        versions={"runtime": "1"},
                        libraries={"kernel.so": "so"},
                    ),
                    "boot_id": "boot",
                    "commits": {"kernel": LATER},
                    "uncommitted": (),
                    "tool_digest": "tool",
                    "code": {"my_lane.host": "host"},
                    "argv": ("python", phase, name),
                    "environment": {"LC_ALL": "C.UTF-8"},
                }
                | values
            )
        )

    def packet_step(self, phase: str, **values: Any) -> PacketStep:
        return self.make(
            PacketStep,
            **(
                {
                    "phase": phase,
                    "registration": self.gate.registration_digest,
                    "freeze": self.gate.freeze_digest,
                    "previous_packet": self.gate.packet_digest if phase == "b" else None,
                    "devices": {name: self.surroundings(name, phase) for name in self.reg.devices.names},
                    "expected_schema": (),
                }
                | values
            ),
        )

    def to_rehearsed(self) -> LaneBuilder:
        self.register()
        self.take(self.stage0_step())
        self.take(self.audit_step("first", "text one"))
        self.take(self.audit_step("second", "text two"))
        self.take(self.freeze_step())
        self.take(self.rehearsal_step())
        return self

    def to_authorized(self) -> LaneBuilder:
        self.to_rehearsed()
        self.take(self.packet_step("a"))
        return self

    # --- runs ---------------------------------------------------------------------------------------------------------

    def marker(self) -> ConsumedMarker:
        packet = self.gate.packet
        assert packet is not None
        return ConsumedMarker(
            schema=ConsumedMarker.tag(),
            packet=self.gate.packet_digest,
            registration=self.gate.registration_digest,
            phase=packet.phase,
            at_ns=self.at_ns,
            boot_id="boot",
        )

    def observations(self, device: str = "card0") -> list[tuple[type[Observation], dict[str, Any]]]:
        """A run of phase a that passes, as kinds and their own fields."""
        found: list[tuple[type[Observation], dict[str, Any]]] = [
            (BindingObservation, {"surroundings": self.surroundings(device)})
        ]
        for moment in ("pre", "post"):
            for subject in self.reg.subjects:
                if moment == "post" and subject.timing is not None:
                    found += [
                        (
                            BlockObservation,
                            block(subject.name, i, i * subject.calls_per_cycle % len(self.fixtures()[subject.name])),
                        )
                        for i in range(subject.timing.num_blocks)
                    ]
                for family in subject.corpus:
                    names = [name for name in self.fixtures()[subject.name] if name.startswith(f"{family.name}/")]
                    fixtures = tuple(self.fixture(subject.name, name) for name in names)
                    fields = {"subject": subject.name, "moment": moment, "family": family.name, "fixtures": fixtures}
                    found.append((ExactnessObservation, fields))
                if moment == "pre":
                    found += [
                        (
                            RepeatObservation,
                            {
                                "subject": subject.name,
                                "arm": arm,
                                "fixture": fixture,
                                "digests": {"words": subject.exactness.num_repeats},
                            },
                        )
                        for fixture in subject.exactness.repeat_fixtures
                        for arm in ("incumbent", "candidate")
                    ]
        found.append((EndObservation, {"stopped_before": None}))
        return found

    def fixture(self, subject: str, name: str) -> FixtureObservation:
        frozen = self.fixtures()[subject][name]
        return FixtureObservation(
            fixture=name,
            inputs_before=frozen.inputs,
            inputs_after=frozen.inputs,
            boundaries={
                boundary: BoundaryWords(
                    incumbent=(words, words),
                    candidate=(words, words),
                    torch_equal=True,
                    contains_nan=False,
                    mismatch=None,
                )
                for boundary, words in frozen.oracle.items()
            },
        )

    def run(
        self, observations: Sequence[tuple[type[Observation], dict[str, Any]]] | None = None, device: str = "card0"
    ) -> RunEvidence:
        """Evidence of one device, chained and numbered."""
        marker = self.marker()
        seen: list[Seen] = []
        previous = record_digest(marker)
        for number, (kind, fields) in enumerate(self.observations(device) if observations is None else observations):
            common = {"number": number, "previous": previous, "at_ns": self.at_ns + number, "device": device}
            one = kind(schema=kind.tag(), **(common | fields))
            previous = record_digest(one)
            seen.append(Seen(one, previous))
        return RunEvidence(marker=marker, marker_digest=record_digest(marker), devices={device: seen})


def block(subject: str, number: int, first_fixture: int, *, a: int = 40_000_000, b: int = 30_000_000) -> dict[str, Any]:
    """A block of 64 cycles whose saving is (a - b) / 64 per cycle."""
    incumbent = ArmSample(elapsed_ns=a, num_launches=94 * 64, throttle="none")
    candidate = ArmSample(elapsed_ns=b, num_launches=47 * 64, throttle="none")
    return {
        "subject": subject,
        "block": number,
        "first_fixture": first_fixture,
        "a1": incumbent,
        "b1": candidate,
        "b2": candidate,
        "a2": incumbent,
    }
