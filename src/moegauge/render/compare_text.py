"""A comparison as Markdown (for a pull request, at most 60 lines) and as JUnit XML; from the record only."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from moegauge.records.decision import Status
from moegauge.records.kernel_compare import CompareReport, Loss, SideBits, TimeRatio

_MOST_STRATA = 20
_MOST_LOSSES = 10
_WORDS = {Status.MATCH: "PASS", Status.DIVERGED: "FAIL", Status.INCONCLUSIVE: "CANNOT BE JUDGED"}


def compare_markdown(report: CompareReport) -> str:
    """The comparison as Markdown, at most 60 lines."""
    result, raw = report.result, report.raw
    lines = [
        f"### {_WORDS[result.status]}: {_cell(report.head.name)} against {_cell(report.base.name)}",
        "",
        f"{result.reason.code}: {_cell(result.reason.sentence)}",
        "",
        *(f"- {title}: {found}" for title, found in _exactness(report)),
        f"- error against float64 ({report.options.norm}), base: {_error(report, 'base')}",
        f"- error against float64 ({report.options.norm}), head: {_error(report, 'head')}",
        "",
        *_times(report),
        *_losses(report),
        f"Compared: {len(raw.invocations)} of {sum(one.num_served for one in raw.served)} eligible rank invocations of "
        f"{_cell(report.capture_name)}; {raw.num_left_out} larger ones left out. Not preregistered.",
    ]
    return "\n".join(lines) + "\n"


def _exactness(report: CompareReport) -> Iterator[tuple[str, str]]:
    found, bound = report.result.exactness, report.options.bound_ratio
    yield "bit-exact, head against base", _yes(found.bit_exact) + _first_mismatch(report)
    yield "repeatable", f"base {_yes(found.base_repeatable)}, head {_yes(found.head_repeatable)}"
    yield "batch-invariant", f"base {_yes(found.base_batch_invariant)}, head {_yes(found.head_batch_invariant)}"
    within = "no bound declared" if found.within_bound is None else f"{_yes(found.within_bound)} ({bound:g})"
    yield "within the declared error bound", within


def _first_mismatch(report: CompareReport) -> str:
    for one, bits in zip(report.raw.invocations, report.raw.bits, strict=True):
        if bits.mismatch is not None:
            found = bits.mismatch
            return (
                f"; iteration {one.iteration}, layer {one.layer}, rank {one.rank}: {found.num_words} words, first at "
                f"{list(found.first_index)}: {found.incumbent_word} is {found.candidate_word} ({found.word_class})"
            )
    return ""


def _error(report: CompareReport, side: str) -> str:
    """The largest error of one side with its bias and worst token."""
    sides: list[SideBits] = [getattr(bits, side) for bits in report.raw.bits]
    if any(one.error_ratio is None for one in sides):
        return "not finite"
    index = max(range(len(sides)), key=lambda at: sides[at].error_ratio or 0.0)
    worst, place = sides[index], report.raw.invocations[index]
    where = f"iteration {place.iteration}, layer {place.layer}, token {worst.worst_token}"
    errors = [_number(one) for one in (worst.error_ratio, worst.bias_ratio, worst.worst_token_ratio)]
    return f"{errors[0]} (bias {errors[1]}, worst token {errors[2]}: {where})"


def _number(ratio: float | None) -> str:
    return "not finite" if ratio is None else f"{ratio:.3g}"


def _times(report: CompareReport) -> list[str]:
    result = report.result
    if result.time is None:
        return ["Time was not judged.", ""]
    lines = [
        f"| stratum | share served | measured | head / base | {report.options.level:.0%} interval | wins |",
        "|---|---|---|---|---|---|",
        f"| **served-weighted** | | {len(report.raw.invocations)} | {_ratio(result.time)} |",
    ]
    lines += [
        f"| {_cell(one.name)} | {one.share_ratio:.1%} | {one.num_measured} | {_ratio(one.time)} |"
        for one in result.strata[:_MOST_STRATA]
    ]
    if len(result.strata) > _MOST_STRATA:
        lines.append(f"| {len(result.strata) - _MOST_STRATA} further strata in the record | | | | | |")
    return [*lines, ""]


def _ratio(time: TimeRatio) -> str:
    return f"{time.ratio:.4f} | {time.low_ratio:.4f} to {time.high_ratio:.4f} | {time.num_wins} of {time.num_blocks}"


def _losses(report: CompareReport) -> list[str]:
    losses = report.result.losses
    if not losses:
        return []
    lines = [f"Slower on {len(losses)} invocations, each by its own interval:", ""]
    lines += [f"- {_loss(report, one)}" for one in losses[:_MOST_LOSSES]]
    return [*lines, ""]


def _loss(report: CompareReport, loss: Loss) -> str:
    one = report.raw.invocations[loss.index]
    return (
        f"iteration {one.iteration}, layer {one.layer}, rank {one.rank}: {one.executed_rows} rows, "
        f"{one.active_experts} experts, {one.max_expert_rows} rows on the most loaded; {loss.time.ratio:.4f} "
        f"({loss.time.low_ratio:.4f} to {loss.time.high_ratio:.4f})"
    )


def compare_junit(report: CompareReport) -> str:
    """The verdict as one JUnit test case: a failure where it is DIVERGED, an error where it cannot be judged."""
    result = report.result
    tag = {Status.DIVERGED: "failure", Status.INCONCLUSIVE: "error"}.get(result.status)
    message = (
        f"<{tag} type={_attribute(result.reason.code)} message={_attribute(result.reason.sentence)}/>" if tag else ""
    )
    failures, num_errors = int(tag == "failure"), int(tag == "error")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="moegauge compare" tests="1" failures="{failures}" errors="{num_errors}">'
        f"<testcase classname={_attribute(report.base.name)} name={_attribute(report.head.name)}>{message}</testcase>"
        "</testsuite>\n"
    )


def _attribute(text: str) -> str:
    return quoteattr("".join(char if char.isprintable() else "?" for char in text))


def _cell(text: str) -> str:
    """Text that can start no markup and end no cell."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    for char in "\\`*_[]<>|&":
        clean = clean.replace(char, f"\\{char}" if char not in "<>&" else f"&#{ord(char)};")
    return clean


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"
