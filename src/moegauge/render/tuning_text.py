"""A tuning record as tables: each arm at each number of rows, and over all of them as served."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from moegauge.records.tuning import Stage, TunedSize, TuningRecord
from moegauge.render.units import time_text
from moegauge.timing.tuned import Compared, Difference, difference

BASE = "found"
_MEANING = {
    "found": "what vLLM takes by itself",
    "default": "vLLM's heuristic, no tuned file",
    "served": "searched under served routing",
    "uniform": "searched under uniform routing",
}
_SHORT = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


def arm_difference(sizes: Sequence[TunedSize], base: str, head: str) -> Difference:
    """Two arms of a record in its verdict, over some of its sizes, each weighted by the invocations served."""
    return difference([_compared(one, base, head) for one in sizes])


def show_tuning(console: Console, record: TuningRecord) -> None:
    """Print every size, then the served total of each arm against what vLLM takes by itself."""
    subject = record.subject
    console.print(Text(f"{subject.kernel_kind} ({subject.numeric_format}) on {record.facts.get('device_model', '?')}"))
    table = Table(box=None, pad_edge=False)
    for heading in ("rows", "served", "arm", "M N K group warps stages", "mean", f"against {BASE}"):
        table.add_column(heading, justify="left" if heading in {"arm", "M N K group warps stages"} else "right")
    for size in record.sizes:
        for arm in _in_order(size):
            config = size.candidates[size.arms[arm]].config
            words = " ".join(str(config.get(name, "-")) for name in _SHORT)
            found = arm_difference([size], BASE, arm)
            mean = time_text(round(found.head_ns / size.num_served))
            against = "" if arm == BASE else _difference_text(found)
            table.add_row(str(size.executed_rows), str(size.num_served), arm, words, mean, against)
    console.print(table)
    for arm in _in_order(record.sizes[0]):
        found = arm_difference(record.sizes, BASE, arm)
        against = "" if arm == BASE else f", {_difference_text(found)} against {BASE}"
        line = f"{arm} ({_MEANING[arm]}): {time_text(round(found.head_ns))} as served{against}"
        console.print(Text(line), soft_wrap=True)
    if {"served", "uniform"} <= record.sizes[0].arms.keys():
        found = arm_difference(record.sizes, "uniform", "served")
        console.print(Text(f"served against uniform: {_difference_text(found)}"))
    for one in record.left_out:
        console.print(Text(f"not tuned: {one.executed_rows} rows, served {one.num_served} times: {one.why}"))


def _in_order(size: TunedSize) -> list[str]:
    """Arms, the incumbents first."""
    return sorted(size.arms, key=list(_MEANING).index)


def _difference_text(found: Difference) -> str:
    if found.interval is None:
        return f"{found.ratio:+.2%} (no interval)"
    low, high = found.interval
    return f"{found.ratio:+.2%} [{low:+.2%}, {high:+.2%}]"


def _compared(size: TunedSize, base: str, head: str) -> Compared:
    verdict = next(one for one in size.trials if one.stage == Stage.VERDICT)
    busy = np.array(verdict.busy_ns, dtype=np.int64)
    column = {arm: verdict.candidates.index(size.arms[arm]) for arm in (base, head)}
    return Compared(size.num_served, busy[:, column[base]], busy[:, column[head]])
