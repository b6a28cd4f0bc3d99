"""align --explain over planted rows: the planted effect lies in its interval, and what was not measured says so."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cases.literal_bundle import Outcome, moegauge
from fake_runner import FakeRunner
from moegauge import errors
from moegauge.adapters.profile_db import Sample, now, open_profile_db
from moegauge.adapters.runners.kernel_config import KernelConfig
from moegauge.evidence.capture_folder import CaptureFolder, open_capture
from moegauge.jobs import profile_run
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.ladder_notes import pass_clocks
from moegauge.jobs.profile_specs import EXACT, InputChoice, Spec, SpecSource
from moegauge.jobs.report import read_report
from moegauge.jobs.verify import verify
from moegauge.records.comparison import LadderReport
from moegauge.records.explanation import Effect, Explanation
from moegauge.records.measurement import Fact, LaunchMode
from moegauge.records.profile import PassRecord, ProfileKey, Setting
from moegauge.render.markdown import ladder_markdown
from simulator import NAMES, Recording

SERVED_NS = 50_000
"""One invocation (align, gemm, act, gemm, sum), whichever it is."""

ROLE_NS = {"align_small": 3_000, "gemm": 20_000, "act": 4_000, "sum": 3_000}
NUM = 3 * 10
"""Invocations: three iterations of ten layers."""

TUNED = "sha256:" + "5" * 64
OTHER = "sha256:" + "6" * 64
FAST = {"sm_clock_mhz": "1980", "memory_clock_mhz": "3201"}
SLOW = {"sm_clock_mhz": "1755", "memory_clock_mhz": "3201"}
AT_FAST = "SM 1980 MHz, memory 3201 MHz"
AT_SLOW = "SM 1755 MHz, memory 3201 MHz"

Noise = Callable[[], float]


def steady() -> float:
    return 0.0


def noisy(seed: int) -> Noise:
    """Relative noise of a pass, 0.3 % wide."""
    generator = random.Random(seed)  # noqa: S311 - the same noise every time
    return lambda: generator.gauss(0, 0.003)


def served(ranks: int = 1) -> Recording:
    steps = [{"iter": iteration, "tokens": 6, "padded": 6, "graph": False} for iteration in range(3)]
    return Recording(
        steps=steps, layers=tuple(range(10)), ranks=ranks, expert_parallel=ranks > 1,
        time=lambda iteration, layer, rank, role: ROLE_NS.get(role, 1_000),
    )  # fmt: skip


@dataclass
class Desk:
    """The capture, a database that the test plants passes in, and the command line."""

    folder: Path
    recording: Recording
    capture: CaptureFolder
    capsys: pytest.CaptureFixture[str]

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def plant(
        self,
        ns: int,
        *,
        num_passes: int = 7,
        noise: Noise = steady,
        conditions: Mapping[str, str] | None = None,
        read: Mapping[str, str] | None = None,
        kind: str = EXACT,
    ) -> None:
        """Passes of every invocation, ``ns`` long each, but for noise of a pass; one rank at a time."""
        specs = SpecSource(self.capture).specs(InputChoice(type=kind))
        facts = {f"{name}.{when}": value for name, value in (read or {}).items() for when in ("before", "after")}
        for rank in range(self.recording.ranks):
            for _ in range(num_passes):
                drift = 1 + noise()
                mine = [spec for spec in specs if spec.rank == rank]
                samples = [self.sample(spec, round(ns * drift), conditions or {}) for spec in mine]
                with open_profile_db(self.db, create=True) as database:
                    database.add_pass(self.record(facts), [], samples)

    def sample(self, spec: Spec, ns: int, conditions: Mapping[str, str]) -> Sample:
        known = {name: Fact(value=value, source="trace") for name, value in conditions.items()}
        key = ProfileKey(match=spec.match, setting=Setting(launch_mode=LaunchMode.EAGER, conditions=known))
        place = {"iteration": spec.iteration, "layer": spec.layer, "rank": spec.rank, "device": 0}
        times = {"busy_ns": ns, "span_ns": ns, "foreign_ns": 0, "num_kernels": 5}
        names = tuple(NAMES[role] for role in self.recording.roles(len(spec.topk_ids)))
        return Sample(key, spec.label, place | times, names)

    def record(self, facts: Mapping[str, str]) -> PassRecord:
        return PassRecord(
            source="run", capture_digest=self.capture.raw_digest, runner="planted", tag=None, launch_mode=None,
            declared={}, traces={}, facts=dict(facts), tool_version="0.1.0", recorded_at=now(),
        )  # fmt: skip

    def report(self, **changes: str) -> LadderReport:
        settings = ladder_settings(explain=changes)
        return align(self.capture.path, self.db, self.folder / "report", settings=settings)

    def explain(self, **changes: str) -> Explanation:
        found = self.report(**changes).explanation
        assert found is not None
        return found

    def run(self, *arguments: object) -> Outcome:
        return moegauge(
            self.capsys, "align", self.capture.path, "--db", self.db, "--out", self.folder / "o", *arguments
        )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("served")
    return {n: import_serving(served(n).write(folder / f"b{n}"), folder / f"c{n}").path for n in (1, 2)}


@pytest.fixture
def desk(imported: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    shutil.copytree(imported[1], tmp_path / "capture")
    return Desk(tmp_path, served(), open_capture(tmp_path / "capture"), capsys)


@pytest.fixture
def two_ranks(imported: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    shutil.copytree(imported[2], tmp_path / "capture")
    return Desk(tmp_path, served(2), open_capture(tmp_path / "capture"), capsys)


def only(found: Explanation) -> Effect:
    (effect,) = found.effects
    return effect


def assert_within(planted: int, interval: tuple[int, int] | None) -> None:
    assert interval is not None
    assert interval[0] <= planted <= interval[1]
    assert interval[1] - interval[0] < 0.02 * SERVED_NS * NUM, "an interval that holds anything shows nothing"


def assert_adds_up(found: Explanation) -> None:
    """Effects and residual are the difference to the ns, and shares and the residual's share are 1."""
    known = [effect for effect in found.effects if effect.effect_ns is not None]
    assert sum(effect.effect_ns or 0 for effect in known) + found.residual_ns == found.diff_ns
    assert sum(effect.share_ratio or 0 for effect in known) + found.residual_ns / found.diff_ns == pytest.approx(1.0)


