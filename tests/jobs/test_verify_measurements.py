"""moegauge profile verify: an edited sample is found and named, and what was measured is held against the capture."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from cases.literal_bundle import Outcome, moegauge
from conftest import NO_LABELS
from fake_runner import FakeRunner
from moegauge.jobs import profile_run
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_import import import_replay
from moegauge.jobs.profile_run import RunnerChoice, Wanted
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, InputChoice
from moegauge.jobs.verify_measurements import verify_database
from simulator import Recording

PLACE = "iteration = 1 AND layer = 2"
NAMED = "pass {}, iteration 1, layer 2, rank 0: "


@dataclass(frozen=True)
class Evidence:
    """A capture, and a database with an imported pass (1) and one measured pass of three kinds of input (2, 3, 4)."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def capture(self) -> Path:
        return self.folder / "capture"

    @property
    def db(self) -> Path:
        return self.folder / "profile.db"

    def verify(self, *arguments: object) -> Outcome:
        outcome = moegauge(self.capsys, "profile", "verify", self.db, "--capture", self.capture, *arguments)
        assert "Traceback" not in outcome.err
        return outcome

    def edit(self, statement: str) -> None:
        connection = sqlite3.connect(self.db)
        assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, recording = tmp_path_factory.mktemp("measured"), Recording()
    capture = import_serving(recording.write(folder / "bundle"), folder / "capture")
    (folder / "replay.json").write_bytes(recording.replay(scale=1.01).data())
    import_replay(capture.path, [folder / "replay.json"], folder / "profile.db", labels=NO_LABELS)
    wanted = Wanted(
        inputs=tuple(InputChoice(type=kind) for kind in (EXACT, ITERATION, FULL_RUN)), launch_mode="eager",
        cache_state="in_order", num_passes=1,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_run, "make_runner", lambda name, model, given: FakeRunner(recording))
        profile_run.run(capture.path, folder / "profile.db", wanted, RunnerChoice(name="vllm_triton_moe"))
    return folder


@pytest.fixture
def evidence(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evidence:
    shutil.copytree(made, tmp_path / "evidence")
    return Evidence(tmp_path / "evidence", capsys)


def test_an_untouched_database_is_derived_again(evidence: Evidence) -> None:
    outcome = evidence.verify()
    assert outcome.status == 0
    assert "9 isolated samples from their traces" in outcome.out
    assert "27 raw isolated samples (no trace kept), inputs of 27 invocations from the capture" in outcome.out
    assert "everything was derived again" in outcome.out


def test_json_holds_what_was_checked_and_what_differs(evidence: Evidence) -> None:
    assert evidence.verify("--json").json == {
        "path": str(evidence.db),
        "kind": "profile database",
        "checked": [
            "9 isolated samples from their traces",
            "27 raw isolated samples (no trace kept)",
            "inputs of 27 invocations from the capture",
        ],
        "differences": [],
    }


@pytest.mark.parametrize("column", ["busy_ns", "span_ns", "foreign_ns", "num_kernels", "device"])
def test_an_edited_sample_of_an_imported_pass_is_named_with_both_values(evidence: Evidence, column: str) -> None:
    evidence.edit(f"UPDATE sample SET {column} = {column} + 1 WHERE pass_id = 1 AND {PLACE}")  # noqa: S608
    outcome = evidence.verify("--json")
    assert outcome.status == 1
    (line,) = outcome.json["differences"]
    assert line.startswith(f"{NAMED.format(1)}{column} recorded ")
    recorded, derived = (int(part.split()[-1]) for part in line.split(", derived"))
    assert recorded == derived + 1


def test_a_sample_taken_out_of_an_imported_pass_is_named(evidence: Evidence) -> None:
    evidence.edit(f"DELETE FROM sample WHERE pass_id = 1 AND {PLACE}")  # noqa: S608
    outcome = evidence.verify()
    assert outcome.status == 1
    assert f"{NAMED.format(1)}busy_ns recorded None, derived " in outcome.out


@pytest.mark.parametrize("number", [2, 3, 4], ids=["exact", "iteration", "full run"])
def test_a_measured_sample_moved_to_another_place_is_not_of_the_input_of_that_place(
    evidence: Evidence, number: int
) -> None:
    evidence.edit(f"UPDATE sample SET layer = 1 WHERE pass_id = {number} AND {PLACE}")  # noqa: S608
    outcome = evidence.verify("--json")
    assert outcome.status == 1
    (line,) = outcome.json["differences"]
    kind = {2: "exact", 3: "iteration_popularity", 4: "full_run_popularity"}[number]
    assert line.startswith(f"pass {number}, iteration 1, layer 1, rank 0: {kind} input: input_digest recorded ")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            "UPDATE row SET executed_rows = 5 WHERE executed_rows = 6",
            "exact input: executed_rows recorded 5, derived 6",
        ),
        (
            "UPDATE label SET record = replace(record, '\"seed\":0', '\"seed\":1')",
            "iteration_popularity input: input_digest recorded routed-ids-v1",
        ),
        (
            "UPDATE label SET record = replace(record, '\"version\":1', '\"version\":7')",
            "iteration_popularity input: version recorded 7, derived 1",
        ),
        (
            "UPDATE label SET record = replace(record, 'counts_exact', 'counts_guessed')",
            "iteration_popularity inputs: cannot be derived again: ",
        ),
        ("DELETE FROM row WHERE id = (SELECT max(row_id) FROM sample)", "its row is missing"),
    ],
    ids=["rows", "seed", "version", "sampler", "row gone"],
)
def test_an_edited_row_of_a_measured_pass_is_named(evidence: Evidence, statement: str, found: str) -> None:
    evidence.edit(statement)
    outcome = evidence.verify()
    assert outcome.status == 1
    assert found in outcome.out


