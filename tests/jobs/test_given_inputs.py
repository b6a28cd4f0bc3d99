"""Inputs that a person gives, by spec file or by flags: what runs, what they match, and what verify says of them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases.literal_bundle import Outcome, moegauge
from fake_runner import FakeRunner
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs import profile_run
from moegauge.jobs.given_inputs import GivenSource, read_spec
from moegauge.jobs.profile_specs import GIVEN, InputChoice, Spec
from moegauge.records.profile import InputLabel, PassRecord
from simulator import Recording

IDS = [[0, 1], [2, 3], [1, 3]]
COUNTS = [5, 4, 2, 1]
SPEC: dict[str, Any] = {
    "schema": "moegauge/profile-spec/v1",
    "model": {"hidden_size": 16, "intermediate_size": 8, "num_experts": 4, "top_k": 2},
    "numeric_format": "float32",
    "num_layers": 2,
    "launch_mode": "eager",
    "tp_size": 1,
    "ep_size": 1,
    "dp_size": None,
    "num_local_experts": 4,
    "expert_map": None,
    "inputs": [
        {"type": "given_ids", "topk_ids": IDS},
        {"type": "given_popularity", "popularity": COUNTS, "rows": 6, "sampler": "counts_exact", "seed": 3},
        {"type": "given_popularity", "popularity": "uniform", "rows": 5, "sampler": "systematic", "seed": 0},
    ],
}
FLAGS = (
    *("--hidden-size", 16, "--intermediate-size", 8, "--experts", 4, "--top-k", 2, "--dtype", "float32"),
    *("--popularity", "uniform", "--launch-mode", "eager"),
)


def routed_digest(ids: Sequence[Sequence[int]]) -> str:
    """The digest as docs/formats/profile-db.md describes it, taken here and not by the code under test."""
    head = f"routed-ids-v1 {len(ids)} {len(ids[0])}\n".encode()
    return "routed-ids-v1+sha256:" + hashlib.sha256(head + np.array(ids, dtype="<i4").tobytes()).hexdigest()


@dataclass(frozen=True)
class Desk:
    """A folder with a spec file, and the command line on a database beside it."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def spec(self, change: Callable[[dict[str, Any]], object] = lambda spec: None, name: str = "spec.json") -> Path:
        spec = json.loads(json.dumps(SPEC))
        change(spec)
        (self.folder / name).write_text(json.dumps(spec))
        return self.folder / name

    def ask(self, verb: str, *arguments: object, json: bool = True) -> Outcome:
        more = ("--cache-state", "warm") if verb == "run" and "--cache-state" not in arguments else ()
        shown = ("--json",) if json else ()
        runner = () if "--runner" in arguments else ("--runner", "torch_moe")
        return moegauge(self.capsys, "profile", verb, "--db", self.db, *runner, *more, *arguments, *shown)

    def run(self, *arguments: object) -> tuple[int, int, int, int, int]:
        """Exit status, rows, samples, passes, missing."""
        outcome = self.ask("run", *arguments)
        found = outcome.json
        return outcome.status, found["num_rows"], found["num_measured"], found["num_passes"], found["num_missing"]

    def verify(self, *arguments: object) -> Outcome:
        outcome = moegauge(self.capsys, "profile", "verify", self.db, *arguments, "--json")
        assert "Traceback" not in outcome.err
        return outcome

    def edit(self, statement: str) -> None:
        connection = sqlite3.connect(self.db)
        assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()

    def passes(self) -> list[PassRecord]:
        with open_profile_db(self.db) as database:
            return list(database.passes().values())


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def drawn(spec: Path) -> list[Spec]:
    return GivenSource(read_spec(spec), kernel=("torch_moe", "torch")).specs(InputChoice(type=GIVEN))


# What runs


