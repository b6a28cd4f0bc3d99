"""Rungs 1 to 5 over planted measurements: which rung a difference shows on, and where the claims stop."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from moegauge.adapters.profile_db import Sample, now, open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.jobs.align import align, exit_status, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, InputChoice, Spec, SpecSource
from moegauge.jobs.report import read_report
from moegauge.jobs.verify import verify
from moegauge.records.comparison import LadderReport, Pair
from moegauge.records.measurement import Fact, LaunchMode
from moegauge.records.profile import PassRecord, ProfileKey, Setting
from simulator import NAMES, Recording

LAYERS = 10
PREFILL, DECODES = 0, (1, 2, 3, 4)
ROLE_NS = {"align_small": 3_000, "gemm": 20_000, "act": 4_000, "sum": 3_000}
SERVED_NS = {PREFILL: 200_000, **dict.fromkeys(DECODES, 50_000)}
"""One invocation; ten of them are 2 ms of the prefill, and 0.5 ms of each of the four decodes: 4 ms in all."""

FACTS = {"device_model": "Simulated GPU", "cuda_driver": "13000", "torch": "2.11.0", "vllm": "0.25.1"}
"""Conditions as the capture records them."""

SELECTED = (1, 0)
"""The median iteration, and the layer of median time in it: the first of equals."""

Off = Callable[[int, int], float]
"""(iteration, layer) -> relative difference of the isolated time."""


def nothing(iteration: int, layer: int) -> float:
    return 0.0


def role_time(iteration: int, layer: int, rank: int, role: str) -> int:
    return ROLE_NS[role] * (4 if iteration == PREFILL else 1)


def served() -> Recording:
    """A prefill of 32 tokens, and four decodes of six tokens in eight rows, as graphs."""
    steps = [{"iter": PREFILL, "tokens": 32, "padded": 32, "graph": False}]
    steps += [{"iter": i, "tokens": 6, "padded": 8, "graph": True} for i in DECODES]
    return Recording(steps=steps, layers=tuple(range(LAYERS)), time=role_time)


@dataclass
class Desk:
    """The capture, and a database that the test plants measurements in."""

    folder: Path
    capture: CaptureFolder

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def plant(
        self,
        off: Mapping[str, Off],
        *,
        num_passes: int = 7,
        noise: Callable[[], float] | None = None,
        sampler: str = "counts_exact",
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Measure every invocation of the given inputs in passes 8 ns apart, or with noise of the test's own."""
        recording, source = served(), SpecSource(self.capture)
        for kind, away in off.items():
            specs = source.specs(InputChoice(type=kind, sampler=sampler))
            for number in range(num_passes):
                drift = 4 * (2 * number - (num_passes - 1))
                samples = []
                for spec in specs:
                    wanted = SERVED_NS[spec.iteration] * (1 + away(spec.iteration, spec.layer))
                    taken = round(wanted) + drift if noise is None else round(wanted * (1 + noise()))
                    samples.append(sample(recording, spec, taken, FACTS | dict(facts or {})))
                with open_profile_db(self.db, create=True) as database:
                    database.add_pass(record(self.capture), [], samples)

    def align(self, out: str = "report", *, sampler: str = "counts_exact") -> LadderReport:
        return align(self.capture.path, self.db, self.folder / out, settings=ladder_settings(sampler=sampler))


def sample(recording: Recording, spec: Spec, ns: int, facts: Mapping[str, str]) -> Sample:
    conditions = {name: Fact(value=value, source="trace") for name, value in facts.items()}
    setting = Setting(launch_mode=LaunchMode(str(spec.served_launch_mode)), conditions=conditions)
    columns = {"iteration": spec.iteration, "layer": spec.layer, "rank": spec.rank, "device": 0}
    times = {"busy_ns": ns, "span_ns": ns, "foreign_ns": 0, "num_kernels": 5}
    names = tuple(NAMES[role] for role in recording.roles(len(spec.topk_ids)))
    return Sample(ProfileKey(match=spec.match, setting=setting), spec.label, columns | times, names)


