"""Which device intervals belong to which invocation: launch calls and grammar together, annotations as a check.

1. Every core of the kind (``gemm act gemm sum``, say) is found on each stream, in order of start.
2. A core's iteration is what its kernels' launch calls (or device annotations) say; they must be unanimous, and a
   kernel that its annotation cut off goes with the core it stands in.
3. Within an iteration the cores, in order, are its layers. Their number must equal the number of layers.
4. The variant that rows, experts and expert map call for must stand right before each core.
5. Whatever does not close makes its iteration unavailable, with the reason. Nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from moegauge.kernels import open_iterations
from moegauge.kernels.classification import Claimed, classify
from moegauge.kernels.kind import KernelKind, Variant
from moegauge.kernels.scopes import ScopeTags, op_scopes
from moegauge.kernels.sequences import StreamOrder
from moegauge.kernels.trace import NONE, Trace
from moegauge.records.capture import Finding
from moegauge.records.decision import Reason, reason

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class How(IntEnum):
    """How an operation was tied to its invocation, strongest first."""

    LAUNCH = 0
    """its launch call lies inside the invocation's host annotation"""
    DEVICE_SCOPE = 1
    """it starts inside the invocation's device annotation"""
    ORDER = 2
    """its iteration is known; its layer follows from the order of the cores"""
    NEIGHBOURS = 3
    """no annotation holds it; the sequence it stands in does"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the engine says it ran, one entry an invocation of this rank; columns int64 [n].

    Sorted by (iteration, layer). ``executed_rows`` decides the variant. Rank invocations that were declared to have
    no tokens are not in the plan.
    """

    iteration: Int64Array
    layer: Int64Array
    executed_rows: Int64Array
    top_k: int
    num_experts: int
    has_expert_map: bool


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The outcome for one trace.

    Attributes:
        invocation: int64 [ops], index into the plan of in-boundary and following operations, or NONE.
        iteration: int64 [ops], iteration the operation lies in, or NONE (outside every iteration).
        op_class: int64 [ops], OpClass. how: int64 [ops], How or NONE.
        stage: int64 [ops], index into ``stages`` or NONE.
        stages: stage names that ``stage`` indexes.
        variant: for each plan entry the expected variant's name.
        unavailable: reason by iteration, for iterations that do not close.
        launched_by_graph: int64 [plan], 1 graph, 0 eager, NONE where launch calls do not say or do not agree.
        outside_iterations: int64, indices of the kind's own kernels that lie outside every iteration.
        findings: disagreements and recoveries.
    """

    invocation: Int64Array
    iteration: Int64Array
    op_class: Int64Array
    stage: Int64Array
    stages: list[str]
    how: Int64Array
    variant: list[str]
    unavailable: dict[int, Reason]
    launched_by_graph: Int64Array
    outside_iterations: Int64Array
    findings: tuple[Finding, ...]


def attribute(trace: Trace, kind: KernelKind, plan: Plan, tags: ScopeTags) -> Attribution:
    """Attribute every operation of a trace. See the module's five steps.

    Args:
        trace: normal form of one process's trace.
        kind: the registered subject.
        plan: the invocations the engine ran on this rank.
        tags: annotations to honour.

    Raises:
        Ambiguous: annotations contradict each other.
    """
    return _Attributor(trace, kind, plan, tags).run()


class _Attributor:
    def __init__(self, trace: Trace, kind: KernelKind, plan: Plan, tags: ScopeTags) -> None:
        self.trace, self.kind, self.plan, self.tags = trace, kind, plan, tags
        ops = trace.ops
        self.streams = StreamOrder(trace, kind)
        self.scopes = op_scopes(trace, tags, launch=ops.launch, place=self.streams.place, moment=ops.start_ns)
        self.invocation = np.full(len(ops), NONE, dtype=np.int64)
        self.how = np.full(len(ops), NONE, dtype=np.int64)
        self.role_of = np.full(len(ops), NONE, dtype=np.int64)
        self.unavailable: dict[int, Reason] = {}
        self.findings: list[Finding] = list(trace.findings)

    def run(self) -> Attribution:
        cores = self.streams.cores()
        core_iteration = self._core_iterations(cores)
        self._mark_invalid()
        self._assign(cores, core_iteration)
        iteration = self._op_iterations(cores, core_iteration)
        self._refuse_strays(iteration)
        given_up = self._give_up()
        self._recoveries()
        found = classify(
            self.trace,
            self.kind,
            Claimed(self.invocation, self.role_of, given_up | self.streams.exclusive()),
            place=self.streams.place,
            order=self.streams.order,
        )
        iteration[found.following] = iteration[found.followed]
        return Attribution(
            invocation=self.invocation,
            iteration=iteration,
            op_class=found.op_class,
            stage=found.stage,
            stages=found.stages,
            how=self.how,
            variant=[v.name if v else "" for v in self.variants],
            unavailable=self.unavailable,
            launched_by_graph=self._launched_by_graph(),
            outside_iterations=np.flatnonzero((iteration == NONE) & self.streams.exclusive()),
            findings=tuple(self.findings),
        )

    def _core_iterations(self, cores: Int64Array) -> Int64Array:
        """Iteration of each core, NONE where no annotation holds any of its kernels. [num_cores]"""
        found = self.scopes.iteration[self.streams.members(cores)]
        highest: Int64Array = found.max(axis=1, initial=NONE)
        lowest = np.where(found == NONE, np.iinfo(np.int64).max, found).min(axis=1, initial=np.iinfo(np.int64).max)
        for iteration in np.unique(found[(highest != NONE) & (lowest != highest)]):
            if iteration != NONE:
                self._fail(int(iteration), "SCOPES_DISAGREE", "the kernels of one invocation lie in two iterations")
        return highest

    def _mark_invalid(self) -> None:
        invalid = self.trace.invalid
        if not len(invalid.name):
            return
        nowhere = np.full(len(invalid.name), NONE, dtype=np.int64)
        scopes = op_scopes(self.trace, self.tags, launch=invalid.launch, place=nowhere, moment=nowhere)
        for iteration in np.unique(scopes.iteration):
            if iteration != NONE:
                num = int((scopes.iteration == iteration).sum())
                self._fail(int(iteration), "INVALID_TIMESTAMPS", f"{num} of its kernels have no usable time stamps")

    def _fail(self, iteration: int, code: str, sentence: str) -> None:
        self.unavailable.setdefault(iteration, reason(code, f"iteration {iteration}: {sentence}"))

    def _assign(self, cores: Int64Array, core_iteration: Int64Array) -> None:
        """Give the cores of each iteration to its layers in order, then check prefix and annotations."""
        plan = self.plan
        self.variants = self.kind.expected(
            plan.executed_rows.tolist(),
            top_k=plan.top_k,
            num_experts=plan.num_experts,
            has_expert_map=plan.has_expert_map,
        )
        marked = bool((self.scopes.iteration != NONE).any())
        for iteration in np.unique(plan.iteration):
            entries = np.flatnonzero(plan.iteration == iteration)
            mine = cores[core_iteration == iteration]
            if len(mine) == len(entries):
                self._claim(int(iteration), entries, mine)
            elif not marked:
                self._fail(int(iteration), *open_iterations.not_marked_at_all(len(cores), len(entries)))
            elif len(mine):
                self._fail(int(iteration), *open_iterations.does_not_divide(self.kind, len(mine), len(entries)))
            elif iteration in self.scopes.iteration:
                self._fail(int(iteration), *open_iterations.no_kernels(self.trace, self.kind))
            else:
                self._fail(int(iteration), *open_iterations.not_marked())

    def _claim(self, iteration: int, entries: Int64Array, cores: Int64Array) -> None:
        mine = [self.variants[index] for index in entries]
        for variant in {variant.name: variant for variant in mine if variant is not None}.values():
            chosen = np.flatnonzero([one is variant for one in mine])
            begin = cores[chosen] - len(variant.prefix)
            good = self.streams.window(begin, variant.prefix + self.kind.core)
            for index in np.flatnonzero(~good):
                self._fail(iteration, *self._mismatch(int(entries[chosen[index]]), variant, int(begin[index])))
            sequence = variant.prefix + self.kind.core
            members = self.streams.order[np.maximum(begin[good], 0)[:, None] + np.arange(len(sequence))]
            if len(np.unique(members)) != members.size or (self.invocation[members] != NONE).any():
                self._fail(iteration, *open_iterations.shared())
            self._check_scopes(iteration, entries[chosen[good]], members)
            self.invocation[members] = entries[chosen[good]][:, None]
            self.role_of[members] = self.streams.role_indices(sequence)
        for index in entries:
            if self.variants[index] is None:
                self._fail(
                    iteration,
                    "GRAMMAR_MISMATCH",
                    f"layer {self.plan.layer[index]}: no variant of {self.kind.name} fits",
                )

    def _mismatch(self, entry: int, variant: Variant, begin: int) -> tuple[str, str]:
        before = self.streams.order[max(begin, 0) : max(begin, 0) + len(variant.prefix)]
        found = [self.trace.names[int(self.trace.ops.name[index])] for index in before]
        return open_iterations.mismatch(
            int(self.plan.layer[entry]), int(self.plan.executed_rows[entry]), variant, found
        )

    def _check_scopes(self, iteration: int, entries: Int64Array, members: Int64Array) -> None:
        layer, layer_iteration = self.scopes.layer[members], self.scopes.layer_iteration[members]
        known = layer != NONE
        wrong = known & ((layer != self.plan.layer[entries][:, None]) | (layer_iteration != iteration))
        for row in np.flatnonzero(wrong.any(axis=1)):
            self._fail(
                iteration,
                "SCOPES_DISAGREE",
                f"by order layer {self.plan.layer[entries[row]]}, by annotation layer {layer[row][wrong[row]][0]} of "
                f"iteration {layer_iteration[row][wrong[row]][0]}",
            )
        by_launch = self.scopes.by_launch[members] == 1
        how = np.where(known, np.where(by_launch, How.LAUNCH, How.DEVICE_SCOPE), How.ORDER)
        self.how[members] = np.where(self.scopes.iteration[members] == NONE, How.NEIGHBOURS, how)
        cut = ~known & known.any(axis=1)[:, None]
        self.how[members[cut]] = How.NEIGHBOURS

    def _op_iterations(self, cores: Int64Array, core_iteration: Int64Array) -> Int64Array:
        """Iteration of every operation: its own scope's, or that of the invocation or core it belongs to."""
        iteration = self.scopes.iteration.copy()
        members = self.streams.members(cores)
        if len(cores):
            iteration[members] = np.where(iteration[members] == NONE, core_iteration[:, None], iteration[members])
        claimed = self.invocation != NONE
        iteration[claimed] = self.plan.iteration[self.invocation[claimed]]
        return iteration

    def _refuse_strays(self, iteration: Int64Array) -> None:
        stray = self.streams.exclusive() & (self.invocation == NONE)
        for one in np.unique(iteration[stray]):
            if one != NONE:
                names = {self.trace.names[int(n)][:60] for n in self.trace.ops.name[stray & (iteration == one)]}
                num = int((stray & (iteration == one)).sum())
                self._fail(int(one), "STRAY_KERNEL", f"{num} kernels belong to no closed invocation: {sorted(names)}")

    def _give_up(self) -> BoolArray:
        """Take back what was claimed in iterations that do not close; returns those operations."""
        claimed = self.invocation != NONE
        failed = np.isin(self.plan.iteration, np.array(list(self.unavailable), dtype=np.int64))
        given_up: BoolArray = claimed & failed[self.invocation] if len(failed) else claimed
        for column in (self.invocation, self.how, self.role_of):
            column[given_up] = NONE
        return given_up

    def _recoveries(self) -> None:
        cut = np.flatnonzero(self.how == How.NEIGHBOURS)
        if not len(cut):
            return
        where = [
            f"layer {self.plan.layer[self.invocation[i]]} of iteration {self.plan.iteration[self.invocation[i]]}: "
            f"{self.trace.names[int(self.trace.ops.name[i])][:60]}"
            for i in cut[:5]
        ]
        self.findings.append(
            Finding(
                code="ANNOTATION_CUT",
                sentence="kernels that their device annotation left out; the sequence they stand in kept them",
                num=len(cut),
                ns=int((self.trace.ops.end_ns[cut] - self.trace.ops.start_ns[cut]).sum()),
                examples=tuple(where),
            )
        )

    def _launched_by_graph(self) -> Int64Array:
        """1 graph, 0 eager, NONE unknown or mixed, for each plan entry."""
        launches = self.trace.launches
        graph = np.array(["GraphLaunch" in n for n in self.trace.names], dtype=np.int64)
        mine = np.flatnonzero((self.invocation != NONE) & (self.trace.ops.launch != NONE))
        is_graph = graph[launches.name[self.trace.ops.launch[mine]]] if len(mine) else mine
        size = len(self.plan.iteration)
        total = np.bincount(self.invocation[mine], minlength=size)
        graphs = np.bincount(self.invocation[mine], weights=is_graph, minlength=size).astype(np.int64)
        return np.where(total == 0, NONE, np.where(graphs == total, 1, np.where(graphs == 0, 0, NONE)))
