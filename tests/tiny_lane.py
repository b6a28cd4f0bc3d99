"""A lane on disk that needs no torch: a git repository, a candidate of a chosen kind, and a device of integers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from moegauge.evidence.host_state import HostState
from moegauge.gate.rehearsal import FAULTS, expected_status, fault_label
from moegauge.jobs.gate_draft import new_lane, register
from moegauge.jobs.gate_packets import authorize
from moegauge.jobs.gate_run import run
from moegauge.jobs.gate_stage0 import audit, check, freeze
from moegauge.jobs.lane_code import tool_digest
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.records.lane import Phase, RehearsalStep, Rehearsed

HOST = '''
"""Host half: two numbers a word."""
import numpy as np
from moegauge.gate.mutation import Mutant
from moegauge.records.lane import CheckResult

SHAPE = (2, 4)


class Lane:
    def fixtures(self, subject):
        return ("random/0", "random/1", "random/2", "edges/zero")

    def inputs(self, subject, fixture):
        seed = self.fixtures(subject).index(fixture)
        return {"x": (np.arange(8, dtype=np.uint16) * (seed * 37)).reshape(SHAPE)}

    def oracle(self, subject, fixture):
        x = self.inputs(subject, fixture)["x"]
        return {"final": (x + np.uint16(1)).astype(np.uint16)}

    def checks(self):
        yield CheckResult(name="guards", passed=True, num_cases=3, sentence="held")

    def mutants(self, subject):
        return (Mutant("two more", "adds 2", lambda given: {"final": (given["x"] + np.uint16(2)).astype(np.uint16)}),)

    def coverage(self, subject):
        return {"fixtures": len(self.fixtures(subject))}


LANE = Lane()
'''

DEVICE = '''
"""Device half: a processor that counts."""
import numpy as np
from moegauge.adapters.counters.torch_profiler import profile_bytes
from moegauge.gate.ports import Outputs
from moegauge.records.observation import ArmSample
from moegauge.records.packet import DeviceIdentity
from tiny import candidate


class Device:
    def __init__(self):
        self.calls = 0

    def outputs(self, subject, arm, fixture, inputs, poison):
        self.calls += 1
        x = np.array(inputs["x"])
        before = {"x": x.copy()}
        out = np.full(x.shape, poison, dtype=np.uint16)
        if arm == "candidate":
            candidate.run(x, out, self.calls)
        else:
            out[:] = x + 1
        return Outputs(words={"final": out}, inputs_before=before, inputs_after={"x": x})

    def values_equal(self, dtype, left, right):
        return bool((left == right).all())

    def place(self, subject, fixtures):
        pass

    def run_arm(self, subject, arm, *, num_cycles, first_fixture):
        each = 1000 if arm == "incumbent" else candidate.NS
        launches = 4 if arm == "incumbent" else 2
        return ArmSample(elapsed_ns=each * num_cycles, num_launches=launches * num_cycles, throttle="none")

    def close(self):
        pass


class Counters:
    def profile(self, subject, arm, *, num_cycles, cache_control):
        names = ["first", "second"] * 2 if arm == "incumbent" else ["fused"] * 2
        metrics = {"bytes": 100 if arm == "incumbent" else candidate.BYTES}
        return profile_bytes([(name, metrics) for name in names * num_cycles], {"bytes": "byte"})


class Devices:
    def identify(self, registration, name):
        return DeviceIdentity(
            uuid=f"tiny-{name}", bus_id="0", model="tiny", versions={"runtime": "1"}, libraries={"tiny": "tiny"}
        )

    def open(self, registration, name):
        return Device()

    def counters(self, registration, name):
        return Counters()


DEVICES = Devices()
'''

CANDIDATES = {
    "right": "NS = 600\nBYTES = 200\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n",
    "wrong": "NS = 600\nBYTES = 200\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n    out[0, 0] ^= 1\n",
    "slow": "NS = 999\nBYTES = 200\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n",
    "hungry": "NS = 600\nBYTES = 900\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n",
    "stale": "NS = 600\nBYTES = 200\nKEPT = {}\n\n\ndef run(x, out, calls):\n    right = x + 1\n"
    "    out[:] = right if calls <= 24 else KEPT.setdefault('first', right)\n",
    "greedy": "NS = 600\nBYTES = 200\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n    x[0] = 0\n",
    "dying": "import os, signal\nNS = 600\nBYTES = 200\n\n\ndef run(x, out, calls):\n    out[:] = x + 1\n"
    "    if calls > 9:\n        os.kill(os.getpid(), signal.SIGKILL)\n",
    "raising": "NS = 600\nBYTES = 200\n\n\ndef run(x, out, calls):\n"
    "    raise AttributeError('no attribute _raw_equal')\n",
}
"""Candidates by what becomes of them."""

REGISTRATION = """
lane = "tiny"
date = "2026-11-29"
question = "May one replace two?"
authorizes = "nothing"
does_not_authorize = ["an endpoint"]
exclusions = ["services"]
identities = ["runtime"]

