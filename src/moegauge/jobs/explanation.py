"""moegauge align --explain: which condition accounts for how much of the difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from moegauge import errors
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.ladder.alignment import Alignment, Choice
from moegauge.ladder.explain import Changed, explain, padded_cost
from moegauge.records.decision import Reason, reason
from moegauge.records.explanation import Explanation, PaddedRows

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class Changeable:
    """A condition that --explain can change: a field of Choice.

    Attributes:
        values: what it can be. base: what the base has where nothing was chosen. run: how it is measured.
        form: regular expression of all its values; None for any text.
    """

    values: str
    base: str
    run: str
    form: str | None = None


CHANGEABLE = {
    "launch_mode": Changeable(
        values="as-served, eager or graph",
        base="as-served",
        run="moegauge profile run --launch-mode {value}",
        form="as-served|eager|graph",
    ),
    "cache_state": Changeable(
        values="in_order, served_order, warm, cold or rotated",
        base="whichever was measured",
        run="moegauge profile run --cache-state {value}",
    ),
    "co_running": Changeable(
        values="what ran beside the kernel, such as dense MLP of width 512",
        base="nothing",
        run="moegauge profile run --co-running WIDTH",
    ),
    "kernel_config": Changeable(
        values="sha256:<hex> of a file of tuned configurations (sha256sum prints the hex)",
        base="as found",
        run="moegauge profile run --kernel-config FILE, with the file of that digest",
        form="sha256:[0-9a-f]{64}",
    ),
    "clocks": Changeable(
        values="as read around a pass, such as SM 1980 MHz, memory 3201 MHz",
        base="whichever were read",
        run="set the device to them yourself (clocks are read here, never set), then moegauge profile run --passes N, "
        "N being six more than the rows have",
    ),
}
"""Conditions that --explain can change, by name."""

AlignUnder = Callable[[Choice], Alignment]
_SHOWN = 4


def derive_explanation(
    capture: CaptureFolder,
    base: Alignment,
    choice: Choice,
    changes: Mapping[str, str],
    *,
    align_exact: AlignUnder,
    align_unpadded: AlignUnder,
    recorded: Mapping[str, Sequence[str]],
) -> Explanation:
    """Align the exact inputs again with one condition changed at a time.

    Args:
        capture: the served side. base: rung 2's alignment under ``choice``.
        changes: condition -> value that serving is supposed to have had. They are taken by name, for a report that is
            read again has lost the order in which they were asked for.
        align_exact, align_unpadded: align exact inputs, with and without their padded rows, under a choice.
        recorded: values of each condition that the database holds of exact inputs.

    Raises:
        MisuseError: a condition that cannot be changed, or a value that it cannot have.
        Incomplete: no invocation is covered by the base and by every changed condition that was measured.
    """
    _refuse_unknown(changes)
    if not base.covered.any():
        raise errors.Incomplete(
            where="--explain",
            expected="isolated rows of the exact inputs, of which a condition could be changed",
            found=f"none ({', '.join(sorted(set(base.why)))})",
            remedy="Measure them: moegauge profile run --input exact.",
        )
    changed = []
    for name, value in sorted(changes.items()):
        work = align_exact(replace(choice, **{name: value}))
        known = _known(base, work, name, value, recorded[name])
        changed.append(Changed(name, getattr(choice, name) or CHANGEABLE[name].base, value, known))
    found = explain(base, changed, _padded(capture, base, choice, align_unpadded))
    if found is None:
        raise errors.Incomplete(
            where="--explain",
            expected="invocations measured under the base and under every changed condition",
            found="none that all of them share",
            remedy="Ask for one condition at a time, or measure the same invocations under each.",
        )
    return found


def _refuse_unknown(changes: Mapping[str, str]) -> None:
    for name, value in changes.items():
        known = CHANGEABLE.get(name)
        if known is None or (known.form is not None and re.fullmatch(known.form, value) is None):
            raise errors.MisuseError(
                where="--explain",
                expected=" | ".join(CHANGEABLE) if known is None else f"{name}: {known.values}",
                found=f"{name}={value}",
                remedy="Name a condition that can be changed, and a value that it can have.",
            )


def _known(base: Alignment, work: Alignment, name: str, value: str, recorded: Sequence[str]) -> Alignment | Reason:
    """What was measured under a changed condition, or why nothing of the base was and what measures it."""
    if (work.covered & base.covered).any():
        return work
    if "AMBIGUOUS_ROWS" in work.why:
        why = f"several measured rows fit {name} {value}, and --launch-mode and --cache-state do not choose one of them"
        return reason("AMBIGUOUS_ROWS", why)
    shown = [*recorded[:_SHOWN], *([f"{len(recorded) - _SHOWN} more"] if len(recorded) > _SHOWN else [])]
    why = (
        f"no exact input of the base was measured under {name} {value} (measured: {' | '.join(shown) or 'none'}); "
        f"to measure it: {CHANGEABLE[name].run.format(value=value)}"
    )
    return reason("NO_MEASURED_ROWS", why)


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
