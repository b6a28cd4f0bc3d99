"""INV-1: on each side, what is covered and what is unmatched add up to what was captured, in count and in ns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import NO_LABELS
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from moegauge.ladder.alignment import CHOSEN_BY, Choice, MeasuredWork, ServedWork, align_work
from moegauge.ladder.assembly import assemble
from moegauge.ladder.pairs import Context, RungInput
from moegauge.ladder.sides import TwoSides
from moegauge.records.comparison import InputLabel, Links, Pair, Rung, Unmatched
from moegauge.records.decision import Status, reason
from simulator import NAMES, Recording

SERVED = {
    "iteration": pl.Int32, "layer": pl.Int32, "rank": pl.Int32, "busy_ns": pl.Int64, "zero_tokens": pl.Boolean,
    "timing_code": pl.String, "routed_code": pl.String, "launch_mode": pl.String, "match": pl.String,
    "kernels_digest": pl.String,
}  # fmt: skip
ROWS = {"row_id": pl.Int64} | dict.fromkeys(CHOSEN_BY, pl.String)
SAMPLES = {
    "row_id": pl.Int64, "pass_id": pl.Int64, "iteration": pl.Int32, "layer": pl.Int32, "rank": pl.Int32,
    "busy_ns": pl.Int64, "kernels_digest": pl.String, "clocks": pl.String,
}  # fmt: skip

FEWER = settings(max_examples=60)
"""Each example runs a whole ladder."""

Place = tuple[int, int, int]
"""(iteration, layer, rank)."""


@dataclass
class Work:
    """Both sides in plain rows, and what was captured on each, counted without the product's help.

    Attributes:
        served: for each place (busy ns or None, declared empty, routed, launch mode).
        measured: for each row (place, launch mode, cache state, ns by pass); a place that was never served is legal.
    """

    num_ranks: int
    served: dict[Place, tuple[int | None, bool, bool, str | None]] = field(default_factory=dict)
    measured: list[tuple[Place, str | None, str | None, dict[int, int]]] = field(default_factory=list)
    loose: tuple[Unmatched, ...] = ()

    def left(self) -> dict[tuple[int, int], int | None]:
        """Longest known time of each captured invocation, None where no rank's time is known."""
        found: dict[tuple[int, int], int | None] = {}
        for (iteration, layer, _), (busy, *_) in self.served.items():
            known = [ns for ns in (found.get((iteration, layer)), busy) if ns is not None]
            found[iteration, layer] = max(known) if known else None
        return found

    def right(self) -> dict[tuple[int, int, str | None, str | None], int]:
        """Longest time of each measured invocation in the only pass: one entry an invocation and way of measuring."""
        found: Counter[tuple[int, int, str | None, str | None]] = Counter()
        for (iteration, layer, _), mode, cache, by_pass in self.measured:
            key = (iteration, layer, mode, cache)
            found[key] = max(found[key], *by_pass.values())
        return dict(found)

    def fitting(self, place: Place, mode: str | None, choice: Choice) -> list[int]:
        """Ns (of the only pass) of every measured row that fits a place; rows of a known launch mode go first."""
        wanted = mode if choice.launch_mode == "as-served" else choice.launch_mode
        found = [
            (measured_mode, max(by_pass.values()))
            for measured, measured_mode, cache, by_pass in self.measured
            if measured == place
            and (measured_mode is None or wanted is None or measured_mode == wanted)
            and (choice.cache_state is None or cache == choice.cache_state)
        ]
        known = [ns for measured_mode, ns in found if measured_mode is not None]
        return known or [ns for _, ns in found]

    def comparable(self, choice: Choice) -> dict[tuple[int, int], tuple[int, int]]:
        """(left ns, right ns) of each invocation that is complete on both sides."""
        found = {}
        for key in self.left():
            rows = {place: row for place, row in self.served.items() if place[:2] == key}
            fits = {
                place: self.fitting(place, mode, choice) if routed else []
                for place, (_, empty, routed, mode) in rows.items()
                if not empty
            }
            whole = len(rows) == self.num_ranks and all(busy is not None for busy, *_ in rows.values())
            if whole and all(len(times) == 1 for times in fits.values()):
                left = max(busy or 0 for busy, *_ in rows.values())
                found[key] = (left, max((times[0] for times in fits.values()), default=0))
        return found

    def ladder(self, choice: Choice) -> tuple[Rung, ...]:
        served = [
            (*place, busy, empty, None if busy is not None else "GRAMMAR_MISMATCH",
             None if routed else "NO_EXACT_INPUT", mode, None if empty or not routed else f"input {place}", "kernels")
            for place, (busy, empty, routed, mode) in self.served.items()
        ]  # fmt: skip
        rows = [
            (n, f"input {place}", mode, cache, None, None, None)
            for n, (place, mode, cache, _) in enumerate(self.measured)
        ]
        samples = [
            (n, number, *place, ns, "kernels", None)
            for n, (place, _, _, by_pass) in enumerate(self.measured)
            for number, ns in by_pass.items()
        ]
        work = align_work(
            ServedWork(pl.DataFrame(served, schema=SERVED, orient="row"), self.num_ranks, self.loose, ""),
            MeasuredWork(
                pl.DataFrame(rows, schema=ROWS, orient="row"), pl.DataFrame(samples, schema=SAMPLES, orient="row")
            ),
            choice,
        )
        label = InputLabel(type="exact", window=None, sampler=None, version=None, seed=None, digest=None)
        exact = RungInput(TwoSides(work), (), label, True)
        nothing = reason("NO_MEASURED_ROWS", "none")
        links = Links(capture="c", input="i", measurements="m", report="r")
        context = Context(
            settings=ladder_settings(), links=links, num_ranks=self.num_ranks, rank_identity="RANK_NUMBER"
        )
        return assemble({1: exact, 2: exact, 3: nothing, 4: nothing, 5: nothing}, context)[0]