def record(capture: CaptureFolder) -> PassRecord:
    return PassRecord(
        source="run", capture_digest=capture.raw_digest, runner="planted", tag=None, launch_mode=None, declared={},
        traces={}, facts={}, tool_version="0.1.0", recorded_at=now(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    return import_serving(served().write(folder / "bundle"), folder / "capture").path


@pytest.fixture
def desk(imported: Path, tmp_path: Path) -> Desk:
    shutil.copytree(imported, tmp_path / "capture")
    return Desk(tmp_path, open_capture(tmp_path / "capture"))


def wide(report: LadderReport, rung: int) -> Pair:
    pair = report.rungs[rung - 1].capture_wide
    assert pair is not None
    return pair


def selected(report: LadderReport, rung: int) -> Pair:
    pair = report.rungs[rung - 1].selected
    assert pair is not None
    return pair


def told(report: LadderReport) -> list[str]:
    """Status of each rung, with an exclamation mark where cancellation is flagged."""
    return [f"{rung.status}{'!' * ('CANCELLATION' in rung.flags)}" for rung in report.rungs]


def only(rung: int, status: str) -> list[str]:
    return [status if number == rung else "MATCH" for number in range(1, 6)]


# Where a difference shows


def test_an_intact_ladder_is_five_matches_and_claims_stop_nowhere(desk: Desk) -> None:
    desk.plant(dict.fromkeys((EXACT, ITERATION, FULL_RUN), nothing))
    report = desk.align()
    assert told(report) == ["MATCH"] * 5
    assert exit_status(report) == 0
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (None, None)
    assert report.verdict.sentence == "The ladder is intact: all five rungs match within tolerance."
    assert [wide(report, rung).left_ns for rung in range(1, 6)] == [4_000_000] * 5
    assert [wide(report, rung).right_ns for rung in range(1, 6)] == [4_000_000] * 5
    assert [wide(report, rung).num_invocations for rung in range(1, 6)] == [50] * 5
    assert selected(report, 1).selection.layer == 0
    assert [selected(report, rung).selection.iteration for rung in range(1, 5)] == [1] * 4
    assert [selected(report, rung).left_ns for rung in range(1, 5)] == [50_000, 500_000, 500_000, 500_000]
    assert report.rungs[4].selected is None
    assert [wide(report, rung).num_passes for rung in range(1, 6)] == [7] * 5
    assert verify(desk.folder / "report").differences == ()


@dataclass(frozen=True)
class Planted:
    """Relative differences that show on one rung alone, and what that rung then reads."""

    rung: int
    off: dict[str, Off]
    selected: float | None
    wide: float


def at(place: tuple[int, int], value: float) -> Off:
    return lambda iteration, layer: value if (iteration, layer) == place else 0.0


def throughout(value: float) -> Off:
    return lambda iteration, layer: value


def within(iteration: int, value: float) -> Off:
    return lambda one, layer: value if one == iteration else 0.0


PLANTED = [
    # 8 % of one layer are 0.8 % of its iteration and 0.1 % of the capture
    Planted(1, {EXACT: at(SELECTED, 0.08), ITERATION: nothing, FULL_RUN: nothing}, 0.08, 0.001),
    # 4 % of every layer of one iteration lie within the 5 % of a layer, not within the 2 % of the iteration
    Planted(2, {EXACT: within(1, 0.04), ITERATION: nothing, FULL_RUN: nothing}, 0.04, 0.005),
    Planted(3, {EXACT: nothing, ITERATION: within(1, 0.04), FULL_RUN: within(1, 0.04)}, 0.04, 0.005),
    Planted(
        4, {EXACT: nothing, ITERATION: throughout(-0.015), FULL_RUN: throughout(0.015)}, 0.03 / 0.985, 0.03 / 0.985
    ),
    Planted(5, {EXACT: nothing, ITERATION: throughout(0.015), FULL_RUN: throughout(0.03)}, None, 0.03),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"rung {planted.rung}")
def test_a_difference_planted_on_one_rung_is_the_first_divergence(desk: Desk, planted: Planted) -> None:
    desk.plant(planted.off)
    report = desk.align()
    assert told(report) == only(planted.rung, "DIVERGED")
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (planted.rung, planted.rung)
    assert exit_status(report) == 1
    assert wide(report, planted.rung).relative_ratio == pytest.approx(planted.wide, abs=1e-5)
    pair = report.rungs[planted.rung - 1].selected
    assert (pair and pair.relative_ratio) == (planted.selected and pytest.approx(planted.selected, abs=1e-5))
    isolates = report.rungs[planted.rung - 1].isolates
    assert f"The first divergence is at rung {planted.rung}, which isolates {isolates}." in report.verdict.sentence


def test_a_divergence_further_up_does_not_move_the_first_one(desk: Desk) -> None:
    desk.plant({EXACT: nothing, ITERATION: throughout(0.05), FULL_RUN: throughout(0.20)})
    report = desk.align()
    assert told(report) == ["MATCH", "MATCH", "DIVERGED", "DIVERGED", "DIVERGED"]
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (3, 3)


def test_d3_and_d4_add_up_to_full_run_minus_vllm_in_ns(desk: Desk) -> None:
    desk.plant({EXACT: nothing, ITERATION: throughout(0.01), FULL_RUN: throughout(-0.005)})
    report = desk.align()
    assert [wide(report, rung).diff_ns for rung in (3, 4, 5)] == [40_000, -60_000, -20_000]
    identity = "d3 + d4 = 40000 + -60000 = -20000 ns; full-run minus vLLM = -20000 ns"
    assert identity in report.notes


def test_rung_4_is_compared_with_the_measurement_of_rung_3_and_not_with_vllm(desk: Desk) -> None:
    desk.plant({EXACT: nothing, ITERATION: throughout(0.10), FULL_RUN: throughout(0.10)})
    report = desk.align()
    assert told(report) == ["MATCH", "MATCH", "DIVERGED", "MATCH", "DIVERGED"]
    for pair, total in ((wide(report, 4), 4_400_000), (selected(report, 4), 550_000)):
        assert (pair.left_ns, pair.right_ns, pair.diff_ns) == (total, total, 0)
    assert wide(report, 4).left_ns == wide(report, 3).right_ns
    assert (report.rungs[3].left, report.rungs[3].right) == (
        "iteration popularity, isolated",
        "full-run popularity, isolated",
    )


# What is missing or not the same


def test_without_reconstructions_claims_stop_at_rung_3(desk: Desk) -> None:
    desk.plant({EXACT: nothing})
    report = desk.align()
    assert told(report) == ["MATCH", "MATCH", "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"]
    assert [rung.reason.code for rung in report.rungs[2:]] == ["NO_MEASURED_ROWS"] * 3
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at, exit_status(report)) == (None, 3, 2)


def test_without_exact_rows_what_differs_cannot_be_told_apart(desk: Desk) -> None:
    desk.plant({ITERATION: nothing, FULL_RUN: nothing})
    report = desk.align()
    assert told(report) == ["UNAVAILABLE", "UNAVAILABLE", "MATCH", "MATCH", "MATCH"]
    assert report.verdict.claims_stop_at == 1
    assert report.verdict.cannot_say[0] == (
        "execution-environment error cannot be separated from input-reconstruction error"
    )


def test_rows_of_another_sampler_are_not_taken(desk: Desk) -> None:
    desk.plant({EXACT: nothing})
    desk.plant({ITERATION: nothing, FULL_RUN: nothing}, sampler="systematic")
    report = desk.align()
    assert told(report) == ["MATCH", "MATCH", "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"]
    assert [rung.reason.code for rung in report.rungs[2:]] == ["SAMPLER_DIFFERS"] * 3
    assert report.rungs[2].reason.sentence == (
        "iteration popularity inputs were measured as systematic v1, seed 0, padding captured, "
        "not as counts_exact v1, seed 0, padding captured"
    )
    assert told(desk.align("again", sampler="systematic")) == ["MATCH"] * 5


def test_rows_that_two_samplers_draw_alike_do_not_make_a_rung_of_the_other_one(tmp_path: Path) -> None:
    """One token has one set of experts: its iteration is drawn alike by every sampler."""
    steps = [{"iter": i, "tokens": n, "padded": n, "graph": False} for i, n in ((0, 8), (1, 1), (2, 1))]
    recording = Recording(steps=steps)
    desk = Desk(tmp_path, import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture"))
    desk.plant({ITERATION: nothing}, sampler="systematic")
    report = desk.align()
    assert (report.rungs[2].status, report.rungs[2].reason.code) == ("UNAVAILABLE", "SAMPLER_DIFFERS")


def test_a_launch_mode_nobody_measured_is_not_blamed_on_the_sampler(desk: Desk) -> None:
    desk.plant(dict.fromkeys((EXACT, ITERATION, FULL_RUN), nothing))
    settings = ladder_settings(launch_mode="graph")
    report = align(desk.capture.path, desk.db, desk.folder / "graph", settings=settings)
    assert {entry.why for entry in wide(report, 3).unmatched if entry.side == "left"} == {"NO_MEASURED_ROWS"}
    assert (wide(report, 3).num_iterations, wide(report, 3).num_invocations) == (4, 40)


@pytest.mark.parametrize(
    ("kind", "rungs"),
    [(EXACT, (1, 2)), (ITERATION, (3, 4)), (FULL_RUN, (4, 5))],
    ids=["exact", "iteration", "full run"],
)
def test_a_recorded_condition_that_differs_is_inconclusive_and_named(
    desk: Desk, kind: str, rungs: tuple[int, ...]
) -> None:
    for one in (EXACT, ITERATION, FULL_RUN):
        desk.plant({one: nothing}, facts={"cuda_driver": "13010"} if one == kind else None)
    report = desk.align()
    assert told(report) == ["INCONCLUSIVE" if rung in rungs else "MATCH" for rung in range(1, 6)]
    for rung in rungs:
        assert report.rungs[rung - 1].reason.code == "CONDITION_DIFFERS"
        assert "but cuda_driver differs between the sides" in report.rungs[rung - 1].reason.sentence
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (None, rungs[0])
    assert exit_status(report) == 2


def test_too_few_passes_of_one_side_of_rung_4_are_too_few(desk: Desk) -> None:
    desk.plant({EXACT: nothing, ITERATION: nothing})
    desk.plant({FULL_RUN: nothing}, num_passes=5)
    report = desk.align()
    assert told(report) == ["MATCH", "MATCH", "MATCH", "INCONCLUSIVE", "INCONCLUSIVE"]
    assert [rung.reason.code for rung in report.rungs[3:]] == ["TOO_FEW_PASSES"] * 2


# Cancellation


def opposite(value: float) -> Off:
    """Prefill too slow and decodes too fast: 2 ms against 2 ms."""
    return lambda iteration, layer: value if iteration == PREFILL else -value


def test_a_prefill_and_decodes_that_cancel_are_flagged_and_stop_the_claims_although_the_total_matches(
    desk: Desk,
) -> None:
    desk.plant({EXACT: nothing, ITERATION: opposite(0.015), FULL_RUN: opposite(0.03)})
    report = desk.align()
    assert told(report) == only(5, "MATCH!")
    pair = wide(report, 5)
    assert (pair.status, pair.left_ns, pair.right_ns, pair.diff_ns) == ("MATCH", 4_000_000, 4_000_000, 0)
    assert pair.sum_abs_layer_diff_ns == 120_000
    assert "CANCELLATION" in pair.flags
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (5, 5)
    assert exit_status(report) == 1


@pytest.mark.parametrize(("kind", "rung"), [(EXACT, 2), (ITERATION, 3)])
def test_layers_that_cancel_within_the_selected_iteration_are_flagged_although_its_total_matches(
    desk: Desk, kind: str, rung: int
) -> None:
    def alternating(iteration: int, layer: int) -> float:
        return (0.045 if layer % 2 else -0.045) if iteration == 1 else 0.0

    rest: Off = alternating if kind == ITERATION else nothing
    desk.plant({EXACT: nothing, ITERATION: rest, FULL_RUN: rest} | {kind: alternating})
    report = desk.align()
    assert told(report) == only(rung, "MATCH!")
    pair = selected(report, rung)
    assert (pair.left_ns, pair.right_ns, pair.sum_abs_layer_diff_ns) == (500_000, 500_000, 22_500)
    assert "CANCELLATION" in pair.flags
    assert "CANCELLATION" not in wide(report, rung).flags
    assert (report.verdict.first_divergence, report.verdict.claims_stop_at) == (rung, rung)
    assert exit_status(report) == 1


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.03])
def test_noise_alone_is_never_flagged_as_cancellation(desk: Desk, spread: float) -> None:
    for seed in range(15):
        generator = random.Random(f"{spread} {seed}")  # noqa: S311 - noise, the same every time
        desk.db.unlink(missing_ok=True)
        desk.plant(
            dict.fromkeys((EXACT, ITERATION, FULL_RUN), nothing), noise=lambda draw=generator: draw.gauss(0, spread)
        )
        report = desk.align(f"report{seed}")
        assert [rung.rung for rung in report.rungs if "CANCELLATION" in rung.flags] == [], seed


