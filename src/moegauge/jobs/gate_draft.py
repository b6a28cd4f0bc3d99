"""moegauge gate new, register, amend: a lane's registration, from a draft in TOML to a frozen record."""

from __future__ import annotations

import re
from pathlib import Path

from moegauge import errors
from moegauge.adapters.git import head
from moegauge.evidence.lane_folder import DRAFT, present_files, write_new
from moegauge.evidence.store import read_bytes
from moegauge.evidence.toml import MAX_TOML_BYTES, read_toml
from moegauge.gate.amendments import accept_amendment
from moegauge.jobs.lane_state import OpenLane
from moegauge.records.lane import AmendmentStep, RegistrationStep
from moegauge.records.registration import Registration
from moegauge.records.verdict import LaneStatus

_STARTING_COMMIT = re.compile(r'^(\s*starting_commit\s*=\s*)"[^"]*"', re.MULTILINE)


def new_lane(folder: Path, like: Path) -> Path:
    """Begin a lane: another registration's text as the draft, with the commits its sources are at now.

    Args:
        folder: the lane; nothing may stand there. like: a registration to start from.

    Raises:
        MisuseError: something stands there. EvidenceError: the other registration cannot be read.
    """
    if folder.exists() and any(folder.iterdir()):
        raise errors.MisuseError(
            where=str(folder), expected="a folder to make", found="one with files in it", remedy="Choose another."
        )
    other = read_toml(like, Registration)
    commits = iter([head((folder / source.path).resolve()) for source in other.sources])
    text = read_bytes(like, limit=MAX_TOML_BYTES).decode()
    if len(_STARTING_COMMIT.findall(text)) != len(other.sources):
        raise errors.MalformedFile(
            where=str(like),
            expected='one line starting_commit = "..." for each source',
            found="another form",
            remedy="Write each on a line of its own.",
        )
    draft = folder / DRAFT
    write_new(draft, _STARTING_COMMIT.sub(lambda match: f'{match[1]}"{next(commits)}"', text).encode())
    return draft


def register(lane: OpenLane) -> LaneStatus:
    """Freeze the draft. Explorations that came before are named by it.

    Raises:
        EvidenceError, MisuseError: the draft cannot be read, the folder holds something else, or it is registered.
    """
    lane.gate.require(RegistrationStep)
    registration = read_toml(lane.folder / DRAFT, Registration)
    files = present_files(lane.folder)
    strange = [name for name in files if name != DRAFT and not name.startswith("explorations/")]
    if strange:
        raise errors.MisuseError(
            where=str(lane.folder / strange[0]),
            expected=f"{DRAFT} and explorations alone",
            found="another file",
            remedy="A lane folder holds nothing but the lane; move the file away.",
        )
    return lane.take(lane.new_step(RegistrationStep, files=files, registration=registration))


def amend(lane: OpenLane, amended: Path, *, date: str, reason: str) -> tuple[LaneStatus, tuple[str, ...]]:
    """Amend the registration by a whole new text; the step holds all of it.

    Raises:
        EvidenceError, MisuseError: it cannot be read, or changes what an amendment must not.
    """
    lane.gate.require(AmendmentStep)
    lane.refuse_problems()
    after = read_toml(amended, Registration)
    frozen = lane.gate.status in {LaneStatus.SOURCE_FROZEN, LaneStatus.REHEARSED}
    changed = accept_amendment(lane.gate.registration, after, frozen=frozen)
    if not date.strip() or not reason.strip():
        raise errors.MisuseError(
            where="amendment", expected="a date and a reason", found="none", remedy="Give --date and --reason."
        )
    step = lane.new_step(AmendmentStep, date=date, reason=reason, registration=after, changed=changed)
    return lane.take(step), changed