def of_side(pair: Pair, side: str) -> tuple[int, int]:
    """(invocations, ns) that a pair lists as unmatched on a side; loose kernels have ns and count as no invocation."""
    mine = [entry for entry in pair.unmatched if entry.side == side]
    num = sum(entry.num for entry in mine if not entry.what.startswith("kernels"))
    return num, sum(entry.ns or 0 for entry in mine)


def check(pair: Pair, captured: dict[tuple[int, int], int | None], loose_ns: int) -> None:
    """Left side: invocations and ns, against what was captured."""
    num, ns = of_side(pair, "left")
    assert pair.num_captured_invocations.left == len(captured)
    assert pair.num_invocations + num == len(captured)
    known = sum(one for one in captured.values() if one is not None) + loose_ns
    assert pair.captured_ns.left == known
    assert (pair.left_ns or 0) + ns == known


@st.composite
def works(draw: st.DrawFn, num_passes: int = 1) -> Work:
    work = Work(num_ranks=draw(st.integers(1, 2)))
    times = st.integers(1, 10**6)
    modes = st.sampled_from(["eager", "graph", None])
    for iteration in range(draw(st.integers(1, 3))):
        for layer in range(draw(st.integers(1, 3))):
            there = [rank for rank in range(work.num_ranks) if draw(st.integers(0, 9)) > 0] or [0]
            mode = draw(modes)
            for rank in there:
                empty = draw(st.integers(0, 9)) == 0
                busy = 0 if empty else draw(st.none() | times) if draw(st.integers(0, 4)) == 0 else draw(times)
                work.served[iteration, layer, rank] = (busy, empty, draw(st.integers(0, 7)) > 0, mode)
    # A replay measures every rank of an invocation in the same ways; 3 is an iteration that was never served.
    for iteration, layer in [(i, layer) for i in range(4) for layer in range(3)]:
        ranks = [rank for rank in range(work.num_ranks) if (iteration, layer, rank) in work.served]
        mode = (work.served[iteration, layer, ranks[0]][3] if ranks else None) or "eager"
        other = "graph" if mode == "eager" else "eager"
        ways = draw(
            st.sampled_from(
                [
                    [(mode, None)],
                    [(mode, "cold")],
                    [(mode, None), (other, None)],
                    [(mode, None), (mode, "cold")],  # ambiguous
                    [(mode, None), (None, None)],  # a known launch mode goes before one that was not recorded
                    [(None, None), (None, "warm")],  # ambiguous
                    [(other, None)],
                    [],
                ]
            )
        )
        for rank in ranks or range(work.num_ranks):
            _, empty, routed, _ = work.served.get((iteration, layer, rank), (1, False, True, None))
            if empty or not routed:
                continue  # without its input nothing can have been measured
            for mode, cache in ways:
                by_pass = {n: draw(times) for n in range(num_passes) if num_passes == 1 or draw(st.booleans())}
                if by_pass:
                    work.measured.append(((iteration, layer, rank), mode, cache, by_pass))
    if draw(st.booleans()):
        work.loose = (Unmatched(side="left", what="kernels: outside", why="OUTSIDE_ITERATIONS", num=3, ns=draw(times)),)
    return work


choices = st.builds(Choice, st.sampled_from(["as-served", "eager", "graph"]), st.sampled_from([None, "cold"]))