# kernel configuration


def test_a_planted_kernel_configuration_is_recovered_within_its_interval(desk: Desk) -> None:
    # Found by itself: 54 us. As served: 51 us. Serving took 50, so 1 us an invocation stays unexplained.
    desk.plant(54_000, noise=noisy(1))
    desk.plant(51_000, noise=noisy(2), conditions={"kernel_config": TUNED})
    found = desk.explain(kernel_config=TUNED)
    assert found.num_invocations == NUM
    effect = only(found)
    assert (effect.condition, effect.base, effect.changed_to) == ("kernel_config", "as found", TUNED)
    assert effect.unavailable is None
    assert_within(3_000 * NUM, effect.interval_ns)
    assert_within(1_000 * NUM, found.residual_interval_ns)
    assert_adds_up(found)


def test_rows_of_a_given_configuration_are_no_rows_of_the_ladder(desk: Desk) -> None:
    desk.plant(54_000)
    before = desk.report().rungs[1].capture_wide
    shutil.rmtree(desk.folder / "report")
    desk.plant(51_000, conditions={"kernel_config": TUNED})
    after = desk.report().rungs[1].capture_wide
    assert before is not None
    assert after is not None
    assert before.right_ns == after.right_ns == 54_000 * NUM
    assert [(entry.why, entry.num) for entry in after.unmatched] == [("OTHER_ROW_CHOSEN", NUM)]


def test_each_of_two_configurations_is_asked_for_by_its_own_digest(desk: Desk) -> None:
    desk.plant(54_000)
    desk.plant(51_000, conditions={"kernel_config": TUNED})
    desk.plant(57_000, conditions={"kernel_config": OTHER})
    assert only(desk.explain(kernel_config=OTHER)).effect_ns == -3_000 * NUM


def test_a_configuration_that_was_not_measured_is_unavailable_and_says_what_to_run(desk: Desk) -> None:
    desk.plant(54_000)
    desk.plant(51_000, conditions={"kernel_config": TUNED})
    found = desk.explain(kernel_config=OTHER)
    effect = only(found)
    assert (effect.effect_ns, effect.share_ratio, effect.interval_ns) == (None, None, None)
    assert effect.unavailable is not None
    assert effect.unavailable.code == "NO_MEASURED_ROWS"
    assert f"under kernel_config {OTHER} (measured: {TUNED})" in effect.unavailable.sentence
    assert "moegauge profile run --kernel-config FILE" in effect.unavailable.sentence
    assert found.residual_ns == found.diff_ns == 4_000 * NUM
    assert verify(desk.folder / "report").differences == ()


# clocks


def test_planted_clocks_are_recovered_within_their_interval(desk: Desk) -> None:
    # The rows' mean is 54 us, half of their passes at 1980 MHz (51 us); at 1755 MHz 57. Serving took 50.
    desk.plant(51_000, noise=noisy(3), read=FAST)
    desk.plant(57_000, noise=noisy(4), read=SLOW)
    found = desk.explain(clocks=AT_FAST)
    effect = only(found)
    assert (effect.condition, effect.base, effect.changed_to) == ("clocks", "whichever were read", AT_FAST)
    assert_within(3_000 * NUM, effect.interval_ns)
    assert_within(1_000 * NUM, found.residual_interval_ns)
    assert_adds_up(found)


