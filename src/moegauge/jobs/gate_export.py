"""moegauge gate export: a lane's verdict as an in-toto test-result statement, unsigned.

Format: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md, statement v1. Whoever signs it
puts their name to it; a statement without a signature is a summary and proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from moegauge import errors
from moegauge.evidence.lane_folder import write_new
from moegauge.jobs.lane_state import OpenLane
from moegauge.records.verdict import FAILED, LaneStatus, VerdictStep

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"


def export(lane: OpenLane, out: Path) -> Path:
    """Write the statement of a lane that passed or failed.

    Raises:
        Inconsistent: its evidence is damaged. MisuseError: it has no verdict on the candidate, or the file is there.
    """
    lane.refuse_problems()
    if lane.status not in FAILED | {LaneStatus.COMPONENT_PASS}:
        raise errors.MisuseError(
            where="export",
            expected=f"a lane that is {LaneStatus.COMPONENT_PASS}, or failed by measurement",
            found=str(lane.status or "not registered"),
            remedy="Export a verdict on the candidate; any other state is none.",
        )
    data = msgspec.json.encode(statement(lane), order="sorted") + b"\n"
    write_new(out, data)
    return out


def statement(lane: OpenLane) -> dict[str, Any]:
    """What was tested (commits and code files), by which registration, and each device's verdict."""
    freeze, registration = lane.gate.freeze, lane.gate.registration
    assert freeze is not None  # noqa: S101 - there is a verdict
    verdicts = [kept.record for kept in lane.steps if isinstance(kept.record, VerdictStep)]
    named = [
        (f"phase-{one.phase}/{device.device}", device.status in FAILED) for one in verdicts for device in one.devices
    ]
    subject: list[dict[str, Any]] = [
        {"name": name, "digest": {"gitCommit": commit}} for name, commit in sorted(freeze.commits.items())
    ]
    subject += [{"name": name, "digest": _sha256(digest)} for name, digest in sorted(freeze.code.items())]
    return {
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": PREDICATE,
        "predicate": {
            "result": "PASSED" if lane.status is LaneStatus.COMPONENT_PASS else "FAILED",
            "configuration": [{"name": kept.path, "digest": _sha256(kept.digest)} for kept in lane.steps],
            "passedTests": [name for name, failed in named if not failed],
            "failedTests": [name for name, failed in named if failed],
            "lane": registration.lane,
            "status": str(lane.status),
            "endpointAuthorized": False,
            "deviations": list(registration.deviations),
            "disclosures": list(registration.disclosures),
        },
    }


def _sha256(digest: str) -> dict[str, str]:
    return {"sha256": digest.rpartition(":")[2]}