@FEWER
@given(works(), choices)
def test_every_captured_invocation_is_covered_or_unmatched_and_so_is_every_ns(work: Work, choice: Choice) -> None:
    loose_ns = sum(entry.ns or 0 for entry in work.loose)
    for rung in work.ladder(choice)[:2]:
        assert rung.capture_wide is not None
        check(rung.capture_wide, work.left(), loose_ns)


@FEWER
@given(works(), choices)
def test_a_selected_pair_conserves_the_work_of_its_selection(work: Work, choice: Choice) -> None:
    captured = work.left()
    for rung in work.ladder(choice)[:2]:
        assert rung.selected is not None
        iteration, layer = rung.selected.selection.iteration, rung.selected.selection.layer
        mine = {key: ns for key, ns in captured.items() if iteration == key[0] and (rung.rung == 2 or layer == key[1])}
        check(rung.selected, mine, 0)


@FEWER
@given(works(), choices)
def test_every_measured_invocation_is_compared_or_unmatched_and_so_is_every_ns(work: Work, choice: Choice) -> None:
    measured = work.right()
    for rung in work.ladder(choice)[:2]:
        pair = rung.capture_wide
        assert pair is not None
        num, ns = of_side(pair, "right")
        empty = num_without_tokens(work)
        assert pair.num_captured_invocations.right == len(measured) + empty
        assert pair.num_invocations + num == len(measured) + empty
        assert pair.captured_ns.right == sum(measured.values())
        assert (pair.right_ns or 0) + ns == sum(measured.values())


def num_without_tokens(work: Work) -> int:
    """Invocations declared empty on every rank: 0 ns on both sides, with nothing that could have been measured."""
    ranks = Counter((iteration, layer) for (iteration, layer, _), (_, empty, *_) in work.served.items() if empty)
    return sum(num == work.num_ranks for num in ranks.values())


@FEWER
@given(works(), choices)
def test_exactly_the_invocations_that_are_complete_on_both_sides_are_compared(work: Work, choice: Choice) -> None:
    comparable = work.comparable(choice)
    iterations = {iteration for iteration, _ in work.left()}
    whole = {one for one in iterations if {key for key in work.left() if key[0] == one} <= comparable.keys()}
    expected = (comparable, {key: times for key, times in comparable.items() if key[0] in whole})
    for rung, times in zip(work.ladder(choice)[:2], expected, strict=True):
        pair = rung.capture_wide
        assert pair is not None
        assert pair.num_invocations == len(times)
        if pair.left_ns is not None:
            assert pair.left_ns == sum(left for left, _ in times.values())
            assert pair.right_ns == sum(right for _, right in times.values())
        else:
            assert all(right == 0 for _, right in times.values())


@FEWER
@given(works(num_passes=3), choices)
def test_counts_are_conserved_whichever_passes_measured_what(work: Work, choice: Choice) -> None:
    for rung in work.ladder(choice)[:2]:
        pair = rung.capture_wide
        assert pair is not None
        check(pair, work.left(), sum(entry.ns or 0 for entry in work.loose))
        num, _ = of_side(pair, "right")
        assert pair.num_captured_invocations.right == pair.num_invocations + num


@FEWER
@given(works(), choices)
def test_nothing_is_covered_with_a_part_missing_and_every_gap_has_a_reason(work: Work, choice: Choice) -> None:
    (first, second, *_) = work.ladder(choice)
    for rung in (first, second):
        pair = rung.capture_wide
        assert pair is not None
        broken = {
            key for key in work.left()
            if sum(place[:2] == key for place in work.served) < work.num_ranks
            or any(place[:2] == key and row[0] is None for place, row in work.served.items())
        }  # fmt: skip
        assert pair.num_invocations <= len(work.left()) - len(broken)
        if broken or pair.unmatched:
            assert pair.status != Status.MATCH
        assert all(entry.num > 0 and entry.why for entry in pair.unmatched)


ONE = Work(
    num_ranks=2,
    served={
        (0, 0, 0): (100, False, True, "eager"),
        (0, 0, 1): (120, False, True, "eager"),
        (0, 1, 0): (70, False, True, "eager"),
        (1, 0, 0): (None, False, True, "eager"),
        (1, 0, 1): (50, False, True, "eager"),
    },
    measured=[
        ((0, 0, 0), "eager", None, {1: 110}),
        ((0, 0, 1), "eager", None, {1: 115}),
        ((0, 1, 0), "eager", None, {1: 77}),
        ((1, 0, 1), "eager", None, {1: 55}),
        ((9, 0, 0), "eager", None, {1: 33}),
    ],
)