def test_busy_beyond_the_span_is_named(evidence: Evidence) -> None:
    evidence.edit(f"UPDATE sample SET busy_ns = 99999999 WHERE pass_id = 2 AND {PLACE}")  # noqa: S608
    outcome = evidence.verify()
    assert outcome.status == 1
    assert f"{NAMED.format(2)}busy 99999999 ns exceeds span " in outcome.out


def test_an_edited_trace_inside_the_database_cannot_be_derived_again(evidence: Evidence) -> None:
    evidence.edit("UPDATE artifact SET bytes = CAST('{}' AS BLOB)")
    outcome = evidence.verify()
    assert outcome.status == 1
    assert "pass 1: cannot be derived again: " in outcome.out


def test_a_record_that_cannot_be_read_is_no_profile_database(evidence: Evidence) -> None:
    evidence.edit("UPDATE pass SET record = '{}' WHERE id = 2")
    outcome = evidence.verify("--json")
    assert (outcome.status, outcome.json["error"]["code"]) == (2, "MALFORMED_FILE")


def test_a_capture_nobody_measured_is_refused(evidence: Evidence, tmp_path: Path) -> None:
    other = import_serving(Recording(seed=1).write(tmp_path / "other"), tmp_path / "other-capture")
    outcome = moegauge(evidence.capsys, "profile", "verify", evidence.db, "--capture", other.path, "--json")
    assert outcome.status == 2
    assert outcome.json["error"]["code"] == "MISUSE"
    assert outcome.json["error"]["found"] == "4 passes, none of them on this capture"


def test_the_same_recording_imported_again_is_the_same_capture(evidence: Evidence, made: Path, tmp_path: Path) -> None:
    again = import_serving(made / "bundle", tmp_path / "again")
    assert verify_database(evidence.db, again.path).differences == ()


def test_an_older_generation_is_derived_again_too(evidence: Evidence) -> None:
    evidence.edit(
        "INSERT INTO row SELECT id + 1000, key_digest, generation + 1, status, error, subject_id, setting_id, "
        "label_id, executed_rows, input_type, input_digest, popularity_digest FROM row WHERE id = 1"
    )
    assert evidence.verify().status == 0


@pytest.mark.parametrize("what", ["no file", "an empty file", "not SQLite"])
def test_what_is_no_database_is_unreadable(evidence: Evidence, what: str) -> None:
    evidence.db.unlink()
    if what != "no file":
        evidence.db.write_text("" if what == "an empty file" else "not a database")
    assert evidence.verify().status == 2


def test_verify_of_a_database_names_the_verb_that_does_it(evidence: Evidence) -> None:
    outcome = moegauge(evidence.capsys, "verify", evidence.db, "--json")
    assert outcome.status == 2
    error = outcome.json["error"]
    assert (error["code"], error["where"]) == ("MISUSE", str(evidence.db))
    assert error["remedy"] == f"moegauge profile verify {evidence.db} --capture CAPTURE"
