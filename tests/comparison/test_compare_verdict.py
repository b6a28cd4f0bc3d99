"""The verdict on a simulated clock: drift, jitter and outliers through the real verdict code."""

from __future__ import annotations

import numpy as np
import pytest

from moegauge.comparison.selection import chosen, stratum_name
from moegauge.comparison.verdict import judged
from moegauge.records.kernel_compare import (
    BitsObservation,
    CompareBlock,
    Invocation,
    Options,
    Raw,
    ServedStratum,
    SideBits,
)

OPTIONS = Options(
    margin_ratio=0.05, level=0.95, bound_ratio=None, norm="frobenius_relative", num_blocks=10, calls_per_arm=5,
    per_stratum=2, max_rows=None, seed=0,
)  # fmt: skip
TRUE_NS = (400_000, 450_000, 2_000_000, 2_200_000)


def bits() -> BitsObservation:
    side = SideBits(
        output_digest="a", again_digest="a", in_batch_digest="b", alone_digest="b", error_ratio=1e-3,
        bias_ratio=0.0, worst_token=0, worst_token_ratio=2e-3,
    )  # fmt: skip
    return BitsObservation(base=side, head=side, mismatch=None, changed_inputs=())


def invocation(number: int, rows: int) -> Invocation:
    return Invocation(
        iteration=number, layer=0, rank=0, stratum=stratum_name(rows, rows), input_digest=str(number),
        executed_rows=rows, active_experts=rows, max_expert_rows=1,
    )  # fmt: skip


def observed(seed: int, *factors: float, num_blocks: int = 10) -> Raw:
    """Blocks of a clock that drifts 0.3 % a call at random, jitters by 2 %, and is three times as slow in 2 % of calls.

    Args:
        seed: of the noise. factors: head's true time over base's, of each invocation.
    """
    generator = np.random.default_rng(seed)
    drift = 1.0

    def arm(ns: float) -> tuple[int, ...]:
        nonlocal drift
        times = []
        for _ in range(5):
            drift *= float(np.exp(generator.normal(0, 0.003)))
            outlier = 3.0 if generator.random() < 0.02 else 1.0
            times.append(round(ns * drift * outlier * float(np.exp(generator.normal(0, 0.02)))))
        return tuple(times)

    blocks = tuple(
        tuple(
            CompareBlock(a1_ns=arm(ns), b1_ns=arm(ns * factor), b2_ns=arm(ns * factor), a2_ns=arm(ns))
            for ns, factor in zip(TRUE_NS, factors, strict=True)
        )
        for _ in range(num_blocks)
    )
    rows = (4, 4, 64, 64)
    return Raw(
        served=(
            ServedStratum(name="rows 4-7, experts 4-7", num_served=90),
            ServedStratum(name="rows 64-127, experts 64-127", num_served=10),
        ),
        num_left_out=0,
        invocations=tuple(invocation(number, one) for number, one in enumerate(rows)),
        bits=(bits(),) * 4,
        blocks=blocks,
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_head_20_percent_slower_is_worse_in_20_of_20_runs(seed: int) -> None:
    assert judged(observed(seed, 1.2, 1.2, 1.2, 1.2), OPTIONS).reason.code == "HEAD_WORSE"


@pytest.mark.parametrize("seed", range(20))
def test_the_same_head_is_not_worse_in_20_of_20_runs(seed: int) -> None:
    assert judged(observed(seed, 1.0, 1.0, 1.0, 1.0), OPTIONS).reason.code == "HEAD_NOT_WORSE"


def exact_clock(base_ns: int, head_ns: tuple[int, ...]) -> Raw:
    raw = observed(0, 1, 1, 1, 1)
    block = tuple(CompareBlock(a1_ns=(base_ns,), b1_ns=(ns,), b2_ns=(ns,), a2_ns=(base_ns,)) for ns in head_ns)
    return Raw(served=raw.served, num_left_out=0, invocations=raw.invocations, bits=raw.bits, blocks=(block,) * 6)


def test_strata_are_weighted_by_how_often_serving_ran_them() -> None:
    # 90 served at 2.0 and 10 served at 1.0, all of the same base time: (90 x 2 + 10) / 100
    result = judged(exact_clock(100, (200, 200, 100, 100)), OPTIONS)
    assert result.time is not None
    assert (result.time.ratio, result.time.num_wins) == (1.9, 0)
    assert [(one.share_ratio, one.time.ratio) for one in result.strata] == [(0.9, 2.0), (0.1, 1.0)]
    assert [one.index for one in result.losses] == [0, 1]


def test_a_head_slower_by_exactly_the_margin_is_not_worse() -> None:
    assert judged(exact_clock(100, (105,) * 4), OPTIONS).reason.code == "HEAD_NOT_WORSE"
    assert judged(exact_clock(100, (106,) * 4), OPTIONS).reason.code == "HEAD_WORSE"


def test_an_interval_that_holds_the_margin_decides_nothing() -> None:
    fast, slow = exact_clock(100, (90,) * 4), exact_clock(100, (130,) * 4)
    mixed = Raw(served=fast.served, num_left_out=0, invocations=fast.invocations, bits=fast.bits,
                blocks=(*fast.blocks[:3], *slow.blocks[:3]))  # fmt: skip
    assert judged(mixed, OPTIONS).reason.code == "HEAD_STRADDLES_MARGIN"


def test_five_blocks_give_no_interval_and_so_no_verdict() -> None:
    assert judged(observed(0, 1, 1, 1, 1, num_blocks=5), OPTIONS).reason.code == "TOO_FEW_PASSES"


def test_a_few_of_each_stratum_are_chosen_and_spread_over_it() -> None:
    everything = [invocation(number, 4) for number in range(10)] + [invocation(10, 64)]
    assert [one.iteration for one in chosen(everything, 2)] == [2, 7, 10]