# Again


OFF = {EXACT: throughout(0.004), ITERATION: throughout(-0.01), FULL_RUN: opposite(0.02)}


def reported(imported: Path, folder: Path, kinds: tuple[str, ...], *, before: str | None = None) -> Path:
    """Report over a database of its own, planted in this order, behind passes of a sampler it does not use."""
    shutil.copytree(imported, folder / "capture")
    desk = Desk(folder, open_capture(folder / "capture"))
    if before is not None:
        desk.plant({ITERATION: nothing}, sampler=before)
    for kind in kinds:
        desk.plant({kind: OFF[kind]})
    desk.align()
    return folder / "report"


def test_the_same_inputs_give_the_same_report_byte_for_byte(imported: Path, tmp_path: Path) -> None:
    kinds = (EXACT, ITERATION, FULL_RUN)
    reports = [reported(imported, tmp_path / name / "served", kinds) for name in ("one", "other")]
    one, other = ({path.name: path.read_bytes() for path in sorted(report.iterdir())} for report in reports)
    assert list(one) == [
        "invocation_rows.parquet", "iteration_rows.parquet", "rank_rows.parquet", "report.json", "report.json.sha256",
    ]  # fmt: skip
    assert [name for name in one if one[name] != other[name]] == []


def test_the_order_of_measuring_changes_nothing_but_row_numbers(imported: Path, tmp_path: Path) -> None:
    reports = [
        reported(imported, tmp_path / "one" / "served", (EXACT, ITERATION, FULL_RUN)),
        reported(imported, tmp_path / "other" / "served", (FULL_RUN, EXACT, ITERATION)),
    ]
    one, other = (json.loads((report / "report.json").read_text()) for report in reports)
    for record in (one, other):
        del record["evidence"]["tables"]["rank_rows.parquet"]
    assert one == other
    rows = [pl.read_parquet(report / "rank_rows.parquet").drop("row_id") for report in reports]
    assert rows[0].equals(rows[1])


def test_what_else_a_database_holds_is_listed_and_is_no_part_of_the_evidence(imported: Path, tmp_path: Path) -> None:
    kinds = (EXACT, ITERATION, FULL_RUN)
    plain = read_report(reported(imported, tmp_path / "one" / "served", kinds))
    mixed = read_report(reported(imported, tmp_path / "other" / "served", kinds, before="uniform"))
    assert mixed.evidence.measurements == plain.evidence.measurements
    assert [rung.reason for rung in mixed.rungs] == [rung.reason for rung in plain.rungs]
    spare = [entry for entry in wide(mixed, 3).unmatched if entry not in wide(plain, 3).unmatched]
    assert [(entry.side, entry.why, entry.num) for entry in spare] == [
        ("right", "INPUT_NOT_SERVED", 10),
        ("right", "INPUT_NOT_SERVED", 40),
    ]
