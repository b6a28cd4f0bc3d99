"""moegauge compare: two implementations on the same captured inputs. What is not exact is not timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from moegauge import __version__, errors
from moegauge.adapters.runners.work import ModelSpec, Work
from moegauge.comparison.selection import chosen, served_strata, stratum_name
from moegauge.comparison.verdict import exactness_failure, judged
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.evidence.store import new_folder, refuse_existing, write_head
from moegauge.gate.words import first_mismatch
from moegauge.jobs.profile_specs import EXACT, InputChoice, Spec, SpecSource
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.targets import work_of
from moegauge.records.kernel_compare import BitsObservation, CompareBlock, CompareReport, Invocation, Options, Raw
from moegauge.timing.uncertainty import LEVEL, MIN_PASSES

if TYPE_CHECKING:
    from moegauge.adapters.compare_side import Bench, Implementation

RECORD_NAME = "compare.json"
_MOST = {"--blocks": 200, "--calls": 1000, "--per-stratum": 1000}


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What to compare and by which rule; see records.kernel_compare.Options."""

    margin_ratio: float = 0.02
    bound_ratio: float | None = None
    num_blocks: int = 10
    calls_per_arm: int = 5
    per_stratum: int = 2
    max_rows: int | None = None
    seed: int = 0


def compare(
    capture: Path,
    base: str,
    head: str,
    options: CompareOptions,
    *,
    out: Path | None = None,
    progress: Progress = silent,
) -> CompareReport:
    """Compare two implementations and, where ``out`` is given, write a compare folder.

    Args:
        capture: capture folder. base, head: sides (adapters/compare_side.py). options: the rule.
        out: folder to make. progress: told after every invocation and block.

    Raises:
        EvidenceError, MisuseError
    """
    _check(options)
    if out is not None:
        refuse_existing(out)
    bench_module = _bench_module()
    sides = bench_module.implementation(base, "--base"), bench_module.implementation(head, "--head")
    folder = open_capture(capture)
    source = SpecSource(folder)
    specs = source.specs(InputChoice(type=EXACT))
    eligible = [one for one in specs if options.max_rows is None or len(one.topk_ids) <= options.max_rows]
    if not eligible:
        raise _nothing(capture, options)
    found = {(one.iteration, one.layer, one.rank): one for one in eligible}
    invocations = [_invocation(one) for one in eligible]
    picked = chosen(invocations, options.per_stratum)
    works = [work_of(found[one.iteration, one.layer, one.rank]) for one in picked]
    bench = bench_module.Bench(_model(source, options.seed))
    raw = Raw(
        served=served_strata(invocations),
        num_left_out=len(specs) - len(eligible),
        invocations=picked,
        bits=_bits(bench, sides, works, progress),
        blocks=(),
    )
    rule = _rule(options, bench_module.NORM)
    if exactness_failure(raw, rule) is None:
        raw = msgspec.structs.replace(raw, blocks=_blocks(bench, sides, works, options, progress))
    report = _report(folder, sides, rule, bench.facts(), raw)
    if out is not None:
        with new_folder(out) as building:
            write_head(building, RECORD_NAME, report)
    return report


def _bench_module() -> ModuleType:
    """The adapter, which needs torch."""
    try:
        return import_module("moegauge.adapters.compare_side")
    except ModuleNotFoundError as error:
        raise errors.MisuseError(
            where="moegauge compare",
            expected="torch",
            found=f"no module named {error.name}",
            remedy='Install it: pip install "moegauge[torch]".',
        ) from error


def _check(options: CompareOptions) -> None:
    numbers = {
        "--blocks": (options.num_blocks, MIN_PASSES),
        "--calls": (options.calls_per_arm, 1),
        "--per-stratum": (options.per_stratum, 1),
    }
    for name, (value, least) in numbers.items():
        if not least <= value <= _MOST[name]:
            raise errors.MisuseError(
                where=name, expected=f"{least} to {_MOST[name]}", found=str(value), remedy="Give another number."
            )
    for name, ratio in (("--margin", options.margin_ratio), ("--bound", options.bound_ratio)):
        if ratio is not None and not 0 <= ratio < 1:
            raise errors.MisuseError(
                where=name, expected="a ratio from 0 up to 1", found=str(ratio), remedy="0.02 is 2 %."
            )