def test_every_input_runs_once_a_pass_in_every_layer(desk: Desk) -> None:
    # 3 given rows are one row of the database for both layers; the two popularities are drawn for each layer.
    assert desk.run("--spec", desk.spec(), "--passes", 2) == (0, 5, 12, 2, 0)
    with open_profile_db(desk.db) as database:
        rows, samples = database.rows(), database.samples()
    places = samples.filter(samples["pass_id"] == 1).sort("iteration", "layer")
    assert list(places.select("iteration", "layer", "rank").iter_rows()) == [
        (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0),
    ]  # fmt: skip
    assert (samples["busy_ns"] > 0).all()
    assert [row.key.match.input_type for row in rows] == ["given_ids"] + ["given_popularity"] * 4
    assert [row.key.match.executed_rows for row in rows] == [3, 6, 6, 5, 5]


def test_the_pass_names_the_spec_which_lies_in_the_database_and_no_capture(desk: Desk) -> None:
    desk.run("--spec", desk.spec(), "--passes", 2)
    one, other = desk.passes()
    assert (one.source, one.runner, one.capture_digest, one.traces) == ("run", "torch_moe", None, {})
    assert one.spec_digest == other.spec_digest
    assert one.spec_digest is not None
    with open_profile_db(desk.db) as database:
        name, data = database.artifact(one.spec_digest)
    assert name == "spec.json"
    assert json.loads(data) == SPEC
    assert one.spec_digest == "sha256:" + hashlib.sha256(data).hexdigest()


def test_the_spec_taken_out_of_a_database_is_measured_already(desk: Desk) -> None:
    desk.run("--spec", desk.spec(), "--passes", 1)
    with open_profile_db(desk.db) as database:
        _, data = database.artifact(str(desk.passes()[0].spec_digest))
    (desk.folder / "again.json").write_bytes(data)
    assert desk.run("--spec", desk.folder / "again.json", "--passes", 1) == (0, 5, 0, 0, 0)


def test_given_ids_run_as_they_are(desk: Desk) -> None:
    assert [one.topk_ids.tolist() for one in drawn(desk.spec())[:2]] == [IDS, IDS]
    (row, other) = desk_rows(desk, "0")
    assert (row["input_type"], row["input_digest"]) == ("given_ids", routed_digest(IDS))
    assert row["input_digest"] == other["input_digest"]


def desk_rows(desk: Desk, iterations: str) -> list[dict[str, Any]]:
    desk.run("--spec", desk.spec(), "--passes", 1)
    return desk.ask("query", "--spec", desk.spec(), "--iterations", iterations).json


def test_counts_that_add_up_to_rows_times_top_k_are_kept_by_counts_exact(desk: Desk) -> None:
    for one in drawn(desk.spec())[2:4]:
        assert one.topk_ids.shape == (6, 2)
        assert np.bincount(one.topk_ids.ravel(), minlength=4).tolist() == COUNTS
        assert all(first < second for first, second in one.topk_ids.tolist())


def test_a_popularity_with_mass_on_top_k_experts_alone_leaves_no_choice(desk: Desk) -> None:
    path = desk.spec(lambda spec: spec["inputs"][1].update(popularity=[0, 9, 0, 1]))
    assert [one.topk_ids.tolist() for one in drawn(path)[2:4]] == [[[1, 3]] * 6] * 2


def test_uniform_is_the_same_count_for_every_expert(desk: Desk) -> None:
    ones = desk.spec(lambda spec: spec["inputs"][2].update(popularity=[1, 1, 1, 1]), "ones.json")
    given, counted = drawn(desk.spec())[4:], drawn(ones)[4:]
    assert [one.match for one in given] == [one.match for one in counted]
    assert [one.label.window for one in given] == ["given uniform"] * 2
    assert [one.label.window for one in counted] == ["given counts"] * 2


def test_layers_draw_rows_of_their_own_and_another_seed_draws_others(desk: Desk) -> None:
    path = desk.spec(lambda spec: spec["inputs"][2].update(rows=200))
    other = desk.spec(lambda spec: spec["inputs"][2].update(rows=200, seed=1), "other.json")
    first, second = (one.match.input_digest for one in drawn(path)[4:])
    assert len({first, second, *(one.match.input_digest for one in drawn(other)[4:])}) == 4


