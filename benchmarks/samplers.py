"""Time `counts_exact` against a plain per-token greedy heap and against vectorised NumPy Gumbel top-k, in one run.

    python benchmarks/samplers.py            8192 rows x 256 experts x top-8
    python benchmarks/samplers.py --small    512 x 64 x 8, for continuous integration

All start from the same Zipf popularity. Repetitions are interleaved and medians compared. The baselines use public
tools only (heapq, NumPy); two forms of Gumbel top-k are timed, the usual one and a faster float32 one. What each
table is worth is printed beside its time: whether the counts are exact, and how many rows are distinct.

Two floors are timed in the same run. No form of version 1 of `counts_exact` can be faster than drawing its random
words. A version that spent 16 random bits an id and sorted each row once, and did nothing else, would take the second.
"""

from __future__ import annotations

import argparse
import heapq
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import moegauge
from moegauge.routing.apportionment import counts_for
from moegauge.routing.samplers import SAMPLERS, Noise, num_trade_rounds, sample

Ids = NDArray[np.int32]
Counts = NDArray[np.int64]

TARGETS = {"heap": 100.0, "gumbel float64": 1.0, "gumbel float32": 1.0}


def heap(counts: Counts, rows: int, top_k: int) -> Ids:
    """Give each token the top_k experts with the most left; plain Python."""
    left = [(-count, expert) for expert, count in enumerate(counts.tolist()) if count]
    heapq.heapify(left)
    table = []
    for _ in range(rows):
        taken = [heapq.heappop(left) for _ in range(top_k)]
        table.append([expert for _, expert in taken])
        for count, expert in taken:
            if count < -1:
                heapq.heappush(left, (count + 1, expert))
    return np.array(table, dtype=np.int32)


def gumbel_float64(counts: Counts, rows: int, top_k: int) -> Ids:
    """Perturb log p with Gumbel noise, then argpartition."""
    generator = np.random.Generator(np.random.Philox(1))
    noisy = np.log(counts / counts.sum()) + generator.gumbel(size=(rows, len(counts)))
    return np.argpartition(-noisy, top_k - 1, axis=1)[:, :top_k].astype(np.int32)


def gumbel_float32(counts: Counts, rows: int, top_k: int) -> Ids:
    """Draw the same law as exponential noise / p, in float32 by the ziggurat."""
    generator = np.random.Generator(np.random.SFC64(1))
    race = generator.standard_exponential((rows, len(counts)), dtype=np.float32) / counts.astype(np.float32)
    return np.argpartition(race, top_k - 1, axis=1)[:, :top_k].astype(np.int32)


def dealt(counts: Counts, rows: int, top_k: int) -> Ids:
    """Deal the experts column by column: exact counts, no random pairing."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts).reshape(top_k, rows).T


def version_1_words(rows: int, top_k: int) -> None:
    """Draw the random words that version 1 of `counts_exact` takes."""
    noise = Noise(1, 0)
    for _ in range(num_trade_rounds(rows)):
        noise.words(rows)
        noise.short_words(rows // 2, 2 * top_k)


def one_sort(rows: int, top_k: int) -> None:
    """Draw 16 random bits an id and sort each row of an int32 table once."""
    np.sort(Noise(1, 0).short_words(rows, top_k).astype(np.int32), axis=1)


def table_of(popularity: Counts, counts: Counts, rows: int, top_k: int) -> dict[str, Callable[[], Ids]]:
    """Everything that is timed; moegauge's samplers turn the popularity into counts inside the timed call."""
    timed: dict[str, Callable[[], Ids]] = {
        "heap": lambda: heap(counts, rows, top_k),
        "gumbel float64": lambda: gumbel_float64(counts, rows, top_k),
        "gumbel float32": lambda: gumbel_float32(counts, rows, top_k),
        "dealt, not randomised": lambda: dealt(counts, rows, top_k),
    }
    for name in SAMPLERS:
        timed[f"moegauge {name}"] = lambda name=name: sample(  # type: ignore[misc]
            name, popularity, rows=rows, top_k=top_k, seed=1, stream=0
        )
    return timed


def main() -> None:
    """Run, print, compare with the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="512 rows x 64 experts x top-8")
    parser.add_argument("--repetitions", type=int, default=21)
    arguments = parser.parse_args()
    rows, num_experts, top_k = (512, 64, 8) if arguments.small else (8192, 256, 8)
    popularity = np.array([10**9 // rank for rank in range(1, num_experts + 1)], dtype=np.int64)
    counts = counts_for(popularity, rows, top_k)

    print(f"{rows} rows x {num_experts} experts x top-{top_k}, Zipf popularity, median of {arguments.repetitions}")
    print(f"moegauge {moegauge.__version__}, NumPy {np.__version__}, Python {platform.python_version()}")
    print(f"{platform.platform()}, {platform.processor() or platform.machine()}, {os.cpu_count()} CPUs\n")

    timed = table_of(popularity, counts, rows, top_k)
    floors = {
        "random words of version 1": lambda: version_1_words(rows, top_k),
        "16 bits an id and one row sort": lambda: one_sort(rows, top_k),
    }
    calls: dict[str, Callable[[], object]] = {**timed, **floors}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repetition in range(arguments.repetitions + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if repetition:  # the first round warms caches and allocators
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(found) for name, found in seconds.items()}

    print(f"{'':32}{'ms':>10}{'counts':>10}{'distinct rows':>16}")
    for name, call in timed.items():
        ids = call()
        exact = np.array_equal(np.bincount(ids.ravel(), minlength=num_experts), counts)
        distinct = len(np.unique(np.sort(ids, axis=1), axis=0))
        print(f"{name:32}{median[name] * 1e3:10.3f}{'exact' if exact else 'differ':>10}{distinct:16}")
    for name in floors:
        print(
            f"{name:32}{median[name] * 1e3:10.3f}{'-':>10}{'-':>16}   heap / this = {median['heap'] / median[name]:.1f}"
        )
    print()
    for name, target in TARGETS.items():  # set for the full size; a small table is mostly call overhead
        ratio = median[name] / median["moegauge counts_exact"]
        verdict = "met" if ratio >= target else "NOT met"
        print(f"{name} / counts_exact = {ratio:.2f}" + ("" if arguments.small else f" (target {target:g}: {verdict})"))


if __name__ == "__main__":
    main()
