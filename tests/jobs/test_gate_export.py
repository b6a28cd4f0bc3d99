"""A verdict as an in-toto statement: only of a lane that passed or failed, with the digests of what was tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence.digest import file_digest
from moegauge.jobs.gate_export import export
from tiny_lane import TinyLane


def test_a_failed_lane_is_a_failed_test_result(tmp_path: Path) -> None:
    lane = TinyLane(tmp_path).start().to_rehearsed("wrong").authorized("a")
    lane.ran("a")
    found = json.loads(export(lane.open(), tmp_path / "statement.json").read_bytes())
    assert (found["_type"], found["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://in-toto.io/attestation/test-result/v0.1",
    )
    predicate = found["predicate"]
    assert (predicate["result"], predicate["failedTests"], predicate["endpointAuthorized"]) == (
        "FAILED",
        ["phase-a/one"],
        False,
    )
    subjects = {one["name"]: one["digest"] for one in found["subject"]}
    candidate = file_digest(lane.repository / "tiny" / "candidate.py").rpartition(":")[2]
    assert subjects["tiny/candidate.py"] == {"sha256": candidate}
    assert len(subjects["tiny"]["gitCommit"]) == 40
    with pytest.raises(errors.MisuseError, match="a path where nothing stands"):
        export(lane.open(), tmp_path / "statement.json")


def test_a_lane_without_a_verdict_has_no_statement(tmp_path: Path) -> None:
    lane = TinyLane(tmp_path).start().to_rehearsed("right").authorized("a")
    lane.ran("a")
    with pytest.raises(errors.MisuseError, match="COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"):
        export(lane.open(), tmp_path / "statement.json")
    assert not (tmp_path / "statement.json").exists()