def test_a_draw_does_not_depend_on_its_place_in_the_list(desk: Desk) -> None:
    turned = desk.spec(lambda spec: spec["inputs"].reverse(), "turned.json")
    digests = [one.match.input_digest for one in drawn(desk.spec())]
    again = [one.match.input_digest for one in drawn(turned)]
    assert again == [*digests[4:], *digests[2:4], *digests[:2]]


def test_an_input_added_to_a_spec_is_all_that_is_measured(desk: Desk) -> None:
    desk.run("--spec", desk.spec(), "--passes", 2)
    more = {"type": "given_ids", "topk_ids": [[0, 3]]}
    path = desk.spec(lambda spec: spec["inputs"].insert(0, more), "more.json")
    assert desk.run("--spec", path, "--passes", 2) == (0, 6, 4, 2, 0)


def test_the_label_of_a_given_popularity_names_no_iteration_and_no_padding(desk: Desk) -> None:
    label = drawn(desk.spec())[2].label
    assert (label.window, label.sampler, label.version, label.seed, label.padding) == (
        "given counts", "counts_exact", 1, 3, None,
    )  # fmt: skip
    assert str(label.popularity_digest).startswith("given-popularity-v1+sha256:")
    assert drawn(desk.spec())[0].label == InputLabel()


def test_an_expert_map_makes_the_rank_run_its_own_experts_alone(desk: Desk) -> None:
    def share(spec: dict[str, Any]) -> None:
        spec.update(ep_size=2, num_local_experts=2, expert_map=[-1, 0, -1, 1])

    path = desk.spec(share)
    assert desk.run("--spec", path, "--passes", 1)[0] == 0
    (one, *_) = drawn(path)
    assert one.expert_map is not None
    assert one.expert_map.tolist() == [-1, 0, -1, 1]
    subject = one.match.subject
    assert (subject.num_local_experts, subject.ep_size, subject.tp_size, subject.dp_size) == (2, 2, 1, None)
    assert str(subject.expert_map_digest).startswith("expert-map-v1+sha256:")


def test_a_skipped_slot_may_be_given(desk: Desk) -> None:
    path = desk.spec(lambda spec: spec["inputs"][0].update(topk_ids=[[0, -1], [-1, -1]]))
    assert desk.run("--spec", path, "--passes", 1, "--iterations", "0") == (0, 1, 2, 1, 0)


# By flags


def test_flags_measure_one_layer_for_every_number_of_rows_and_sampler(desk: Desk) -> None:
    samplers = ("--sampler", "counts_exact", "--sampler", "uniform")
    assert desk.run(*FLAGS, "--rows", "9,30-31", *samplers, "--passes", 1) == (0, 6, 6, 1, 0)
    rows = desk.ask("query", *FLAGS, "--rows", "9,30-31", *samplers).json
    assert [(row["iteration"], row["layer"], row["executed_rows"]) for row in rows] == [
        (0, 0, 9), (1, 0, 30), (2, 0, 31), (3, 0, 9), (4, 0, 30), (5, 0, 31),
    ]  # fmt: skip
    assert {(row["input_type"], row["status"]) for row in rows} == {("given_popularity", "MEASURED")}


def test_flags_ask_for_the_same_as_the_spec_that_says_the_same(desk: Desk) -> None:
    def same(spec: dict[str, Any]) -> None:
        one = {"type": "given_popularity", "popularity": "uniform", "sampler": "counts_exact", "seed": 0}
        spec.update(num_layers=1, tp_size=None, ep_size=None, dp_size=None, inputs=[one | {"rows": n} for n in (8, 9)])

    desk.run(*FLAGS, "--rows", "8,9", "--passes", 1)
    assert desk.run("--spec", desk.spec(same), "--passes", 1) == (0, 2, 0, 0, 0)
    assert json.loads(desk.spec(same).read_text()) == stored_spec(desk)


