"""Assemble pairs, rungs and the verdict from an alignment. Pure: the same rows give the same report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.ladder.judgement import CANCELLATION, UNVERIFIED_CONDITIONS
from moegauge.ladder.pairs import Context, RungInput, Scope, pair_of
from moegauge.ladder.rungs import RUNGS, RungDefinition
from moegauge.ladder.sides import TwoSides
from moegauge.records.comparison import Pair, Rung, Selection, Settings, Verdict
from moegauge.records.decision import Reason, Status, worst
from moegauge.timing.reduction import lower_median_index, total_by

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_WHOLE = Selection(iteration=None, layer=None)


def assemble(inputs: Mapping[int, RungInput | Reason], context: Context) -> tuple[tuple[Rung, ...], Verdict]:
    """Run the rungs in order and state the verdict.

    Args:
        inputs: for each rung its two sides, or why there are none. Rung 1 always has sides.
        context: what all rungs share.
    """
    first = inputs[1]
    assert isinstance(first, RungInput)  # noqa: S101 - the served side always exists
    measured = [one.sides for one in inputs.values() if isinstance(one, RungInput)]
    selection = _selection(next((sides for sides in measured if sides.whole.any()), first.sides), context.settings)
    rungs = []
    for rung in RUNGS:
        found = inputs[rung.number]
        if isinstance(found, RungInput):
            rungs.append(_rung(rung, context, found, selection))
        else:
            rungs.append(_unavailable(rung, found))
    return tuple(rungs), _verdict(rungs)


def _selection(sides: TwoSides, settings: Settings) -> Selection:
    """The chosen iteration and layer, or the medians: of iteration totals, then of layer times within it."""
    iteration, layer, work = settings.select_iteration, settings.select_layer, sides.work
    if iteration is None and sides.whole.any():
        numbers, index = np.unique(work.iteration[sides.whole], return_inverse=True)
        totals = total_by(index.astype(np.int64), work.left_ns[sides.whole], num_groups=len(numbers))
        iteration = int(numbers[lower_median_index(totals)])
    mine = work.iteration == iteration
    if iteration is not None and not mine.any():
        raise _not_captured(f"iteration {iteration}", np.unique(work.iteration))
    if layer is None and (mine & sides.covered).any():
        rows = np.flatnonzero(mine & sides.covered)
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


def _rung(rung: RungDefinition, context: Context, found: RungInput, selection: Selection) -> Rung:
    """Selected and capture-wide pair of a rung; rung 1 is about single invocations, the others about iterations."""
    sides, settings = found.sides, context.settings
    everything = np.ones(len(sides.work.iteration), dtype=bool)
    mine = sides.work.iteration == selection.iteration
    tolerance = settings.tolerance_ratio
    if rung.number == 1:
        one = mine & (sides.work.layer == selection.layer)
        selected = Scope(one, one & sides.covered, selection, settings.invocation_tolerance_ratio, False)
        wide = Scope(everything, sides.covered, _WHOLE, tolerance, True)
    else:
        only = Selection(iteration=selection.iteration, layer=None)
        selected = Scope(mine, mine & sides.whole, only, tolerance, False)
        wide = Scope(everything, sides.whole, _WHOLE, tolerance, True)
    one_pair = pair_of(context, found, selected, cancels=rung.number > 1) if rung.has_selected else None
    return _decided(rung, one_pair, pair_of(context, found, wide, cancels=True))


def _decided(rung: RungDefinition, selected: Pair | None, wide: Pair) -> Rung:
    pairs = [wide] if selected is None else [wide, selected]
    status = worst(pair.status for pair in pairs)
    decisive = next(pair for pair in pairs if pair.status == status)
    return Rung(
        rung=rung.number,
        status=status,
        reason=decisive.reason,
        flags=tuple(sorted({flag for pair in pairs for flag in pair.flags})),
        left=rung.left,
        right=rung.right,
        isolates=rung.isolates,
        selected=selected,
        capture_wide=wide,
    )


def _unavailable(rung: RungDefinition, why: Reason) -> Rung:
    return Rung(
        rung=rung.number,
        status=Status.UNAVAILABLE,
        reason=why,
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
    stop = next((rung for rung in rungs if rung.status != Status.MATCH or CANCELLATION in rung.flags), None)
    if stop is not None and stop.rung < len(rungs):
        said.append(f"anything past rung {stop.rung}: later agreement or disagreement may be cancellation")
    if any(UNVERIFIED_CONDITIONS in rung.flags for rung in rungs):
        said.append("that conditions which were not recorded were the same on both sides")
    if status[3] == Status.UNAVAILABLE:
        said.append("what compressing an iteration's routing to its popularity costs")
    if status[4] == Status.UNAVAILABLE:
        said.append("what replacing iteration popularity by the full-run summary costs")
    if status[5] == Status.UNAVAILABLE:
        said.append("whether the full-run reconstruction holds over the whole capture")
    return tuple(said)