def _nothing(capture: Path, options: CompareOptions) -> errors.MisuseError:
    return errors.MisuseError(
        where=str(capture),
        expected="at least one invocation whose routed rows were captured",
        found=f"none with at most {options.max_rows} rows" if options.max_rows is not None else "none",
        remedy="Give a larger --max-rows, or another capture.",
    )


def _invocation(spec: Spec) -> Invocation:
    ids = spec.topk_ids[spec.topk_ids >= 0]
    if spec.expert_map is not None:
        ids = ids[spec.expert_map[ids] >= 0]
    load = np.bincount(ids) if len(ids) else np.zeros(1, dtype=np.int64)
    active = int(np.count_nonzero(load))
    return Invocation(
        iteration=spec.iteration,
        layer=spec.layer,
        rank=spec.rank,
        stratum=stratum_name(len(spec.topk_ids), active),
        input_digest=spec.match.input_digest,
        executed_rows=len(spec.topk_ids),
        active_experts=active,
        max_expert_rows=int(load.max()),
    )


def _model(source: SpecSource, seed: int) -> ModelSpec:
    """One set of weights for all layers, with the most experts that a rank has."""
    share = source.model.intermediate_size // source.num_parts
    return ModelSpec(
        shape=msgspec.structs.replace(source.model, intermediate_size=share),
        num_local_experts=max(source.ranks.values()),
        numeric_format=source.numeric_format,
        layers=source.layers,
        num_weight_sets=1,
        seed=seed,
    )


def _bits(
    bench: Bench, sides: tuple[Implementation, Implementation], works: Sequence[Work], progress: Progress
) -> tuple[BitsObservation, ...]:
    found = []
    before = bench.weight_sums()
    for number, work in enumerate(works):
        (one, base, base_kept), (other, head, head_kept) = (bench.bits(side, work) for side in sides)
        kept = {"the inputs (base)": base_kept, "the inputs (head)": head_kept}
        found.append(
            BitsObservation(
                base=base,
                head=head,
                mismatch=first_mismatch(bench.dtype, one, other),
                changed_inputs=tuple(name for name, unchanged in kept.items() if not unchanged),
            )
        )
        progress("exactness", number + 1, len(works))
    if bench.weight_sums() != before:
        raise errors.Inconsistent(
            where="moegauge compare",
            expected="weights left as they were",
            found="other words after the calls",
            remedy="A side wrote to w1 or w2; it may only read them.",
        )
    return tuple(found)


def _blocks(
    bench: Bench,
    sides: tuple[Implementation, Implementation],
    works: Sequence[Work],
    options: CompareOptions,
    progress: Progress,
) -> tuple[tuple[CompareBlock, ...], ...]:
    """Blocks are the outer loop, so that drift falls on all invocations alike."""
    base, head = sides
    blocks = []
    for number in range(options.num_blocks):
        block = []
        for work in works:
            a1, b1, b2, a2 = (bench.timed(one, work, options.calls_per_arm) for one in (base, head, head, base))
            block.append(CompareBlock(a1_ns=a1, b1_ns=b1, b2_ns=b2, a2_ns=a2))
        blocks.append(tuple(block))
        progress("blocks", number + 1, options.num_blocks)
    return tuple(blocks)


def _rule(options: CompareOptions, norm: str) -> Options:
    return Options(
        margin_ratio=options.margin_ratio,
        level=LEVEL,
        bound_ratio=options.bound_ratio,
        norm=norm,
        num_blocks=options.num_blocks,
        calls_per_arm=options.calls_per_arm,
        per_stratum=options.per_stratum,
        max_rows=options.max_rows,
        seed=options.seed,
    )


def _report(
    capture: CaptureFolder,
    sides: tuple[Implementation, Implementation],
    options: Options,
    conditions: dict[str, str],
    raw: Raw,
) -> CompareReport:
    return CompareReport(
        schema=CompareReport.tag(),
        tool_version=__version__,
        preregistered=False,
        capture_name=capture.path.resolve().name,
        capture_digest=capture.digest,
        base=sides[0].side,
        head=sides[1].side,
        options=options,
        conditions=conditions,
        raw=raw,
        result=judged(raw, options),
    )