def stored_spec(desk: Desk) -> Any:
    with open_profile_db(desk.db) as database:
        return json.loads(database.artifact(str(desk.passes()[0].spec_digest))[1])


def test_more_rows_by_flags_add_only_what_is_missing(desk: Desk) -> None:
    desk.run(*FLAGS, "--rows", "8,64", "--passes", 2)
    assert desk.run(*FLAGS, "--rows", "1,8,9,64", "--passes", 2) == (0, 4, 4, 2, 0)
    counted = desk.ask("count-missing", *FLAGS, "--rows", "1,8,9,64,65", "--passes", 2)
    assert (counted.status, counted.json) == (1, {"num_rows": 5, "num_missing": 1})


def test_a_popularity_file_holds_counts(desk: Desk) -> None:
    (desk.folder / "counts.json").write_text("[0, 9, 0, 1]")
    flags = [desk.folder / "counts.json" if word == "uniform" else word for word in FLAGS]
    assert desk.run(*flags, "--rows", "4", "--passes", 1) == (0, 1, 1, 1, 0)
    (row,) = desk.ask("query", *flags, "--rows", "4").json
    assert row["input_digest"] == routed_digest([[1, 3]] * 4)


def test_a_missing_row_by_flags_names_what_differs(desk: Desk) -> None:
    desk.run(*FLAGS, "--rows", "8", "--passes", 1)
    graph = ["graph" if word == "eager" else word for word in FLAGS]
    (row,) = desk.ask("query", *graph, "--rows", "8").json
    assert (row["status"], row["differs"]) == ("missing", ["launch_mode"])
    other = [32 if word == 16 else word for word in FLAGS]
    (row,) = desk.ask("query", *other, "--rows", "8").json
    assert (row["status"], row["differs"]) == ("missing", ["subject.shape.hidden_size"])


def test_the_launch_mode_asked_for_stands_above_that_of_the_spec(desk: Desk) -> None:
    desk.run("--spec", desk.spec(), "--passes", 1)
    graph = desk.ask("query", "--spec", desk.spec(), "--launch-mode", "graph").json
    assert [row["differs"] for row in graph] == [["launch_mode"]] * 6
    error = desk.ask("run", "--spec", desk.spec(), "--launch-mode", "graph").json["error"]
    assert (error["where"], error["found"]) == ("torch_moe", "launch mode graph")


def test_list_shows_what_drew_given_inputs(desk: Desk) -> None:
    desk.run("--spec", desk.spec(), "--passes", 1)
    outcome = moegauge(desk.capsys, "profile", "list", desk.db)
    assert [" ".join(line.split()) for line in outcome.out.splitlines()[2:]] == [
        "torch_moe given_ids eager warm 1 MEASURED",
        "torch_moe given_popularity given counts by counts_exact, seed 3 eager warm 2 MEASURED",
        "torch_moe given_popularity given uniform by systematic, seed 0 eager warm 2 MEASURED",
    ]