def test_passes_that_base_and_changed_share_are_resampled_once(desk: Desk) -> None:
    # Within either clock every pass is equal, so that the effect is known exactly, although the base's passes are not.
    desk.plant(51_000, read=FAST)
    desk.plant(57_000, read=SLOW)
    effect = only(desk.explain(clocks=AT_FAST))
    assert (effect.effect_ns, effect.interval_ns) == (3_000 * NUM, (3_000 * NUM, 3_000 * NUM))


def test_passes_all_read_at_the_clocks_asked_for_have_an_effect_of_exactly_nothing(desk: Desk) -> None:
    desk.plant(51_000, noise=noisy(5), read=FAST)
    effect = only(desk.explain(clocks=AT_FAST))
    assert (effect.effect_ns, effect.interval_ns) == (0, (0, 0))


def test_fewer_than_six_passes_at_the_clocks_have_an_effect_and_no_interval(desk: Desk) -> None:
    desk.plant(51_000, num_passes=5, read=FAST)
    desk.plant(57_000, num_passes=5, read=SLOW)
    effect = only(desk.explain(clocks=AT_SLOW))
    assert (effect.effect_ns, effect.interval_ns) == (-3_000 * NUM, None)


@pytest.mark.parametrize("read", [SLOW, {}, {"sm_clock_mhz": "1980"}], ids=["others", "none", "SM alone"])
def test_clocks_at_which_no_pass_was_read_are_unavailable_and_say_what_to_do(desk: Desk, read: dict[str, str]) -> None:
    desk.plant(57_000, read=read)
    effect = only(desk.explain(clocks=AT_FAST))
    assert effect.unavailable is not None
    measured = {"1755": AT_SLOW, "1980": "SM 1980 MHz"}.get(read.get("sm_clock_mhz", ""), "none")
    assert f"under clocks {AT_FAST} (measured: {measured})" in effect.unavailable.sentence
    assert "set the device to them yourself (clocks are read here, never set)" in effect.unavailable.sentence
    assert "moegauge profile run --passes N" in effect.unavailable.sentence


def test_clocks_that_a_row_declares_come_before_those_read_around_its_passes(desk: Desk) -> None:
    desk.plant(51_000, conditions={"clocks": "locked"}, read=SLOW)
    assert only(desk.explain(clocks="locked")).effect_ns == 0
    shutil.rmtree(desk.folder / "report")
    assert only(desk.explain(clocks=AT_SLOW)).unavailable is not None


def test_clocks_that_changed_around_a_pass_are_a_range() -> None:
    facts = {"sm_clock_mhz.before": "990", "sm_clock_mhz.after": "1980", "memory_clock_mhz.after": "3201"}
    record = PassRecord(
        source="run", capture_digest=None, runner="r", tag=None, launch_mode=None, declared={}, traces={},
        facts=facts, tool_version="0", recorded_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    assert pass_clocks(record) == "SM 990 to 1980 MHz, memory 3201 MHz"


# both


def test_two_conditions_and_one_that_was_not_measured_add_up(desk: Desk) -> None:
    # The base is 55 us: clocks take 0.5, the configuration 1 us of the 5 us between it and serving.
    desk.plant(54_500, noise=noisy(6), read=FAST)
    desk.plant(55_500, noise=noisy(7), read=SLOW)
    desk.plant(54_000, noise=noisy(8), conditions={"kernel_config": TUNED}, read=FAST)
    found = desk.explain(kernel_config=TUNED, clocks=AT_FAST, cache_state="cold")
    assert [effect.condition for effect in found.effects] == ["cache_state", "clocks", "kernel_config"]
    assert [effect.effect_ns is None for effect in found.effects] == [True, False, False]
    assert_within(500 * NUM, found.effects[1].interval_ns)
    assert_within(1_000 * NUM, found.effects[2].interval_ns)
    assert_within(3_500 * NUM, found.residual_interval_ns)
    assert_adds_up(found)


def test_a_report_is_derived_again_whatever_the_order_in_which_changes_were_asked_for(desk: Desk) -> None:
    desk.plant(53_000, read=FAST)
    desk.plant(54_000, conditions={"kernel_config": TUNED})
    desk.explain(kernel_config=TUNED, clocks=AT_FAST)
    assert verify(desk.folder / "report").differences == ()


def test_ranks_measured_one_at_a_time_have_an_interval_of_their_effect(two_ranks: Desk) -> None:
    """Their pairs of passes are numbered -1 to -7 in every alignment, and are not the same passes for that."""
    two_ranks.plant(54_000, noise=noisy(9))
    two_ranks.plant(51_000, noise=noisy(10), conditions={"kernel_config": TUNED})
    effect = only(two_ranks.explain(kernel_config=TUNED))
    assert_within(3_000 * NUM, effect.interval_ns)
    assert effect.interval_ns != (0, 0)


def test_an_unavailable_effect_is_shown_with_its_sentence(desk: Desk) -> None:
    desk.plant(53_000, read=SLOW)
    outcome = desk.run("--explain", f"clocks={AT_FAST}")
    assert "Traceback" not in outcome.err
    assert "UNAVAILABLE" in outcome.out
    assert "clocks: no exact input of the base was measured under clocks" in " ".join(outcome.out.split())
    text = ladder_markdown(read_report(desk.folder / "o"))
    assert f"| clocks | whichever were read | {AT_FAST} | - | - | UNAVAILABLE |" in text
    assert "- unmeasured, clocks: no exact input" in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"colour": "red"}, "kernel_config"),
        ({"launch_mode": "lazy"}, "as-served, eager or graph"),
        ({"kernel_config": "tuned.json"}, "sha256sum"),
        ({"kernel_config": TUNED + "5"}, "sha256sum"),
    ],
)
def test_a_change_that_cannot_be_is_refused(desk: Desk, change: dict[str, str], expected: str) -> None:
    desk.plant(54_000)
    with pytest.raises(errors.MisuseError, match=expected):
        desk.report(**change)
    assert not (desk.folder / "report").exists()


