"""Tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from moegauge.records.capture import CaptureRecord
from moegauge.records.comparison import LadderReport
from moegauge.records.kernel_kind import KernelKindView
from moegauge.records.profile import InputLabel, ProfileKey, RowStatus
from moegauge.records.serving_run import Overhead
from moegauge.render.kernel_text import (
    KIND_HEADINGS,
    ROLE_HEADINGS,
    VARIANT_HEADINGS,
    kind_facts,
    kind_rows,
    role_rows,
    variant_rows,
)
from moegauge.render.ladder_text import (
    CONDITION_HEADINGS,
    EXPLANATION_HEADINGS,
    HEADINGS,
    RANK_HEADINGS,
    condition_cells,
    explanation_rows,
    ladder_rows,
    padded_line,
    rank_rows,
    reasons,
    served_line,
    unavailable_lines,
    unmatched_lines,
)
from moegauge.render.live_text import LIVE_HEADINGS
from moegauge.render.units import bytes_text, overhead_text, time_text

_STYLES = {
    "MATCH": "green",
    "DIVERGED": "bold red",
    "INCONCLUSIVE": "yellow",
    "UNAVAILABLE": "dim",
    "SAME": "green",
    "DIFFERS": "bold red",
    "NOT_RECORDED": "yellow",
}


class ProfileRowLike(Protocol):
    """What is shown of a stored row."""

    @property
    def key(self) -> ProfileKey:
        """Key of the row."""

    @property
    def label(self) -> InputLabel:
        """How its input came to be."""

    @property
    def status(self) -> RowStatus:
        """What became of it."""


def show_ladder(console: Console, report: LadderReport) -> None:
    """Print a ladder report."""
    console.print(Text.assemble(("subject  ", "dim"), report.subject))
    console.print(Text.assemble(("capture  ", "dim"), report.capture_name))
    console.print(_table(HEADINGS, ladder_rows(report), right=range(3, 9)))
    if rank_rows(report):
        console.print(_table(RANK_HEADINGS, rank_rows(report), right=range(1, 4)))
    for heading, sentence in reasons(report):
        console.print(Text.assemble((heading + "  ", "bold"), sentence))
    if report.explanation is not None:
        console.print(_table(EXPLANATION_HEADINGS, explanation_rows(report), right=range(3, 6)))
        _bullets(console, "unmeasured", unavailable_lines(report))
        _bullets(console, "padding", [line for line in [padded_line(report)] if line])
    _bullets(console, "unmatched", unmatched_lines(report))
    _bullets(console, "served", [served_line(report)])
    _bullets(console, "limits", report.limits)
    _bullets(console, "notes", report.notes)
    console.print()
    console.print(Text.assemble(("verdict  ", "bold"), report.verdict.sentence))
    _bullets(console, "cannot be said", report.verdict.cannot_say)


def show_conditions(console: Console, report: LadderReport) -> None:
    """Print the conditions of both sides."""
    console.print(_table(CONDITION_HEADINGS, condition_cells(report)))


def show_live(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print the replays of a live demo against serving."""
    console.print(_table(LIVE_HEADINGS, rows, right=range(1, 5)))


def show_kinds(console: Console, kinds: Sequence[KernelKindView]) -> None:
    """Print the registered kernel kinds."""
    console.print(_table(KIND_HEADINGS, kind_rows(kinds)))


def show_kind(console: Console, kind: KernelKindView) -> None:
    """Print one kernel kind."""
    console.print(_table(("what", "found"), kind_facts(kind)))
    console.print(_table(ROLE_HEADINGS, role_rows(kind)))
    console.print(_table(VARIANT_HEADINGS, variant_rows(kind)))


class CaptureViewLike(Protocol):
    """What is shown of a capture."""

    @property
    def record(self) -> CaptureRecord:
        """Its head."""

    @property
    def consequences(self) -> Sequence[str]:
        """What its gaps make unavailable."""

    @property
    def rows_by_phase(self) -> Mapping[str, int] | None:
        """Rows of requests by phase."""

    @property
    def overhead(self) -> Overhead | None:
        """What the recorder cost."""