# Through the profiler, as a kernel of serving


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_profiled_pass_over_a_spec_is_attributed_by_the_shape_of_the_spec(
    desk: Desk, recording: Recording, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def as_simulated(spec: dict[str, Any]) -> None:
        spec.update(numeric_format="bfloat16", num_local_experts=8, launch_mode=mode)
        spec["model"].update(hidden_size=64, intermediate_size=32, num_experts=8)
        spec["inputs"][1].update(popularity=[1] * 8)

    monkeypatch.setattr(
        profile_run, "make_runner", lambda name, model, given: FakeRunner(recording, time=lambda *_: 700)
    )
    path = desk.spec(as_simulated)
    assert desk.run("--spec", path, "--runner", "vllm_triton_moe", "--passes", 2) == (0, 5, 12, 2, 0)
    with open_profile_db(desk.db) as database:
        samples = database.samples()
        assert {row.key.setting.launch_mode for row in database.rows()} == {mode}
    assert samples.select("iteration", "layer", "busy_ns").rows()[0] == (0, 0, 700 * samples["num_kernels"][0])


# Never a captured input


@pytest.fixture
def both(desk: Desk, capture: CaptureFolder, monkeypatch: pytest.MonkeyPatch, recording: Recording) -> Path:
    """The capture, and a spec that gives the very ids, shape and sizes of its iterations 1 and 2, measured."""
    table = capture.routed_inputs.filter(capture.routed_inputs["layer"] == 0).sort("iteration", "row")

    def like_the_capture(spec: dict[str, Any]) -> None:
        model, topology = capture.record.model, capture.record.topology
        spec.update(numeric_format="bfloat16", num_local_experts=8, num_layers=1)
        spec.update(tp_size=topology.tp_size, ep_size=topology.ep_size, dp_size=topology.dp_size)
        spec["model"] = {name: getattr(model, name) for name in SPEC["model"]}
        spec["inputs"] = [
            {"type": "given_ids", "topk_ids": table.filter(table["iteration"] == n)["topk_ids"].to_list()}
            for n in (1, 2)
        ]

    monkeypatch.setattr(profile_run, "make_runner", lambda name, model, given: FakeRunner(recording))
    path = desk.spec(like_the_capture)
    assert desk.run("--spec", path, "--runner", "vllm_triton_moe", "--passes", 1) == (0, 2, 2, 1, 0)
    return path


def test_given_ids_alike_to_a_capture_differ_from_its_exact_input_in_the_type_alone(
    desk: Desk, both: Path, capture: CaptureFolder
) -> None:
    asked = ("--capture", capture.path, "--runner", "vllm_triton_moe", "--launch-mode", "eager", "--layers", "0")
    rows = desk.ask("query", *asked, "--iterations", "1-2").json
    assert [(row["status"], row["differs"]) for row in rows] == [("missing", ["input_type"])] * 2


def test_given_ids_alike_to_a_capture_feed_no_rung(desk: Desk, both: Path, capture: CaptureFolder) -> None:
    outcome = moegauge(
        desk.capsys, "align", capture.path, "--db", desk.db, "--out", desk.folder / "report", "--launch-mode", "eager",
        "--json",
    )  # fmt: skip
    assert outcome.status == 2
    rungs = outcome.json["rungs"]
    assert [(rung["status"], rung["reason"]["code"]) for rung in rungs] == [("UNAVAILABLE", "NO_MEASURED_ROWS")] * 5


# Verify


@pytest.fixture
def measured(desk: Desk) -> Desk:
    assert desk.run("--spec", desk.spec(), "--passes", 2)[0] == 0
    return desk


def test_inputs_are_derived_again_from_the_spec_in_the_database(measured: Desk) -> None:
    outcome = measured.verify()
    assert outcome.status == 0
    assert outcome.json == {
        "path": str(measured.db),
        "kind": "profile database",
        "checked": ["12 raw isolated samples of specs (no trace kept)", "inputs of 6 invocations from their specs"],
        "differences": [],
    }


DRAWN = "input_type = 'given_popularity' AND executed_rows = 6"


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE row SET executed_rows = 4 WHERE executed_rows = 3", "executed_rows recorded 4, derived 3"),
        (
            "UPDATE row SET input_type = 'given_popularity' WHERE input_type = 'given_ids'",
            "input_type recorded given_popularity, derived given_ids",
        ),
        (
            f"UPDATE row SET input_digest = (SELECT input_digest FROM row WHERE executed_rows = 3) WHERE {DRAWN}",  # noqa: S608
            "input_digest recorded routed-ids-v1",
        ),
        (
            f"UPDATE row SET popularity_digest = (SELECT popularity_digest FROM row WHERE executed_rows = 5) "  # noqa: S608
            f"WHERE {DRAWN}",
            "label recorded",
        ),
        ("UPDATE label SET record = replace(record, '\"seed\":3', '\"seed\":4')", "label recorded"),
        ("UPDATE label SET record = replace(record, '\"version\":1', '\"version\":7')", "label recorded"),
        ("UPDATE label SET record = replace(record, 'given counts', 'iteration 4')", "label recorded"),
        ("UPDATE subject SET record = replace(record, '\"ep_size\":1', '\"ep_size\":2')", "subject"),
        ("UPDATE sample SET layer = 0 WHERE layer = 1 AND iteration = 2", "input_digest recorded routed-ids-v1"),
        ("UPDATE sample SET iteration = 9 WHERE iteration = 2", "its spec gives no such invocation"),
        ("DELETE FROM row WHERE executed_rows = 3", "its row is missing"),
        ("UPDATE sample SET busy_ns = span_ns + 1 WHERE iteration = 0", "exceeds span"),
        (
            "UPDATE artifact SET bytes = CAST(replace(CAST(bytes AS TEXT), 'systematic', 'uniform') AS BLOB)",
            "pass 1: its spec cannot be read: ",
        ),
        ("DELETE FROM artifact", "pass 1: its spec cannot be read: "),
    ],
    ids=[
        "rows", "type", "ids", "popularity", "seed", "version", "window", "subject", "layer", "iteration", "row gone",
        "busy", "spec edited", "spec gone",
    ],
)  # fmt: skip
def test_an_edit_is_named(measured: Desk, statement: str, found: str) -> None:
    measured.edit(statement)
    outcome = measured.verify()
    assert outcome.status == 1
    assert any(found in line for line in outcome.json["differences"])


