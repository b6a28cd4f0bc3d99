"""moegauge profile query, count-missing and list: what is there, and what keeps the nearest row from a missing one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cases.literal_bundle import Outcome, moegauge
from fake_runner import FakeRunner
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs import profile_run
from moegauge.jobs.capture_import import import_serving
from simulator import Recording


@dataclass(frozen=True)
class Desk:
    """A capture, and a database with two eager passes over two of its three iterations, of its exact inputs."""

    capture: Path
    db: Path
    capsys: pytest.CaptureFixture[str]

    def ask(self, verb: str, *arguments: object) -> Outcome:
        options = {"--capture": self.capture, "--db": self.db, "--runner": "vllm_triton_moe", "--launch-mode": "eager"}
        rest = [word for pair in options.items() if pair[0] not in arguments for word in pair]
        return moegauge(self.capsys, "profile", verb, *rest, *arguments)

    def differs(self, *arguments: object) -> list[tuple[str, ...]]:
        """What each missing row of a query differs in; the empty tuple for a hit."""
        outcome = self.ask("query", "--json", *arguments)
        assert outcome.status == 0
        return [tuple(row["differs"]) for row in outcome.json]


@pytest.fixture
def desk(
    recording: Recording,
    capture: CaptureFolder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: FakeRunner(recording))
    found = Desk(capture.path, tmp_path / "profile.db", capsys)
    assert found.ask("run", "--iterations", "0-1", "--passes", 2, "--cache-state", "warm").status == 0
    return found


def imported(recording: Recording, folder: Path) -> Path:
    return import_serving(recording.write(folder / "other"), folder / "other-capture").path


def test_a_hit_shows_its_passes_and_differs_in_nothing(desk: Desk) -> None:
    outcome = desk.ask("query", "--iterations", "0", "--layers", "1", "--json")
    assert outcome.status == 0
    (row,) = outcome.json
    assert row.pop("input_digest").startswith("routed-ids-v1+sha256:")
    assert row == {
        "input_type": "exact", "iteration": 0, "layer": 1, "rank": 0, "executed_rows": 6, "num_passes": 2,
        "status": "MEASURED", "differs": [],
    }  # fmt: skip


def test_a_miss_is_status_0_and_says_missing(desk: Desk) -> None:
    outcome = desk.ask("query", "--json")
    assert outcome.status == 0
    assert [(row["status"], row["num_passes"]) for row in outcome.json] == [("MEASURED", 2)] * 6 + [("missing", 0)] * 3


KERNEL = ("subject.backend", "subject.kernel_kind")


@pytest.mark.parametrize(
    ("arguments", "differs"),
    [
        (["--iterations", "2"], ("executed_rows", "input_digest")),
        (["--iterations", "0", "--launch-mode", "graph"], ("launch_mode",)),
        (["--iterations", "0", "--runner", "torch_moe"], KERNEL),
        (["--iterations", "0", "--runner", "torch_moe", "--launch-mode", "graph"], ("launch_mode", *KERNEL)),
        (["--iterations", "0", "--input", "iteration"], ("input_digest", "input_type")),
        (["--iterations", "1", "--launch-mode", "as-served"], ("launch_mode",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_miss_names_the_fields_in_which_the_nearest_row_differs(
    desk: Desk, arguments: list[str], differs: tuple[str, ...]
) -> None:
    assert [tuple(sorted(one)) for one in desk.differs(*arguments)] == [differs] * 3


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"seed": 1}, ("input_digest",)),
        ({"num_experts": 16}, ("input_digest", "subject.num_local_experts", "subject.shape.num_experts")),
    ],
    ids=["other routing", "other model"],
)
def test_rows_of_another_capture_differ_in_what_it_served(
    desk: Desk, tmp_path: Path, change: dict[str, int], differs: tuple[str, ...]
) -> None:
    other = imported(replace(Recording(), **change), tmp_path)
    assert {tuple(sorted(one)) for one in desk.differs("--capture", other, "--iterations", "0")} == {differs}


@pytest.mark.parametrize(
    ("conditions", "differs"),
    [
        (["cache_state=warm"], ()),
        (["cache_state=warm", "co_running=nothing"], ()),
        (["clocks=not recorded"], ()),
        (["cache_state=cold"], ("conditions.cache_state",)),
        (["co_running=dense MLP of width 64"], ("conditions.co_running",)),
        (["cache_state=cold", "clocks=1980 MHz"], ("conditions.cache_state", "conditions.clocks")),
    ],
    ids=" ".join,
)
def test_a_row_measured_under_another_condition_is_missing_and_says_so(
    desk: Desk, conditions: list[str], differs: tuple[str, ...]
) -> None:
    asked = [word for one in conditions for word in ("--condition", one)]
    assert [tuple(sorted(one)) for one in desk.differs("--iterations", "0", *asked)] == [differs] * 3
    counted = desk.ask("count-missing", "--iterations", "0", "--passes", 2, *asked, "--json")
    assert (counted.status, counted.json["num_missing"]) == ((1, 3) if differs else (0, 0))


def test_a_condition_and_a_launch_mode_that_differ_are_both_named(desk: Desk) -> None:
    found = desk.differs("--iterations", "0", "--launch-mode", "graph", "--condition", "cache_state=cold")
    assert [tuple(sorted(one)) for one in found] == [("conditions.cache_state", "launch_mode")] * 3


@pytest.mark.parametrize("texts", [["cache_state"], ["cache_state="], ["colour=red"], ["torch=1", "torch=2"]])
def test_a_condition_that_is_none_is_refused(desk: Desk, texts: list[str]) -> None:
    outcome = desk.ask("query", *(word for one in texts for word in ("--condition", one)), "--json")
    assert outcome.status == 2
    assert outcome.json["error"]["where"] == "--condition"
    assert outcome.json["error"]["found"] == texts[-1]
    assert "cache_state" in outcome.json["error"]["expected"]


def test_an_empty_database_has_no_nearest_row(desk: Desk, tmp_path: Path) -> None:
    with open_profile_db(tmp_path / "empty.db", create=True):
        pass
    assert desk.differs("--db", tmp_path / "empty.db", "--iterations", "0") == [("no rows at all",)] * 3
    assert moegauge(desk.capsys, "profile", "list", tmp_path / "empty.db", "--json").json == []


def test_several_inputs_are_looked_up_in_order(desk: Desk) -> None:
    outcome = desk.ask("query", "--input", "full-run", "--input", "exact", "--iterations", "0", "--json")
    found = [(row["input_type"], row["status"]) for row in outcome.json]
    assert found == [("exact", "MEASURED")] * 3 + [("full_run_popularity", "missing")] * 3


def test_the_table_of_a_query_shows_what_differs(desk: Desk) -> None:
    text = desk.ask("query", "--layers", "0").out
    assert "nearest row differs in" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("exact")]
    assert rows == [
        ["exact", "0", "0", "0", "6", "2", "MEASURED"],
        ["exact", "1", "0", "0", "4", "2", "MEASURED"],
        ["exact", "2", "0", "0", "1", "0", "missing", "executed_rows,", "input_digest"],
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--passes", 2], 1, "3 of 9 rows have fewer than 2 passes"),
        (["--passes", 3], 1, "9 of 9 rows have fewer than 3 passes"),
        ([], 1, "9 of 9 rows have fewer than 7 passes"),
        (["--passes", 1, "--launch-mode", "graph"], 1, "9 of 9 rows have fewer than 1 passes"),
    ],
)
def test_rows_that_lack_passes_are_counted(desk: Desk, arguments: list[object], status: int, text: str) -> None:
    outcome = desk.ask("count-missing", *arguments)
    assert (outcome.status, outcome.out.strip(), outcome.err) == (status, text, "")


def test_nothing_is_missing_once_it_was_filled(desk: Desk) -> None:
    assert desk.ask("run", "--passes", 2, "--cache-state", "warm").status == 0
    outcome = desk.ask("count-missing", "--passes", 2, "--json")
    assert (outcome.status, outcome.json) == (0, {"num_rows": 9, "num_missing": 0})


def test_passes_under_two_conditions_are_not_added_up(desk: Desk) -> None:
    """Two rows of one input are two measurements; a ladder would have to choose between them."""
    assert desk.ask("run", "--passes", 3, "--iterations", "0-1", "--cache-state", "cold").status == 0
    (row, *_) = desk.ask("query", "--json").json
    assert (row["status"], row["num_passes"]) == ("MEASURED", 3)
    assert desk.ask("count-missing", "--passes", 5, "--json").json == {"num_rows": 9, "num_missing": 9}


def test_a_row_that_failed_is_there_with_its_status_and_without_passes(
    desk: Desk, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise MemoryError("full")

    make: Callable[..., FakeRunner] = lambda name, model, given: FakeRunner(recording, before=fail)  # noqa: E731
    monkeypatch.setattr(profile_run, "make_runner", make)
    assert desk.ask("run", "--passes", 1, "--iterations", "2", "--cache-state", "warm").status == 1
    rows = desk.ask("query", "--iterations", "2", "--json").json
    assert [(row["status"], row["num_passes"], row["differs"]) for row in rows] == [("OUT_OF_MEMORY", 0, [])] * 3
    assert desk.ask("count-missing", "--passes", 2, "--json").json == {"num_rows": 9, "num_missing": 3}


def test_list_groups_rows_by_how_they_were_measured(desk: Desk) -> None:
    again = ("--passes", 1, "--cache-state", "in_order", "--launch-mode", "graph", "--iterations", "1")
    assert desk.ask("run", *again, "--input", "iteration", "--sampler", "systematic", "--seed", 5).status == 0
    outcome = moegauge(desk.capsys, "profile", "list", desk.db)
    assert outcome.status == 0
    heading, _, *lines = outcome.out.splitlines()
    assert heading.split("  ")[0] == "kernel"
    assert [" ".join(line.split()) for line in lines] == [
        "vllm_triton_moe exact eager warm 6 MEASURED",
        "vllm_triton_moe iteration_popularity systematic, seed 5, padding captured graph in_order 3 MEASURED",
    ]


def test_list_as_json_holds_every_key_in_full(desk: Desk) -> None:
    rows = moegauge(desk.capsys, "profile", "list", desk.db, "--json").json
    assert len(rows) == 6
    assert {row["status"] for row in rows} == {"MEASURED"}
    assert {row["generation"] for row in rows} == {1}
    assert rows[0]["key"]["match"]["subject"]["shape"] == {
        "hidden_size": 64, "intermediate_size": 32, "num_experts": 8, "top_k": 2,
    }  # fmt: skip
    assert rows[0]["key"]["setting"] == {
        "launch_mode": "eager",
        "conditions": {
            "cache_state": {"value": "warm", "source": "trace"},
            "device_model": {"value": "Simulated GPU", "source": "trace"},
        },
    }