[contract]
platform = "cpu"
selector = "TINY=1"
predicates = ["shape is 2 x 4"]

[[subjects]]
name = "tiny"
calls_per_cycle = 2
boundaries = [{ name = "final", dtype = "bfloat16", shape = [2, 4] }]
corpus = [{ name = "random", num_fixtures = 3 }, { name = "edges", num_fixtures = 1 }]
incumbent = { description = "two", kernels = ["first", "second"], launches_per_cycle = 4 }
candidate = { description = "one", kernels = ["fused"], launches_per_cycle = 2 }

[[subjects.kills]]
mutant = "two more"
fixture = "random/1"
boundary = "final"
first_index = [0, 0]
expected_word = "0x0001"
found_word = "0x0002"

[[subjects.coverage]]
what = "fixtures"
at_least = 4

[subjects.exactness]
num_repeats = 3
repeat_fixtures = ["random/1"]
poison_words = [1, 2]
incumbent_vs_oracle = "equal"

[subjects.timing]
warmup_cycles = 1
num_blocks = 5
cycles_per_arm = 2
min_wins = 4
min_median_saving_ns = 100

[counters]
reader = "torch_profiler"
cache_control = "none"
discarded_cycles = 1
num_cycles = 2
quantities = [{ name = "traffic", metrics = ["bytes"], unit = "byte", over_launches = "sum_per_cycle" }]
rules = [{ quantity = "traffic", rule = "at_most_ratio", limit = "1.02" }]

[devices]
names = ["one"]
throttle = "forbidden"

[[sources]]
name = "tiny"
path = ".."
starting_commit = "0000000000000000000000000000000000000000"
changed_paths = ["tiny/candidate.py"]

[code]
lane = "tiny.host:LANE"
devices = "tiny.device:DEVICES"

[stage0]
required_checks = ["guards"]
"""

AUDIT = 'auditor = "{who}"\ntext = "{who} read it"\nread = ["tiny/candidate.py"]\n'


def git(folder: Path, *words: str) -> str:
    """Run git with an author of its own."""
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)


class TinyLane:
    """A repository with a lane in it, and this host's memory beside it."""

    def __init__(self, root: Path) -> None:
        self.repository, self.folder = root / "work", root / "work" / "lane"
        self.state = HostState(root / "state")
        self.clock: Callable[[], int] = time.time_ns

    def start(self, registration: str = REGISTRATION) -> TinyLane:
        """The repository before the candidate, and a draft."""
        package = self.repository / "tiny"
        package.mkdir(parents=True)
        for name, text in (("__init__", '"""Tiny."""\n'), ("host", HOST), ("device", DEVICE)):
            (package / f"{name}.py").write_text(text)
        git(self.repository, "init", "--quiet")
        commit(self.repository, "start")
        like = self.repository.parent / "like.toml"
        like.write_text(registration)
        new_lane(self.folder, like)
        return self

    def open(self) -> OpenLane:
        return open_lane(self.folder, self.state, self.clock)

    def implement(self, kind: str) -> None:
        (self.repository / "tiny" / "candidate.py").write_text(CANDIDATES[kind])
        commit(self.repository, "candidate")

    def to_checked(self, kind: str = "right") -> TinyLane:
        register(self.open())
        self.implement(kind)
        check(self.open())
        return self

    def audited(self) -> TinyLane:
        for who in ("first", "second"):
            path = self.repository.parent / f"{who}.toml"
            path.write_text(AUDIT.format(who=who))
            audit(self.open(), path)
        return self

    def to_frozen(self, kind: str = "right") -> TinyLane:
        self.to_checked(kind).audited()
        freeze(self.open())
        return self

    def to_rehearsed(self, kind: str = "right") -> TinyLane:
        """Rehearsed by word alone; the rehearsal itself has its own tests."""
        lane = self.to_frozen(kind).open()
        campaigns = tuple(
            Rehearsed(fault=fault_label(fault), expected=str(status), found=str(status), sentence="")
            for fault in FAULTS
            for status in [expected_status(fault, lane.gate.registration)]
        )
        lane.take(lane.new_step(RehearsalStep, tool_digest=tool_digest(), campaigns=campaigns))
        return self

    def authorized(self, phase: Phase) -> TinyLane:
        authorize(self.open(), phase)
        commit(self.repository, f"packet {phase}")
        return self

    def ran(self, phase: Phase) -> str:
        return str(run(self.open(), phase))

    def status(self) -> str:
        return str(self.open().status)