def test_inputs_whose_spec_is_gone_are_not_counted_as_derived(measured: Desk) -> None:
    measured.edit("DELETE FROM artifact")
    assert measured.verify().json["checked"] == ["12 raw isolated samples of specs (no trace kept)"]


def test_a_spec_replaced_together_with_its_digests_disagrees_with_the_rows(measured: Desk) -> None:
    """Whoever refreshes every digest still has rows whose ids follow from the old spec."""
    with open_profile_db(measured.db) as database:
        old = str(measured.passes()[0].spec_digest)
        _, data = database.artifact(old)
    fake = data.replace(b'"seed": 3', b'"seed": 4')
    digest = "sha256:" + hashlib.sha256(fake).hexdigest()
    connection = sqlite3.connect(measured.db)
    connection.execute("UPDATE artifact SET bytes = ?, digest = ?, content_digest = ?", (fake, digest, digest))
    connection.execute("UPDATE pass SET record = replace(record, ?, ?)", (old, digest))
    connection.execute("UPDATE label SET record = replace(record, '\"seed\":3', '\"seed\":4')")
    connection.commit()
    connection.close()
    outcome = measured.verify()
    assert outcome.status == 1
    assert any("input_digest recorded" in line for line in outcome.json["differences"])


def test_a_pass_of_neither_a_capture_nor_a_spec_is_not_passed_over(measured: Desk) -> None:
    digest = measured.passes()[0].spec_digest
    measured.edit(f"UPDATE pass SET record = replace(record, '\"{digest}\"', 'null') WHERE id = 1")  # noqa: S608
    outcome = measured.verify()
    assert outcome.status == 1
    assert outcome.json["differences"] == [
        "pass 1: neither a capture nor a spec is recorded, so its 6 samples are only what was recorded"
    ]


def test_a_pass_of_a_capture_and_a_spec_at_once_is_no_record(measured: Desk) -> None:
    digest = measured.passes()[0].spec_digest
    measured.edit(
        f'UPDATE pass SET record = replace(record, \'"capture_digest":null\', \'"capture_digest":"{digest}"\')'  # noqa: S608
    )
    outcome = measured.verify()
    assert (outcome.status, outcome.json["error"]["code"]) == (2, "MALFORMED_FILE")


