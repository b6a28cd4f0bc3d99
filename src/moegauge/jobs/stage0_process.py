"""The process in which a lane's host half runs: no device library can be imported in it.

    python -m moegauge.jobs.stage0_process checks|fixtures ROOT < registration.json

Writes one JSON line to stdout. Whatever the lane's code prints goes to stderr.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import msgspec

from moegauge import errors
from moegauge.evidence.digest import arrays_digest
from moegauge.gate.checks import COMPILE
from moegauge.gate.mutation import Mutant, check_mutation_adequacy
from moegauge.gate.ports import Inputs, Lane
from moegauge.jobs.lane_code import entry, put_on_path, source_paths
from moegauge.records.adequacy import MutationResult
from moegauge.records.lane import CheckResult, FixtureDigests
from moegauge.records.registration import Registration
from moegauge.records.subject import Subject

DEVICE_LIBRARIES = (
    "torch",
    "triton",
    "vllm",
    "vllm_xpu_kernels",
    "intel_extension_for_pytorch",
    "cupy",
    "cuda",
    "pynvml",
    "pycuda",
    "jax",
    "numba",
    "pyopencl",
    "dpctl",
)
"""What can reach a device; importing any of them, or what lies in it, fails here."""


class Stage0Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the process found.

    Attributes:
        checks: results, in the order they came. fixtures: digests by subject and fixture; empty unless asked for.
        mutations, coverage: by subject; empty unless checks were asked for.
        device_libraries: those that are loaded at the end; none ever is.
    """

    checks: tuple[CheckResult, ...] = ()
    fixtures: dict[str, dict[str, FixtureDigests]] = {}
    mutations: dict[str, MutationResult] = {}
    coverage: dict[str, dict[str, int]] = {}
    device_libraries: tuple[str, ...] = ()


class NoDeviceLibraries(MetaPathFinder):
    """Refuses to find any device library."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for a device library, and leave everything else to the next finder."""
        if fullname.partition(".")[0] in DEVICE_LIBRARIES:
            raise ImportError(f"{fullname} is a device library; stage 0 runs without any")
        return None


def main(arguments: Sequence[str]) -> int:
    """Run the host half of a lane and print what it found."""
    what, root = arguments[0], Path(arguments[1])
    sys.meta_path.insert(0, NoDeviceLibraries())
    answer_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    registration = msgspec.json.decode(sys.stdin.buffer.read(), type=Registration)
    put_on_path(registration, root)
    if what == "checks":
        answer = _checks(registration, root)
    else:
        answer = Stage0Answer(fixtures=_fixtures(registration), device_libraries=_loaded())
    answer_to.write(msgspec.json.encode(answer))
    answer_to.close()
    return 0


def _loaded() -> tuple[str, ...]:
    return tuple(sorted({name.partition(".")[0] for name in sys.modules} & set(DEVICE_LIBRARIES)))


def _checks(registration: Registration, root: Path) -> Stage0Answer:
    checks = [_compile(registration, root)]
    mutations: dict[str, MutationResult] = {}
    coverage: dict[str, dict[str, int]] = {}
    try:
        lane: Lane = entry(registration.code.lane)
        checks += lane.checks()
        for subject in registration.subjects:
            mutations[subject.name] = mutation_result(lane, subject)
            coverage[subject.name] = dict(lane.coverage(subject.name))
    except Exception as error:
        cause = error.found if isinstance(error, errors.MoegaugeError) else f"{type(error).__name__}: {error}"
        checks.append(CheckResult(name="lane code", passed=False, num_cases=1, sentence=f"it raised {cause}"))
    return Stage0Answer(checks=tuple(checks), mutations=mutations, coverage=coverage, device_libraries=_loaded())


def mutation_result(lane: Lane, subject: Subject) -> MutationResult:
    """Every mutant on the fixture that is registered to kill it, where the corpus still has it."""
    name, there = subject.name, set(lane.fixtures(subject.name))

    def by_fixture(mutant: Mutant[Inputs]) -> Mutant[str]:
        return Mutant(mutant.name, mutant.breaks, lambda fixture: mutant.run(lane.inputs(name, fixture)))

    return check_mutation_adequacy(
        [by_fixture(mutant) for mutant in lane.mutants(name)],
        subject.kills,
        fixture=lambda fixture: fixture if fixture in there else None,
        oracle=lambda fixture: lane.oracle(name, fixture),
        dtypes={one.name: one.dtype for one in subject.boundaries},
    )


def _compile(registration: Registration, root: Path) -> CheckResult:
    """Every registered Python file that is there parses and compiles."""
    paths = source_paths(registration, root)
    files = [paths[source.name] / name for source in registration.sources for name in source.changed_paths]
    python = [path for path in files if path.suffix == ".py" and path.is_file()]
    for path in python:
        try:
            compile(ast.parse(path.read_bytes(), filename=path.name), path.name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return CheckResult(name=COMPILE, passed=False, num_cases=len(python), sentence=f"{path.name}: {error}")
    return CheckResult(name=COMPILE, passed=True, num_cases=len(python), sentence=f"{len(python)} files compile")


def _fixtures(registration: Registration) -> dict[str, dict[str, FixtureDigests]]:
    lane: Lane = entry(registration.code.lane)
    return {
        subject.name: {
            name: FixtureDigests(
                inputs=arrays_digest(lane.inputs(subject.name, name)),
                oracle={
                    boundary: arrays_digest({boundary: words})
                    for boundary, words in lane.oracle(subject.name, name).items()
                },
            )
            for name in lane.fixtures(subject.name)
        }
        for subject in registration.subjects
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
