"""moegauge gate on the command line: statuses, sentences, --json, and no device library in the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moegauge.cli.main import run
from tiny_lane import AUDIT, REGISTRATION, TinyLane, commit

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyLane:
    monkeypatch.setenv("MOEGAUGE_STATE_DIR", str(tmp_path / "state"))
    return TinyLane(tmp_path).start()


def gate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(["gate", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_every_verb_of_a_lane_that_passes(tiny: TinyLane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane = str(tiny.folder)
    for who in ("first", "second"):
        (tmp_path / f"{who}.toml").write_text(AUDIT.format(who=who))
    assert gate(capsys, "status", lane)[:1] == (0,)
    assert gate(capsys, "register", lane)[0] == 0
    tiny.implement("right")
    expected = [
        (("check", lane), 0, "STAGE0_PASS"),
        (("audit", lane, str(tmp_path / "first.toml")), 0, "STAGE0_PASS"),
        (("audit", lane, str(tmp_path / "second.toml")), 0, "STAGE0_PASS"),
        (("freeze", lane), 0, "SOURCE_FROZEN"),
        (("rehearse", lane), 0, "REHEARSED"),
        (("authorize", lane, "--phase", "a"), 0, "PHASE_A_AUTHORIZED"),
        (("run", lane, "--phase", "a"), 2, ""),
        (("run", lane, "--phase", "a"), 0, PENDING),
        (("authorize", lane, "--phase", "b"), 0, "PHASE_B_AUTHORIZED"),
        (("run", lane, "--phase", "b"), 0, "COMPONENT_PASS"),
        (("status", lane), 0, "COMPONENT_PASS"),
        (("run", lane, "--phase", "b"), 2, ""),
    ]
    refusals = []
    for words, status, line in expected:
        found, out, err = gate(capsys, *words)
        assert (found, out.partition("\n")[0]) == (status, line), (words, out, err)
        if status == 2:
            refusals.append(err)
            commit(tiny.repository, "the lane")
        if words[0] == "authorize" and words[-1] == "b":
            commit(tiny.repository, "the lane")
    assert "a packet that is committed to git" in refusals[0]
    assert "which is terminal" in refusals[1]
    assert run(["verify", lane]) == 0
    assert "everything was derived again" in capsys.readouterr().out


def test_a_failed_check_and_a_failed_lane_have_status_1(tiny: TinyLane, capsys: pytest.CaptureFixture[str]) -> None:
    lane = str(tiny.folder)
    assert gate(capsys, "register", lane)[0] == 0
    found, out, _ = gate(capsys, "check", lane)
    assert (found, "compile: held against no case at all" in out) == (1, True)
    tiny.implement("wrong")
    assert gate(capsys, "check", lane)[0] == 0
    tiny.audited()
    assert gate(capsys, "freeze", lane)[0] == 0
    assert gate(capsys, "rehearse", lane)[0] == 0
    assert gate(capsys, "authorize", lane, "--phase", "a")[0] == 0
    commit(tiny.repository, "the lane")
    found, out, _ = gate(capsys, "run", lane, "--phase", "a", "--json")
    view = json.loads(out)
    assert (found, view["status"], view["endpoint_authorized"]) == (1, "COMPONENT_FAILED", False)
    assert view["devices"][0]["reasons"][0]["code"] == "WORDS_DIFFER"
    assert gate(capsys, "status", lane)[0] == 1
    assert run(["verify", lane]) == 0


def test_damaged_evidence_has_status_2_and_verify_names_it(tiny: TinyLane, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.to_checked()
    (tiny.folder / "note.txt").write_text("x")
    found, out, _ = gate(capsys, "status", str(tiny.folder))
    assert (found, "note.txt: not recorded" in out) == (2, True)
    assert run(["verify", str(tiny.folder)]) == 1
    assert "note.txt: not recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("status", "no-such-lane"), "a lane folder"),
        (("new", "lane", "--like", "no-such.toml"), "a file"),
        (("register", "."), "a file"),
        (("run", "{lane}", "--phase", "a"), "found not registered"),
        (("run", "{lane}"), "--phase"),
        (("run", "{lane}", "--phase", "c"), "phase"),
        (("freeze", "{lane}"), "expected a lane that is STAGE0_PASS"),
        (("rehearse", "{lane}"), "expected a lane that is SOURCE_FROZEN"),
        (("authorize", "{lane}", "--phase", "b"), "found not registered"),
        (("audit", "{lane}", "no-such.toml"), "found not registered"),
        (("amend", "{lane}", "no-such.toml", "--date", "d", "--reason", "r"), "found not registered"),
        (("new", "{lane}", "--like", "{like}"), "one with files in it"),
    ],
)
def test_a_wrong_request_has_status_2_and_says_what_was_expected(
    tiny: TinyLane, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    filled = [word.format(lane=tiny.folder, like=tmp_path / "like.toml") for word in words]
    found, out, err = gate(capsys, *filled)
    assert (found, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('lane = "tiny"', "lane = ", "expected TOML"),
        ('lane = "tiny"', 'lane = "tiny"\ntolerance = 0.1', "unknown field `tolerance`"),
        ("min_wins = 4", "", "missing required field `min_wins`"),
        ("min_wins = 4", 'min_wins = "4"', "Expected `int`, got `str`"),
        ("min_wins = 4", "min_wins = 9", "9 of 5 blocks can never be reached"),
        (
            'rules = [{ quantity = "traffic", rule = "at_most_ratio", limit = "1.02" }]',
            "rules = []",
            "would pass anything",
        ),
        ('limit = "1.02"', "limit = 1.02", "Expected `str`, got `float`"),
    ],
)
def test_a_draft_that_cannot_be_registered_is_refused_with_its_field(
    tiny: TinyLane, capsys: pytest.CaptureFixture[str], old: str, new: str, sentence: str
) -> None:
    draft = tiny.folder / "registration.toml"
    assert old in REGISTRATION
    draft.write_text(draft.read_text().replace(old, new))
    found, _, err = gate(capsys, "register", str(tiny.folder))
    assert (found, sentence in " ".join(err.split())) == (2, True), err
    assert not (tiny.folder / "steps").exists()


def test_the_command_line_loads_no_device_library_for_check_and_status(tiny: TinyLane) -> None:
    tiny.to_checked()
    code = (
        "import sys\nfrom moegauge.cli.main import run\n"
        "status = [run(['gate', verb, sys.argv[1]]) for verb in ('check', 'status')]\n"
        "run(['verify', sys.argv[1]])\n"
        "sys.stderr.write(repr((status, sorted({'torch', 'triton', 'vllm'} & set(sys.modules)))))\n"
    )
    words = [sys.executable, "-c", code, str(tiny.folder)]
    environment = {**os.environ, "MOEGAUGE_STATE_DIR": str(tiny.state.folder)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.endswith("([0, 0], [])"), done.stderr