def test_two_ways_to_draw_the_same_rows_share_a_row_and_both_are_derived_again(desk: Desk) -> None:
    """The label of the first stays (decision 10), and is what one of the stored specs says."""

    def one_way(sampler: str, seed: int) -> Callable[[dict[str, Any]], object]:
        one = {"type": "given_popularity", "popularity": [0, 2, 0, 2], "rows": 2, "sampler": sampler, "seed": seed}
        return lambda spec: spec.update(inputs=[one])

    desk.run("--spec", desk.spec(one_way("counts_exact", 0)), "--passes", 1)
    assert desk.run("--spec", desk.spec(one_way("gumbel_topk", 5), "b.json"), "--passes", 2) == (0, 1, 2, 1, 0)
    assert desk.verify().json["differences"] == []


def test_a_row_that_failed_takes_the_label_of_what_it_is_measured_with(
    desk: Desk, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure keeps no pass and so no spec; its label would follow from nothing that is stored."""

    def fail(number: int) -> None:
        raise MemoryError("full")

    def way(sampler: str) -> Callable[[dict[str, Any]], object]:
        one = {"type": "given_popularity", "popularity": [1, 1] + [0] * 6, "rows": 2, "sampler": sampler, "seed": 0}
        shape = {"hidden_size": 64, "intermediate_size": 32, "num_experts": 8, "top_k": 2}
        return lambda spec: spec.update(
            inputs=[one], num_local_experts=8, numeric_format="bfloat16", model=shape, num_layers=1
        )

    for make, sampler, status in (
        (lambda name, model, given: FakeRunner(recording, before=fail), "gumbel_topk", 1),
        (lambda name, model, given: FakeRunner(recording), "systematic", 0),
    ):
        monkeypatch.setattr(profile_run, "make_runner", make)
        path = desk.spec(way(sampler), f"{sampler}.json")
        assert desk.run("--spec", path, "--runner", "vllm_triton_moe", "--passes", 1)[0] == status
    with open_profile_db(desk.db) as database:
        assert [(row.status, row.label.sampler) for row in database.rows()] == [("MEASURED", "systematic")]
    assert desk.verify().json["differences"] == []


def test_a_database_of_a_capture_and_a_spec_is_verified_with_the_capture(
    desk: Desk, both: Path, capture: CaptureFolder
) -> None:
    asked = ("--capture", capture.path, "--runner", "vllm_triton_moe", "--launch-mode", "eager", "--passes", 1)
    assert desk.run(*asked) == (0, 9, 9, 1, 0)
    outcome = desk.verify("--capture", capture.path)
    assert outcome.status == 0
    assert outcome.json["checked"] == [
        "9 raw isolated samples (no trace kept)",
        "2 raw isolated samples of specs (no trace kept)",
        "inputs of 9 invocations from the capture",
        "inputs of 2 invocations from their specs",
    ]
    alone = desk.verify()
    assert (alone.status, alone.json["error"]["where"]) == (2, "--capture")
    assert alone.json["error"]["found"] == "none, and 1 of 2 passes were measured on a capture"


def test_a_capture_is_no_way_to_verify_a_database_of_specs_alone(measured: Desk, capture: CaptureFolder) -> None:
    outcome = measured.verify("--capture", capture.path)
    assert (outcome.status, outcome.json["error"]["code"]) == (2, "MISUSE")
    assert outcome.json["error"]["found"] == "2 passes, none of them on this capture"


def test_a_database_without_passes_has_nothing_to_verify(desk: Desk) -> None:
    with open_profile_db(desk.db, create=True):
        pass
    outcome = desk.verify()
    assert (outcome.status, outcome.json["error"]["found"]) == (2, "0 passes")


def test_a_report_counts_the_samples_of_specs_apart(desk: Desk, both: Path, capture: CaptureFolder) -> None:
    asked = ("--capture", capture.path, "--runner", "vllm_triton_moe", "--launch-mode", "eager", "--passes", 1)
    assert desk.run(*asked)[0] == 0
    report = desk.folder / "report"
    moegauge(desk.capsys, "align", capture.path, "--db", desk.db, "--out", report, "--launch-mode", "eager")
    outcome = moegauge(desk.capsys, "verify", report, "--json")
    assert outcome.status == 0
    assert "2 raw isolated samples of specs (no trace kept)" in outcome.json["checked"]