def test_a_rank_missing_makes_its_invocation_unmatched_and_never_the_maximum_of_those_present() -> None:
    pair = ONE.ladder(Choice("as-served", None))[0].capture_wide
    assert pair is not None
    assert (pair.num_invocations, pair.left_ns, pair.right_ns) == (1, 120, 115)
    found = {(entry.side, entry.why): (entry.num, entry.ns) for entry in pair.unmatched}
    assert found[("left", "RANK_MISSING")] == (1, 70)
    assert found[("left", "GRAMMAR_MISMATCH")] == (1, 50)
    assert found[("right", "INPUT_NOT_SERVED")] == (1, 33)
    assert pair.captured_ns.left == 120 + 70 + 50
    assert pair.captured_ns.right == 115 + 77 + 55 + 33


def test_a_total_of_an_iteration_with_a_gap_is_not_compared() -> None:
    pair = ONE.ladder(Choice("as-served", None))[1].capture_wide
    assert pair is not None
    assert (pair.status, pair.num_invocations, pair.left_ns, pair.right_ns) == (Status.UNAVAILABLE, 0, None, None)
    assert pair.lower_bound_ns.left == 120 + 70 + 50


# The same law over whole recordings, through import, align and the report that is written.


def drop_kernel(recording: Recording, bundle: Path, rank: int, which: int) -> None:
    """Take one gemm out of a rank's serving trace: its iteration no longer closes."""
    trace = recording.serving(rank)
    gemms = [event for event in trace.events if event["name"] == NAMES["gemm"]]
    trace.events.remove(gemms[which])
    name = f"rank{rank}.serving_trace.json" if recording.ranks > 1 else "serving_trace.json"
    (bundle / name).write_bytes(trace.data())


SCENARIOS: dict[str, dict[str, Any]] = {
    "everything there": {},
    "an iteration that does not close": {"drop": [(0, 2)]},
    "two iterations that do not close": {"drop": [(0, 2), (0, 8)]},
    "no graph replay": {"graph": False},
    "no eager replay of what was served eagerly": {"launch_mode": "graph"},
    "both replays, eager chosen": {"launch_mode": "eager"},
    "one of two ranks missing": {"ranks": 2, "present": [0]},
    "expert parallel": {"ranks": 2, "expert_parallel": True},
    "expert parallel, one iteration broken on one rank": {"ranks": 2, "expert_parallel": True, "drop": [(0, 14)]},
    "expert parallel, iterations broken on both ranks": {"ranks": 2, "expert_parallel": True, "drop": [(0, 2), (1, 8)]},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_written_report_accounts_for_every_invocation_and_ns_of_its_capture(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    recording = Recording(ranks=scenario.get("ranks", 1), expert_parallel=scenario.get("expert_parallel", False))
    ranks = scenario.get("present", range(recording.ranks))
    bundle = recording.write(tmp_path / "bundle", ranks=ranks)
    for rank, which in scenario.get("drop", []):
        drop_kernel(recording, bundle, rank, which)
    capture = import_serving(bundle, tmp_path / "capture", partial=len(ranks) < recording.ranks)
    for kind in ("replay", "graph_replay"):
        if kind == "replay" or scenario.get("graph", True):
            paths = [tmp_path / f"{kind}{rank}.json" for rank in ranks]
            for rank, path in zip(ranks, paths, strict=True):
                path.write_bytes(getattr(recording, kind)(rank, scale=1.01).data())
            import_replay(capture.path, paths, tmp_path / "profile.db", labels=NO_LABELS)
    settings = ladder_settings(launch_mode=scenario.get("launch_mode", "as-served"))
    report = align(capture.path, tmp_path / "profile.db", tmp_path / "report", settings=settings)
    rows = capture.invocations
    by_invocation = rows.group_by("iteration", "layer").agg(pl.col("busy_ns").max())
    captured = {(i, layer): ns for i, layer, ns in by_invocation.iter_rows()}
    loose = capture.iterations["unattributed_ns"].sum()
    assert len(captured) == 9
    for rung in report.rungs[:2]:
        assert rung.capture_wide is not None
        check(rung.capture_wide, captured, loose)
        num, ns = of_side(rung.capture_wide, "right")
        samples = 9 + (6 if scenario.get("graph", True) else 0)
        assert rung.capture_wide.num_invocations + num == samples
        total = sum(
            max(round_each(recording, step, layer, rank) for rank in ranks)
            for step in recording.steps
            for layer in recording.layers
            for _ in range(2 if step["graph"] and scenario.get("graph", True) else 1)
        )
        assert (rung.capture_wide.right_ns or 0) + ns == total


def round_each(recording: Recording, step: dict[str, Any], layer: int, rank: int) -> int:
    """Busy time of one replayed invocation: every kernel 1 % longer, in whole ns."""
    return sum(
        round(recording.time(step["iter"], layer, rank, role) * 1.01) for role in recording.roles(step["padded"])
    )