def test_a_base_that_was_not_measured_is_refused(desk: Desk) -> None:
    desk.plant(51_000, conditions={"kernel_config": TUNED})
    with pytest.raises(errors.Incomplete, match="NO_MEASURED_ROWS"):
        desk.report(kernel_config=TUNED)


def test_rows_of_two_cache_states_under_the_changed_condition_must_be_chosen_between(desk: Desk) -> None:
    desk.plant(54_000, conditions={"cache_state": "warm"})
    for state in ("warm", "cold"):
        desk.plant(51_000, conditions={"cache_state": state, "kernel_config": TUNED})
    effect = only(desk.explain(kernel_config=TUNED))
    assert effect.unavailable is not None
    assert effect.unavailable.code == "AMBIGUOUS_ROWS"


# measuring under a given configuration


def test_profile_run_hands_the_file_to_the_runner_and_its_rows_carry_the_digest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.folder / "tuned.json"
    entry = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    path.write_text(json.dumps({"8": entry}))
    given: list[KernelConfig | None] = []

    def make(name: str, model: object, config: KernelConfig | None) -> FakeRunner:
        given.append(config)
        recorded = {} if config is None else {"kernel_config": config.digest}
        return FakeRunner(desk.recording, conditions={"device_model": "Simulated GPU"} | recorded)

    monkeypatch.setattr(profile_run, "make_runner", make)
    words = ("--capture", desk.capture.path, "--db", desk.db, "--runner", "vllm_triton_moe")
    for more in ((), ("--kernel-config", path)):
        outcome = moegauge(desk.capsys, "profile", "run", *words, "--passes", 6, *more)
        assert (outcome.status, outcome.err.count("Traceback")) == (0, 0)
    found, tuned = given
    assert found is None
    assert tuned is not None
    assert tuned.by_rows == {8: entry}
    for condition, missing in (("as found", 0), (tuned.digest, 0), (OTHER, NUM)):
        asked = ("--passes", 6, "--condition", f"kernel_config={condition}", "--json")
        counted = moegauge(desk.capsys, "profile", "count-missing", *words, *asked).json
        assert counted == {"num_rows": NUM, "num_missing": missing}, condition
    assert only(desk.explain(kernel_config=tuned.digest)).effect_ns == 0


def test_a_configuration_file_that_cannot_be_read_is_refused_before_anything_is_measured(desk: Desk) -> None:
    (desk.folder / "tuned.json").write_text("{}")
    words = ("--capture", desk.capture.path, "--db", desk.db, "--runner", "vllm_triton_moe")
    outcome = moegauge(desk.capsys, "profile", "run", *words, "--kernel-config", desk.folder / "tuned.json")
    assert (outcome.status, outcome.out) == (2, "")
    assert "found    no configuration" in outcome.err
    assert not desk.db.exists()


def test_a_runner_on_the_host_refuses_a_configuration(desk: Desk) -> None:
    (desk.folder / "tuned.json").write_text(
        json.dumps({"8": dict.fromkeys(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"), 16)})
    )
    words = ("--capture", desk.capture.path, "--db", desk.db, "--runner", "torch_moe", "--launch-mode", "eager")
    outcome = moegauge(desk.capsys, "profile", "run", *words, "--kernel-config", desk.folder / "tuned.json")
    assert (outcome.status, outcome.out) == (2, "")
    assert "--kernel-config" in outcome.err
    assert not desk.db.exists()
