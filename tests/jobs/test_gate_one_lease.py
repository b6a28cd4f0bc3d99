"""The timeline of a borrowed device: a git bundle goes out, packets and verdicts are made there, an archive comes back.

The lane is frozen and rehearsed at home. Out there the host has no memory of it, and the repository is a clone.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from moegauge import errors
from moegauge.evidence.host_state import HostState
from moegauge.jobs.gate_packets import authorize
from moegauge.jobs.gate_run import run
from moegauge.jobs.lane_state import open_lane
from moegauge.jobs.verify_lane import verify_lane
from tiny_lane import TinyLane, commit, git


def carried_out(home: TinyLane, root: Path) -> TinyLane:
    """The repository as a bundle, cloned on a host of its own."""
    commit(home.repository, "frozen and rehearsed")
    root.mkdir()
    git(home.repository, "bundle", "create", str(root / "lane.bundle"), "--all")
    subprocess.run(
        ["git", "clone", "--quiet", str(root / "lane.bundle"), str(root / "work")], check=True, capture_output=True
    )
    away = TinyLane(root)
    assert (away.folder / "steps").is_dir()
    return away


def brought_back(away: TinyLane, root: Path) -> Path:
    """Evidence and history in one archive."""
    commit(away.repository, "evidence")
    git(away.repository, "bundle", "create", str(away.repository.parent / "back.bundle"), "--all")
    archive = root / "back.tar"
    with tarfile.open(archive, "w") as file:
        file.add(away.repository.parent / "back.bundle", "back.bundle")
        file.add(away.folder, "lane")
    shutil.rmtree(away.repository.parent)
    with tarfile.open(archive) as file:
        file.extractall(root / "back", filter="data")
    return root / "back"


@pytest.mark.parametrize(("kind", "status"), [("right", "COMPONENT_PASS"), ("wrong", "COMPONENT_FAILED")])
def test_one_lease_from_bundle_to_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, status: str
) -> None:
    home = TinyLane(tmp_path / "home").start().to_rehearsed(kind)
    away = carried_out(home, tmp_path / "away")
    away.authorized("a")
    first = away.ran("a")
    if kind == "right":
        away.authorized("b")
        first = away.ran("b")
    assert first == status
    back = brought_back(away, tmp_path)
    again = tmp_path / "history"
    subprocess.run(["git", "clone", "--quiet", str(back / "back.bundle"), str(again)], check=True, capture_output=True)
    assert git(again, "log", "--format=%s", "-1") == "evidence"
    for folder in (again / "lane", back / "lane"):
        monkeypatch.setenv("MOEGAUGE_STATE_DIR", str(home.state.folder))
        found = verify_lane(folder)
        assert (found.differences, found.checked[-1]) == ((), f"standing {status}")
    # home remembers the steps it took itself; the others follow them, and nothing runs again
    lane = open_lane(again / "lane", home.state, home.clock)
    for attempt in (authorize, run):
        with pytest.raises(errors.MisuseError, match="terminal"):
            attempt(lane, "a")


def test_the_lane_as_it_stayed_at_home_is_not_the_one_that_ran(tmp_path: Path) -> None:
    home = TinyLane(tmp_path / "home").start().to_rehearsed("wrong")
    away = carried_out(home, tmp_path / "away").authorized("a")
    assert away.ran("a") == "COMPONENT_FAILED"
    # once home has seen the steps that were taken out there, its own older copy is no lane to go on with
    back = open_lane(away.folder, home.state, home.clock)
    for kept in back.steps:
        number = int(kept.path.split("/")[1][:4])
        home.state.remember(back.gate.lane_id or "", number, kept.digest)
    with pytest.raises(errors.Inconsistent, match="this host remembers"):
        authorize(home.open(), "a")


def test_a_packet_that_the_clone_did_not_commit_does_not_run(tmp_path: Path) -> None:
    home = TinyLane(tmp_path / "home").start().to_rehearsed("right")
    away = carried_out(home, tmp_path / "away")
    authorize(away.open(), "a")
    with pytest.raises(errors.MisuseError, match="a packet that is committed to git"):
        run(away.open(), "a")
    assert not (away.folder / "runs").exists()
    assert not HostState(tmp_path / "away" / "state").is_consumed(None, away.open().gate.lane_id or "", "a")
