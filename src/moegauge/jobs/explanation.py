"""moegauge align --explain: which condition accounts for how much of the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.ladder.alignment import Alignment, Choice
from moegauge.ladder.explain import Changed, explain, padded_cost
from moegauge.records.explanation import Explanation, PaddedRows

Int64Array = NDArray[np.int64]

CHANGEABLE = {
    "launch_mode": "as-served, eager or graph",
    "cache_state": "in_order, served_order, warm, cold or rotated",
    "co_running": "what ran beside the kernel, as profile list shows it",
}
"""Conditions that --explain can change, and their values."""

AlignUnder = Callable[[Choice], Alignment]


def derive_explanation(
    capture: CaptureFolder,
    base: Alignment,
    choice: Choice,
    changes: Mapping[str, str],
    *,
    align_exact: AlignUnder,
    align_unpadded: AlignUnder,
) -> Explanation:
    """Align the exact inputs again with one condition changed at a time.

    Args:
        capture: the served side. base: rung 2's alignment under ``choice``.
        changes: condition -> value that serving is supposed to have had.
        align_exact, align_unpadded: align exact inputs, with and without their padded rows, under a choice.

    Raises:
        Incomplete: a changed condition was not measured for any invocation that the base covers.
    """
    changed = [_changed(base, choice, name, value, align_exact) for name, value in changes.items()]
    found = explain(base, changed, _padded(capture, base, choice, align_unpadded))
    if found is None:
        raise errors.Incomplete(
            where="--explain",
            expected="invocations measured under the base and under every changed condition",
            found="none",
            remedy="Fill them with moegauge profile run (--launch-mode, --cache-state, --co-running).",
        )
    return found


def _changed(base: Alignment, choice: Choice, name: str, value: str, align_exact: AlignUnder) -> Changed:
    before = {
        "launch_mode": choice.launch_mode,
        "cache_state": choice.cache_state or "whichever was measured",
        "co_running": choice.co_running or "nothing",
    }
    under = Choice(
        launch_mode=value if name == "launch_mode" else choice.launch_mode,
        cache_state=value if name == "cache_state" else choice.cache_state,
        co_running=value if name == "co_running" else choice.co_running,
    )
    work = align_exact(under)
    if not (work.covered & base.covered).any():
        raise errors.Incomplete(
            where=f"--explain {name}={value}",
            expected="isolated rows of the exact inputs under that condition",
            found=f"none ({', '.join(sorted(set(work.why) - {''}))})",
            remedy="Fill them with moegauge profile run; moegauge profile list shows what is there.",
        )
    return Changed(name, before[name], value, work)


def _padded(capture: CaptureFolder, base: Alignment, choice: Choice, align_unpadded: AlignUnder) -> PaddedRows | None:
    unpadded = align_unpadded(choice)
    rows = capture.invocations.join(
        capture.iterations.select("iteration", "rank", "logical_tokens"), on=["iteration", "rank"], how="left"
    )
    logical = pl.col("logical_tokens").fill_null(pl.col("executed_rows"))
    table = rows.group_by("iteration", "layer").agg(pl.col("executed_rows").max(), logical.max().alias("logical"))
    place = pl.DataFrame({"iteration": base.iteration, "layer": base.layer}).with_columns(pl.all().cast(pl.Int32))
    found = place.join(table, on=["iteration", "layer"], how="left", maintain_order="left").fill_null(0)
    executed, logical_rows = (found[name].to_numpy().astype(np.int64) for name in ("executed_rows", "logical"))
    return padded_cost(base, unpadded, executed, logical_rows)
