"""The two sides of one rung over a choice of invocations: totals, interval, units. Rung 4 has measurements on both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from moegauge.kernels.trace import NONE
from moegauge.ladder.alignment import Alignment
from moegauge.ladder.judgement import Units, is_cancellation, relative_interval
from moegauge.ladder.strata import Stratum
from moegauge.timing.reduction import total_by

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class TwoSides:
    """Served time against measured time, or (``base`` given) one measurement against another.

    Attributes:
        work: the alignment whose measured times are the right side.
        base: the alignment whose measured times are the left side, or None where the left side is what was served.
    """

    work: Alignment
    base: Alignment | None = None

    @cached_property
    def covered(self) -> BoolArray:
        """Invocations complete on both sides. [n]"""
        return self.work.covered if self.base is None else self.work.covered & self.base.covered

    @cached_property
    def left_each_ns(self) -> Int64Array:
        """Left time of every invocation (a mean over passes where it was measured). [n]"""
        return self.work.left_ns if self.base is None else self.base.right_each_ns()

    @cached_property
    def left_known(self) -> BoolArray:
        """Invocations with a left time. [n]"""
        return self.work.left_known if self.base is None else self.base.covered

    @cached_property
    def why(self) -> list[str]:
        """Reason code of each invocation that is not covered, "" for covered ones."""
        if self.base is None:
            return self.work.why
        return [right or left for right, left in zip(self.work.why, self.base.why, strict=True)]

    @cached_property
    def launch_mode_differs(self) -> BoolArray:
        """Invocations launched in another way on the two sides. [n]"""
        return self._differs(lambda work: work.launch_mode_differs)

    @cached_property
    def kernels_differ(self) -> BoolArray:
        """Invocations that ran other kernels on the two sides. [n]"""
        return self._differs(lambda work: work.kernels_differ)

    def _differs(self, from_served: Callable[[Alignment], BoolArray]) -> BoolArray:
        """Two measurements differ where one of them differs from serving and the other does not."""
        return from_served(self.work) if self.base is None else from_served(self.work) ^ from_served(self.base)

    @cached_property
    def whole(self) -> BoolArray:
        """Invocations of iterations that are covered in full. [n]"""
        iterations, index = np.unique(self.work.iteration, return_inverse=True)
        broken = np.zeros(len(iterations), dtype=bool)
        broken[index[~self.covered]] = True
        whole: BoolArray = ~broken[index]
        return whole

    def left_ns(self, chosen: BoolArray) -> int:
        """Left total of the chosen invocations."""
        if self.base is None:
            return int(self.work.left_ns[chosen].sum())
        return self.base.right_mean_ns(chosen)

    def interval(self, chosen: BoolArray) -> tuple[float, float] | None:
        """Interval of the relative difference of the totals; None with too few passes."""
        right = [stratum.totals(chosen) for stratum in self.work.chosen_strata(chosen)]
        left = None if self.base is None else [s.totals(chosen) for s in self.base.chosen_strata(chosen)]
        return relative_interval(self.left_ns(chosen), right, left)

    def num_passes(self, chosen: BoolArray) -> int:
        """Fewest passes of any part."""
        strata = self.work.chosen_strata(chosen) + ([] if self.base is None else self.base.chosen_strata(chosen))
        return min(len(stratum.pass_ids) for stratum in strata)

    def is_cancellation(self, chosen: BoolArray, keys: Int64Array, *, tolerance: float) -> bool:
        """Whether the totals agree by cancellation between units.

        Args:
            chosen: bool [n]. keys: int64 [n], unit of each invocation (its iteration, or its layer).
            tolerance: of the total.
        """
        numbers, index = np.unique(keys[chosen], return_inverse=True)
        unit = np.full(len(keys), NONE, dtype=np.int64)
        unit[chosen] = index
        left = total_by(index.astype(np.int64), self.left_each_ns[chosen], num_groups=len(numbers))
        right = [_unit_samples(stratum, chosen, unit, 1) for stratum in self.work.chosen_strata(chosen)]
        if self.base is not None:
            right += [_unit_samples(stratum, chosen, unit, -1) for stratum in self.base.chosen_strata(chosen)]
        return is_cancellation(Units(left, subtract_left=self.base is None, samples=right), tolerance=tolerance)


def _unit_samples(stratum: Stratum, chosen: BoolArray, unit: Int64Array, sign: int) -> tuple[Int64Array, Int64Array]:
    mine = chosen[stratum.members]
    return unit[stratum.members[mine]], sign * stratum.samples[:, mine]