def show_capture(console: Console, view: CaptureViewLike) -> None:
    """Print what is in a capture, what is missing, and what that makes unavailable."""
    record, consequences = view.record, view.consequences
    coverage, model = record.coverage, record.model
    rows = [
        ("kernel", f"{record.kernel.kind} ({record.kernel.backend}, {record.kernel.numeric_format})"),
        ("boundary", " → ".join(record.kernel.boundary)),
        (
            "model",
            f"hidden {model.hidden_size}, intermediate {model.intermediate_size}, {model.num_experts} experts, "
            f"top-{model.top_k}, {len(record.moe_layers)} MoE layers",
        ),
        ("ranks", _ranks(record)),
        ("iterations", f"{coverage.num_iterations_closed} of {coverage.num_iterations} closed"),
        (
            "rank invocations",
            f"{coverage.num_rank_invocations_closed} of {coverage.num_rank_invocations} attributed, "
            f"{coverage.num_rank_invocations_routed} with exact input, "
            f"{coverage.num_rank_invocations_zero_tokens} declared empty",
        ),
        (
            "device operations",
            f"{coverage.num_ops_in_boundary} in the boundary, "
            f"{coverage.num_ops_outside_boundary} known stages outside, {coverage.num_ops_foreign} foreign, "
            f"{coverage.num_ops_unknown} unknown, "
            f"{coverage.num_ops_outside_iterations} outside iterations, {coverage.num_ops_invalid} invalid",
        ),
        (
            "time",
            f"busy {time_text(coverage.busy_ns)} in spans of {time_text(coverage.span_ns)}; foreign co-running "
            f"{time_text(coverage.foreign_ns)}",
        ),
        ("routes cross-check", _cross_check(record)),
        ("conditions", ", ".join(f"{n}={f.value}" for n, f in sorted(record.conditions.items())) or "none recorded"),
        *_served(view),
        ("files", f"{len(record.files)}, {bytes_text(sum(f.num_bytes for f in record.files.values()))}"),
    ]
    console.print(_table(("what", "found"), rows))
    _bullets(console, "unknown kernels", coverage.unknown_names)
    _bullets(console, "findings", [f"{f.code}: {f.num} {f.sentence} {list(f.examples)}" for f in record.findings])
    _bullets(console, "therefore unavailable", consequences)


def _served(view: CaptureViewLike) -> list[tuple[str, str]]:
    """What only a recording of a live engine says."""
    rows = []
    if view.rows_by_phase is not None:
        rows.append(("rows by phase", ", ".join(f"{phase} {num}" for phase, num in view.rows_by_phase.items())))
    if view.overhead is not None:
        rows.append(("recorder", overhead_text(view.overhead)))
    return rows


def _ranks(record: CaptureRecord) -> str:
    topology = record.topology
    sizes = {"TP": topology.tp_size, "EP": topology.ep_size, "DP": topology.dp_size}
    text = ", ".join(f"{name} {size if size is not None else 'not recorded'}" for name, size in sizes.items())
    missing = [f"rank {rank.rank} missing ({rank.why_missing})" for rank in topology.ranks if not rank.recorded]
    return f"{topology.world_size} ({text}; routed rows {topology.routed_scope})" + "".join(f"; {m}" for m in missing)


def _cross_check(record: CaptureRecord) -> str:
    check = record.routes_cross_check
    if check is None:
        return "no engine export in the recording"
    return (
        f"{check.num_tokens_equal} of {check.num_tokens_official} exported tokens equal over all layers "
        f"({check.num_tokens_captured} captured; {check.num_padded_rows} padded rows apart, "
        f"{check.num_padded_rows_like_a_token} of them like a token)"
    )


def _bullets(console: Console, heading: str, lines: Iterable[str]) -> None:
    for index, line in enumerate(lines):
        console.print(Text.assemble((f"{heading if index == 0 else '':<10}  ", "dim"), line))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    to_right = set(right)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index in to_right else "left", overflow="fold")
    for row in rows:
        style = _STYLES.get(row[-1].split(" ")[0], "")
        cells = [escape(cell) for cell in row]
        table.add_row(*cells[:-1], f"[{style}]{cells[-1]}[/]" if style else cells[-1])
    return Group(table)


def show_rows(console: Console, rows: Sequence[dict[str, object]]) -> None:
    """Print looked-up profile rows: place, input, passes, status and, for a miss, what differs."""
    headings = ("input", "iteration", "layer", "rank", "rows", "passes", "status", "nearest row differs in")
    cells = [
        (
            str(row["input_type"]),
            str(row["iteration"]),
            str(row["layer"]),
            str(row["rank"]),
            str(row["executed_rows"]),
            str(row["num_passes"]),
            str(row["status"]),
            ", ".join(map(str, row["differs"])) if isinstance(row["differs"], list | tuple) else "",
        )
        for row in rows
    ]
    console.print(_table(headings, cells, right=range(1, 6)))


def _drawn_by(label: InputLabel) -> str:
    """What drew an input; nothing where it was not drawn."""
    if not label.sampler:
        return ""
    how = f"{label.sampler}, seed {label.seed}"
    return f"{label.window} by {how}" if label.padding is None else f"{how}, padding {label.padding}"


def show_measured(console: Console, rows: Iterable[ProfileRowLike]) -> None:
    """Print what a profile database holds: one line for each kernel, input, launch mode and cache state."""
    counted: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        cache = row.key.setting.conditions.get("cache_state")
        drawn = _drawn_by(row.label)
        counted[
            (
                row.key.match.subject.kernel_kind,
                row.key.match.input_type,
                drawn,
                str(row.key.setting.launch_mode or "not recorded"),
                cache.value if cache else "not recorded",
                str(row.status),
            )
        ] += 1
    headings = ("kernel", "input", "drawn by", "launch mode", "cache state", "rows", "status")
    console.print(_table(headings, [(*key[:5], str(num), key[5]) for key, num in sorted(counted.items())], right=[5]))
