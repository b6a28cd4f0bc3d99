"""Lost or damaged evidence never improves a verdict, and a failure never becomes runnable: 500 random damages."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence.host_state import HostState
from moegauge.jobs.gate_packets import authorize
from moegauge.jobs.gate_run import run
from moegauge.jobs.lane_state import OpenLane, open_lane
from moegauge.jobs.verify_lane import verify_lane
from moegauge.records.lane import Phase
from moegauge.records.verdict import LaneStatus
from tiny_lane import TinyLane

NUM_DAMAGES = 500
WORST = LaneStatus.INVALID_EVIDENCE


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyLane]:
    """A lane that passed both phases, one whose words differed, and one whose counters failed."""
    lanes = {}
    for kind, phases in (("right", "ab"), ("wrong", "a"), ("hungry", "ab")):
        lane = TinyLane(tmp_path_factory.mktemp(kind)).start().to_rehearsed(kind)
        for phase in phases:
            named: Phase = "a" if phase == "a" else "b"
            lane.authorized(named).ran(named)
        lanes[kind] = lane
    return lanes


def standing(folder: Path, state: Path) -> tuple[LaneStatus | None, OpenLane | None]:
    """What a lane comes to; a lane that cannot be read at all stands lowest."""
    try:
        lane = open_lane(folder, HostState(state), lambda: 2 * 10**18)
    except errors.EvidenceError:
        return WORST, None
    return lane.status, lane


def damage(folder: Path, choice: random.Random) -> str:
    """Delete, cut, change, swap, rename, link or add one to three files; say what was done."""
    done = []
    for _ in range(choice.randint(1, 3)):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if not files:
            break
        path = choice.choice(files)
        how = choice.choice(["delete", "cut", "flip", "swap", "rename", "link", "add", "delete folder"])
        done.append(f"{how} {path.relative_to(folder)}")
        data = path.read_bytes()
        if how == "delete":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[: choice.randrange(len(data))])
        elif how == "flip":
            at = choice.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << choice.randrange(8))]) + data[at + 1 :])
        elif how == "swap":
            other = choice.choice(files)
            other_data = other.read_bytes()
            other.write_bytes(data)
            path.write_bytes(other_data)
        elif how == "rename":
            path.rename(path.with_name(f"9{path.name}"))
        elif how == "link":
            kept = folder.parent / f"kept-{choice.random()}"
            path.rename(kept)
            path.symlink_to(kept)
        elif how == "add":
            path.with_name(f"{path.stem}-2{path.suffix}").write_bytes(data)
        elif path.parent != folder:
            shutil.rmtree(path.parent)
    return ", ".join(done)


def is_runnable(lane: OpenLane) -> bool:
    """Whether any phase of a lane could be authorised or run."""
    for phase in ("a", "b"):
        named: Phase = "a" if phase == "a" else "b"
        for attempt in (authorize, run):
            try:
                attempt(lane, named)
            except errors.MoegaugeError:
                continue
            return True
    return False


@pytest.mark.parametrize("remembers", [True, False], ids=["the host that ran it", "a host that never saw it"])
def test_no_damage_improves_a_verdict_and_unmodified_evidence_verifies(
    ended: dict[str, TinyLane], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    expected = {"right": "COMPONENT_PASS", "wrong": "COMPONENT_FAILED", "hungry": "COUNTERS_FAILED"}
    choice = random.Random(20261129)  # noqa: S311 - damages to try, the same ones every time
    invalid = 0
    for turn in range(NUM_DAMAGES // 2):
        kind = choice.choice(sorted(expected))
        lane = ended[kind]
        before = LaneStatus(expected[kind])
        folder, state = tmp_path / "lane", tmp_path / "state"
        shutil.copytree(lane.folder, folder)
        if remembers:
            shutil.copytree(lane.state.folder, state)
        what = damage(folder, choice)
        same = not _differs(lane.folder, folder)
        after, opened = standing(folder, state)
        where = f"turn {turn}, {kind}: {what}"
        if after is None:  # no step and no run is left: no lane, no verdict, nothing to run
            assert not (folder / "steps").exists(), where
            assert not (folder / "runs").exists(), where
            after = WORST
        assert after.standing >= before.standing, where
        assert (after is before) == same, where
        if opened is not None and remembers:
            assert not is_runnable(opened), where
        invalid += after is WORST
        shutil.rmtree(tmp_path / "lane")
        shutil.rmtree(state, ignore_errors=True)
    assert invalid > NUM_DAMAGES // 3
    for kind, lane in ended.items():
        monkeypatch.setenv("MOEGAUGE_STATE_DIR", str(lane.state.folder if remembers else tmp_path / "fresh"))
        found = verify_lane(lane.folder)
        assert (found.differences, lane.status()) == ((), expected[kind])


def _differs(one: Path, other: Path) -> bool:
    """Whether two folders differ in any name or byte (a swap of a file with itself changes nothing)."""
    mine = {path.relative_to(one): path for path in one.rglob("*") if path.is_file()}
    theirs = {path.relative_to(other): path for path in other.rglob("*") if path.is_file()}
    return mine.keys() != theirs.keys() or any(
        theirs[name].is_symlink() or path.read_bytes() != theirs[name].read_bytes() for name, path in mine.items()
    )


def test_every_earlier_state_of_a_failed_lane_is_refused_by_the_host_that_ran_it(
    ended: dict[str, TinyLane], tmp_path: Path
) -> None:
    """Steps, run and all: each consistent shorter lane, as if the rest had never been."""
    lane = ended["wrong"]
    steps = sorted((lane.folder / "steps").iterdir())
    for keep in range(1, len(steps)):
        folder, state = tmp_path / f"{keep}" / "lane", tmp_path / f"{keep}" / "state"
        shutil.copytree(lane.folder, folder)
        shutil.copytree(lane.state.folder, state)
        shutil.rmtree(folder / "runs")
        for path in steps[keep:]:
            (folder / "steps" / path.name).unlink()
        after, opened = standing(folder, state)
        assert after is WORST
        assert opened is not None
        assert "this host remembers" in opened.problems[0]
        assert not is_runnable(opened)
