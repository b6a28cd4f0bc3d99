"""What each operation is to the subject: in the boundary, a known stage outside it, foreign, or unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from moegauge.kernels.kind import KernelKind
from moegauge.kernels.trace import NONE, Trace

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class OpClass(IntEnum):
    """What an operation is to the subject."""

    IN_BOUNDARY = 0
    OUTSIDE_BOUNDARY = 1
    FOREIGN = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Claimed:
    """What attribution decided; each [ops].

    Attributes:
        invocation: int64, index into the plan or NONE. role_of: int64, index into the kind's roles or NONE.
        subject: bool, kernels of the kind, whether or not an invocation closed around them.
    """

    invocation: Int64Array
    role_of: Int64Array
    subject: BoolArray


@dataclass(frozen=True)
class Classified:
    """Class and stage of every operation.

    Attributes:
        op_class: int64 [ops], OpClass. stage: int64 [ops], index into ``stages`` or NONE.
        stages: stage names; the roles' own come first.
        following, followed: int64 [n], operations of the stage right behind an invocation, and what they stand behind.
    """

    op_class: Int64Array
    stage: Int64Array
    stages: list[str]
    following: Int64Array
    followed: Int64Array


def classify(trace: Trace, kind: KernelKind, claimed: Claimed, *, place: Int64Array, order: Int64Array) -> Classified:
    """Classify every operation of a trace.

    Args:
        trace: the trace. kind: the subject. claimed: what attribution decided.
        place: int64 [ops], index of each operation's stream.
        order: int64 [ops], operations by stream, then start.
    """
    free = claimed.invocation == NONE
    stages = [role.stages for role in kind.roles]
    stage = np.where(free, NONE, claimed.role_of)
    op_class = np.where(free, OpClass.FOREIGN, OpClass.IN_BOUNDARY).astype(np.int64)
    op_class[free & (claimed.subject | _named(trace, kind.suspicious))] = OpClass.UNKNOWN
    for name, pattern in kind.outside.items():
        hit = free & _named(trace, pattern)
        op_class[hit] = OpClass.OUTSIDE_BOUNDARY
        stage[hit] = len(stages)
        stages.append(name)
    following, followed = _following(trace, kind, claimed, place, order)
    if kind.follows is not None:
        op_class[following] = OpClass.OUTSIDE_BOUNDARY
        stage[following] = len(stages)
        stages.append(kind.follows[0])
    return Classified(op_class, stage, stages, following, followed)


def _named(trace: Trace, pattern: re.Pattern[str]) -> BoolArray:
    hit = np.array([bool(pattern.search(name)) for name in trace.names], dtype=bool)
    found: BoolArray = hit[trace.ops.name]
    return found


def _following(
    trace: Trace, kind: KernelKind, claimed: Claimed, place: Int64Array, order: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Operations of the ``follows`` stage that stand right behind an invocation's last kernel on its stream."""
    nothing = np.zeros(0, dtype=np.int64)
    if kind.follows is None:
        return nothing, nothing
    last_role = next(index for index, role in enumerate(kind.roles) if role.name == kind.core[-1])
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    last = np.flatnonzero((claimed.invocation != NONE) & (claimed.role_of == last_role))
    last = last[position[last] + 1 < len(order)]
    after = order[position[last] + 1]
    good = (place[after] == place[last]) & _named(trace, kind.follows[1])[after] & (claimed.invocation[after] == NONE)
    return after[good], last[good]
