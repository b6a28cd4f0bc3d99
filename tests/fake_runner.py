"""A runner without a device: its times are the test's, and its traces come from the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from moegauge.adapters.runners.work import Checked, ProfiledTimes, RunCondition, Together, Work, alone
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.scopes import ScopeTags
from moegauge.records.measurement import LaunchMode
from simulator import BASE_NS, NAMES, Recording, TraceBuilder

WorkTime = Callable[[int, int, int, str], int]
"""(call of run_pass, iteration, layer, role) -> ns."""

GOOD = Checked(relative_error=1e-3, bound=2e-2)
WRONG = Checked(relative_error=1.4, bound=2e-2)


@dataclass
class FakeRunner:
    """Runs the kernel sequence of the simulated model on paper.

    Attributes:
        recording: gives the kernels of an invocation, and their times where ``time`` is None.
        time: ns of each kernel. gap_ns: between kernels. works_at_once: as in Runner.
        checks: what each check says, in order; the last is repeated.
        before: called before each pass with its number, to fail in it.
        change: called with each pass's trace before it is read.
        call: what each timed call does, one an iteration in graphs.
    """

    recording: Recording
    time: WorkTime | None = None
    gap_ns: int = 500
    works_at_once: int = 4096
    checks: Sequence[Checked] = (GOOD,)
    before: Callable[[int], object] = lambda number: None
    change: Callable[[TraceBuilder], object] = lambda trace: None
    call: Callable[[Work], object] = lambda work: None
    name: str = "vllm_triton_moe"
    kernel_kind: str = "vllm_triton_moe"
    backend: str = "vllm TritonExperts"
    conditions: dict[str, str] = field(default_factory=lambda: {"device_model": "Simulated GPU"})
    passes: list[list[tuple[int, int]]] = field(default_factory=list)
    checked: list[tuple[int, int, int]] = field(default_factory=list)

    def facts(self, condition: RunCondition, works: Sequence[Work]) -> dict[str, str]:
        return self.conditions | {"cache_state": condition.cache_state}

    def kernel_config_digest(self, work: Work) -> str | None:
        return None

    def surroundings(self) -> dict[str, str]:
        return {"device_uuids": "GPU-0", "sm_clock_mhz": str(1980 - len(self.passes))}

    def check(self, work: Work, *, draw: int = 0) -> Checked:
        self.checked.append((work.iteration, work.layer, draw))
        return self.checks[min(len(self.checked), len(self.checks)) - 1]

    def run_pass(self, works: Sequence[Work], condition: RunCondition, together: Together = alone) -> ProfiledTimes:
        self.before(len(self.passes))
        graph = condition.launch_mode == LaunchMode.GRAPH
        for work in {work.iteration: work for work in works}.values() if graph else works:
            with together(work):
                self.call(work)
        trace = self.trace(works, graph=graph)
        self.change(trace)
        self.passes.append([(work.iteration, work.layer) for work in works])
        one, other = frozenset({"measured"}), frozenset()
        tags = ScopeTags(one, other) if graph else ScopeTags(other, one)
        return ProfiledTimes(parse_kineto(trace.data(), source="fake pass"), tags, event_ns=77)

    def trace(self, works: Sequence[Work], *, graph: bool) -> TraceBuilder:
        """Works one after the other: a launch for each kernel, or one for each iteration."""
        trace = TraceBuilder()
        now = BASE_NS + 10**9 * len(self.passes)
        graphs: dict[int, int] = {}
        for work in works:
            begin = now
            if not graph:
                trace.host_scope(f"measured L{work.layer} I{work.iteration}", begin, 90)
            elif work.iteration not in graphs:
                trace.host_scope(f"measured I{work.iteration}", begin, 90)
                graphs[work.iteration] = trace.launch(begin + 1, name="cudaGraphLaunch")
            for role in self.recording.roles(len(work.topk_ids)):
                length = self.length(work, role)
                correlation = graphs[work.iteration] if graph else trace.launch(begin + 1)
                trace.kernel(NAMES[role], now, length, correlation=correlation)
                now += length + self.gap_ns
            now += 10_000
        return trace

    def length(self, work: Work, role: str) -> int:
        if self.time is None:
            return self.recording.time(work.iteration, work.layer, work.rank, role)
        return self.time(len(self.passes), work.iteration, work.layer, role)
