"""Assemble pairs, rungs and the verdict from an alignment. Pure: the same rows give the same report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.ladder.alignment import Alignment
from moegauge.ladder.judgement import CANCELLATION
from moegauge.ladder.pairs import LadderInput, Scope, pair_of
from moegauge.ladder.rungs import RUNGS, RungDefinition
from moegauge.records.comparison import Pair, Rung, Selection, Verdict
from moegauge.records.decision import Status, reason, worst
from moegauge.timing.reduction import lower_median_index, total_by

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def assemble(ladder: LadderInput) -> tuple[tuple[Rung, ...], Verdict]:
    """Run the rungs in order and state the verdict."""
    selection = _selection(ladder)
    rungs = tuple(
        _exact_rung(ladder, rung, selection) if rung.input_type == "exact" else _unmeasured_rung(rung) for rung in RUNGS
    )
    return rungs, _verdict(rungs)


def complete_iterations(work: Alignment) -> BoolArray:
    """Which invocations belong to an iteration that is covered in full. [n]"""
    iterations, index = np.unique(work.iteration, return_inverse=True)
    open_ones = np.zeros(len(iterations), dtype=bool)
    open_ones[index[~work.covered]] = True
    return ~open_ones[index]


def _selection(ladder: LadderInput) -> Selection:
    """The chosen iteration and layer, or the medians: of iteration totals, then of layer times within it."""
    work, settings = ladder.work, ladder.settings
    iteration, layer = settings.select_iteration, settings.select_layer
    whole = complete_iterations(work)
    if iteration is None and whole.any():
        numbers, index = np.unique(work.iteration[whole], return_inverse=True)
        totals = total_by(index.astype(np.int64), work.left_ns[whole], num_groups=len(numbers))
        iteration = int(numbers[lower_median_index(totals)])
    mine = work.iteration == iteration
    if iteration is not None and not mine.any():
        raise _not_captured(f"iteration {iteration}", np.unique(work.iteration))
    if layer is None and (mine & work.covered).any():
        rows = np.flatnonzero(mine & work.covered)
        layer = int(work.layer[rows[lower_median_index(work.left_ns[rows])]])
    if layer is not None and not (mine & (work.layer == layer)).any():
        raise _not_captured(f"layer {layer} of iteration {iteration}", np.unique(work.layer))
    return Selection(iteration=iteration, layer=layer)


def _not_captured(what: str, known: Int64Array) -> errors.MisuseError:
    return errors.MisuseError(
        where="--select",
        expected=f"one of {known[:20].tolist()}{' ...' if len(known) > 20 else ''}",
        found=what,
        remedy="moegauge capture show lists what was captured.",
    )


def _exact_rung(ladder: LadderInput, rung: RungDefinition, selection: Selection) -> Rung:
    work, settings = ladder.work, ladder.settings
    everything = np.ones(len(work.iteration), dtype=bool)
    mine = work.iteration == selection.iteration
    if rung.number == 1:
        one = mine & (work.layer == selection.layer)
        selected = Scope(one, one & work.covered, selection, settings.invocation_tolerance_ratio, False)
        wide = Scope(everything, work.covered, Selection(iteration=None, layer=None), settings.tolerance_ratio, True)
    else:
        whole = complete_iterations(work)
        only = Selection(iteration=selection.iteration, layer=None)
        selected = Scope(mine, mine & whole, only, settings.tolerance_ratio, False)
        wide = Scope(everything, whole, Selection(iteration=None, layer=None), settings.tolerance_ratio, True)
    pairs = (pair_of(ladder, selected, cancels=rung.number == 2), pair_of(ladder, wide, cancels=True))
    return _rung(rung, *pairs)


def _rung(rung: RungDefinition, selected: Pair, wide: Pair) -> Rung:
    status = worst([selected.status, wide.status])
    decisive = wide if wide.status == status else selected
    flags = tuple(sorted(set(selected.flags) | set(wide.flags)))
    return Rung(
        rung=rung.number,
        status=status,
        reason=decisive.reason,
        flags=flags,
        left=rung.left,
        right=rung.right,
        isolates=rung.isolates,
        selected=selected,
        capture_wide=wide,
    )


def _unmeasured_rung(rung: RungDefinition) -> Rung:
    what = rung.input_type.replace("_", " ")
    return Rung(
        rung=rung.number,
        status=Status.UNAVAILABLE,
        reason=reason("NO_MEASURED_ROWS", f"the profile database holds no rows measured on {what} inputs"),
        flags=(),
        left=rung.left,
        right=rung.right,
        isolates=rung.isolates,
        selected=None,
        capture_wide=None,
    )


def _verdict(rungs: Sequence[Rung]) -> Verdict:
    bad = [rung.rung for rung in rungs if rung.status == Status.DIVERGED or CANCELLATION in rung.flags]
    stop = [rung.rung for rung in rungs if rung.status != Status.MATCH or CANCELLATION in rung.flags]
    first, stops_at = (bad[0] if bad else None), (stop[0] if stop else None)
    return Verdict(
        first_divergence=first,
        claims_stop_at=stops_at,
        sentence=_sentence(rungs, first, stops_at),
        cannot_say=_cannot_say(rungs),
    )


def _sentence(rungs: Sequence[Rung], first: int | None, stops_at: int | None) -> str:
    if stops_at is None:
        return "The ladder is intact: all five rungs match within tolerance."
    rung = rungs[stops_at - 1]
    wide = rung.capture_wide
    told = "" if wide is None or wide.relative_ratio is None else f" (capture-wide {wide.relative_ratio:+.3%})"
    text = f"Claims stop at rung {stops_at}, which is {rung.status}{told}: {rung.reason.sentence}."
    if first is not None:
        isolates = rungs[first - 1].isolates
        return f"The first divergence is at rung {first}, which isolates {isolates}. {text}"
    return f"No divergence is established. {text}"


def _cannot_say(rungs: Sequence[Rung]) -> tuple[str, ...]:
    status = {rung.rung: rung.status for rung in rungs}
    said = []
    if status[1] == Status.UNAVAILABLE and status[2] == Status.UNAVAILABLE:
        said.append("execution-environment error cannot be separated from input-reconstruction error")
    if Status.INCONCLUSIVE in {status[1], status[2]}:
        said.append("whether isolated execution reproduces serving within the tolerance")
    if status[3] == Status.UNAVAILABLE:
        said.append("what compressing an iteration's routing to its popularity costs")
    if status[4] == Status.UNAVAILABLE:
        said.append("what replacing iteration popularity by the full-run summary costs")
    if status[5] == Status.UNAVAILABLE:
        said.append("whether the full-run reconstruction holds over the whole capture")
    return tuple(said)
