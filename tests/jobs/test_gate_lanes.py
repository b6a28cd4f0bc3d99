"""Lanes taken through every step on disk: what becomes of each candidate, and every refusal of a run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from moegauge import errors
from moegauge.evidence.host_state import HostState
from moegauge.evidence.lane_folder import read_observations
from moegauge.jobs import gate_packets, gate_rehearse, gate_run
from moegauge.jobs.gate_draft import amend, new_lane, register
from moegauge.jobs.gate_explore import explore
from moegauge.jobs.gate_stage0 import check
from moegauge.jobs.lane_state import open_lane
from moegauge.jobs.verify_lane import verify_lane
from moegauge.records.schema import canonical_bytes
from tiny_lane import REGISTRATION, TinyLane, commit

PENDING = "COMPONENT_TIMING_PASS_PENDING_MANDATORY_COUNTERS"


@pytest.fixture
def tiny(tmp_path: Path) -> TinyLane:
    return TinyLane(tmp_path).start()


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOEGAUGE_STATE_DIR", str(tmp_path / "state"))


def refused(action: Callable[[], object], *words: str, error: type[Exception] = errors.MisuseError) -> None:
    with pytest.raises(error) as caught:
        action()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def sentences(tiny: TinyLane) -> str:
    return " ".join(why.sentence for why in tiny.open().gate.reasons)


# --- what becomes of candidates ---------------------------------------------------------------------------------------


def test_a_right_candidate_passes_both_phases_and_is_derived_again(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    assert tiny.ran("a") == PENDING
    assert tiny.authorized("b").ran("b") == "COMPONENT_PASS"
    found = verify_lane(tiny.folder)
    assert found.differences == ()
    assert "inputs and oracle words of 4 fixtures" in found.checked
    assert "verdict of phase b (COMPONENT_PASS)" in found.checked


@pytest.mark.parametrize(
    ("kind", "status", "sentence"),
    [
        ("wrong", "COMPONENT_FAILED", "random/0, final: 1 words differ, first at [0, 0]: incumbent 0x0001"),
        ("slow", "COMPONENT_FAILED", "the median saving is 1.0 ns per cycle; at least 100 ns is registered"),
        ("stale", "COMPONENT_FAILED", "post, random/1"),
        ("greedy", "COMPONENT_FAILED", "an arm changed its inputs"),
        ("dying", "INFRASTRUCTURE_ABORTED", "The run has no end: its process was stopped, or died"),
        ("raising", "INFRASTRUCTURE_ABORTED", "AttributeError: no attribute _raw_equal"),
    ],
)
def test_a_candidate_ends_phase_a_in_a_terminal_state(tiny: TinyLane, kind: str, status: str, sentence: str) -> None:
    tiny.to_rehearsed(kind).authorized("a")
    assert tiny.ran("a") == status
    assert sentence in sentences(tiny)
    assert verify_lane(tiny.folder).differences == ()
    for action in (
        lambda: tiny.ran("a"),
        lambda: gate_packets.authorize(tiny.open(), "a"),
        lambda: gate_packets.authorize(tiny.open(), "b"),
        lambda: check(tiny.open()),
    ):
        refused(action, "terminal", "no retry, rescue, source change or replacement packet")


def test_a_candidate_that_moves_more_memory_fails_its_counters(tiny: TinyLane) -> None:
    tiny.to_rehearsed("hungry").authorized("a")
    assert tiny.ran("a") == PENDING
    assert tiny.authorized("b").ran("b") == "COUNTERS_FAILED"
    assert "A1B1: traffic is 400 for the incumbent and 1800 for the candidate" in sentences(tiny)


@pytest.mark.parametrize(("status", "code"), [("COMPONENT_FAILED", 1), ("COMPONENT_PASS", 0), ("NOT_EVALUABLE", 2)])
def test_the_exit_status_of_a_phase(status: str, code: int) -> None:
    assert gate_run.exit_status(gate_run.LaneStatus(status)) == code


# --- the rehearsal ----------------------------------------------------------------------------------------------------


def test_the_rehearsal_runs_every_fault_through_the_whole_campaign(tiny: TinyLane) -> None:
    tiny.to_frozen()
    lane = tiny.open()
    assert gate_rehearse.rehearse(lane) == "REHEARSED", [why.sentence for why in lane.gate.reasons]
    rehearsal = lane.gate.rehearsal
    assert rehearsal is not None
    found = {one.fault: (one.found, one.sentence) for one in rehearsal.campaigns}
    assert found["a/throttling"][0] == "INVALID_EVIDENCE"
    assert found["b/schema-drift"][0] == "INVALID_EVIDENCE"
    assert "edges/zero, final: 1 words differ" in found["a/flipped-bit"][1]
    assert not tiny.state.folder.joinpath("consumed").exists()


def test_a_real_profile_that_the_reader_cannot_read_fails_the_rehearsal(tmp_path: Path) -> None:
    text = REGISTRATION.replace(
        'kernels = ["fused"], launches_per_cycle = 2',
        'kernels = ["fused"], launches_per_cycle = 2, profile_example = "explorations/real.profile"',
    )
    tiny = TinyLane(tmp_path).start(text)
    (tiny.folder / "explorations").mkdir()
    (tiny.folder / "explorations" / "real.profile").write_text('{"device_util_by_proc_list": []}')
    lane = tiny.to_frozen().open()
    campaigns = list(gate_rehearse._profiles(lane.gate.registration, lane.folder))
    assert [(one.fault, one.passed) for one in campaigns] == [("profile/tiny/candidate", False)]


# --- refusals of a run ------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    tiny.ran("a")
    refused(lambda: tiny.ran("a"), "PHASE_A_AUTHORIZED", f"found {PENDING}")


def test_a_packet_that_is_not_committed_is_refused_before_it_is_consumed(tiny: TinyLane) -> None:
    tiny.to_rehearsed()
    gate_packets.authorize(tiny.open(), "a")
    refused(lambda: tiny.ran("a"), "expected a packet that is committed to git", "no device was touched")
    assert tiny.open().open_phase is None


def test_a_copied_folder_cannot_run_again(tiny: TinyLane, tmp_path: Path) -> None:
    tiny.to_rehearsed().authorized("a")
    shutil.copytree(tiny.repository, tmp_path / "copy" / "work")
    tiny.ran("a")
    copy = open_lane(tmp_path / "copy" / "work" / "lane", tiny.state, tiny.clock)
    assert "this host remembers" in copy.problems[0]
    refused(lambda: gate_run.run(copy, "a"), "this host remembers", error=errors.Inconsistent)
    copy.problems.clear()
    refused(lambda: gate_run.run(copy, "a"), "a phase that never ran on this host", "there is no second run")


def test_a_second_packet_for_a_consumed_phase_is_refused_even_from_an_older_copy(
    tiny: TinyLane, tmp_path: Path
) -> None:
    tiny.to_rehearsed()
    shutil.copytree(tiny.repository, tmp_path / "copy" / "work")
    tiny.authorized("a").ran("a")
    copy = open_lane(tmp_path / "copy" / "work" / "lane", tiny.state, tiny.clock)
    copy.problems.clear()
    refused(lambda: gate_packets.authorize(copy, "a"), "a consumed packet of this lane and phase")


def test_the_phase_that_is_not_authorised_does_not_run(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    refused(lambda: tiny.ran("b"), "expected the authorised phase, a")


def test_a_lane_that_another_process_runs_is_left_alone(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    lane = tiny.open()
    with tiny.state.lock(lane.gate.lane_id or ""):
        refused(lambda: tiny.ran("a"), "a lane that no other process is running")


def test_host_state_that_cannot_be_written_is_refused_before_anything_is_consumed(
    tiny: TinyLane, tmp_path: Path
) -> None:
    tiny.to_rehearsed().authorized("a")
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    lane = open_lane(tiny.folder, HostState(blocked), tiny.clock)
    refused(lambda: gate_run.run(lane, "a"), error=OSError)
    assert tiny.open().open_phase is None


# --- what changed after the packet ------------------------------------------------------------------------------------


def test_a_source_changed_after_the_packet_fails_the_preflight(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    (tiny.repository / "tiny" / "candidate.py").write_text("NS = 1\n")
    assert tiny.ran("a") == "PREFLIGHT_FAILED"
    assert "uncommitted is [tiny: tiny/candidate.py]" in sentences(tiny)


def test_a_source_committed_after_the_packet_fails_the_preflight(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    (tiny.repository / "tiny" / "candidate.py").write_text("NS = 1\n")
    commit(tiny.repository, "after the freeze")
    assert tiny.ran("a") == "PREFLIGHT_FAILED"
    assert "commits tiny is" in sentences(tiny)


def test_an_untracked_file_after_the_packet_fails_the_preflight(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    (tiny.repository / "helper.py").write_text("")
    assert tiny.ran("a") == "PREFLIGHT_FAILED"
    assert "uncommitted is [tiny: helper.py]" in sentences(tiny)


def test_a_source_changed_after_the_freeze_gets_no_packet(tiny: TinyLane) -> None:
    tiny.to_rehearsed()
    (tiny.repository / "tiny" / "candidate.py").write_text("NS = 1\n")
    refused(lambda: gate_packets.authorize(tiny.open(), "a"), "tiny/candidate.py is not as committed")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("uuid", "tiny-other", "device uuid is tiny-one; the packet froze tiny-other"),
        ("libraries", {"tiny": "other"}, "device libraries tiny is tiny; the packet froze other"),
        ("versions", {"runtime": "2"}, "device versions runtime is 1; the packet froze 2"),
    ],
)
def test_another_device_or_binary_than_the_packets_fails_the_preflight(
    tiny: TinyLane, field: str, value: object, sentence: str
) -> None:
    tiny.to_rehearsed()
    lane = tiny.open()
    real = gate_packets.runner_surroundings(lane.gate.registration, lane.folder, "a", "one")
    other = msgspec.structs.replace(real, device=msgspec.structs.replace(real.device, **{field: value}))
    gate_packets.authorize(lane, "a", read=lambda _: other)
    commit(tiny.repository, "packet")
    assert tiny.ran("a") == "PREFLIGHT_FAILED"
    assert sentence in sentences(tiny)


def test_another_boot_than_the_packets_fails_the_preflight(tiny: TinyLane) -> None:
    tiny.to_rehearsed()
    lane = tiny.open()
    real = gate_packets.runner_surroundings(lane.gate.registration, lane.folder, "a", "one")
    gate_packets.authorize(lane, "a", read=lambda _: msgspec.structs.replace(real, boot_id="before"))
    commit(tiny.repository, "packet")
    assert tiny.ran("a") == "PREFLIGHT_FAILED"


# --- stage 0 on disk --------------------------------------------------------------------------------------------------


def test_stage_0_fails_a_lane_whose_host_half_imports_a_device_library(tiny: TinyLane) -> None:
    host = tiny.repository / "tiny" / "host.py"
    host.write_text("import torch\n" + host.read_text())
    commit(tiny.repository, "start again")
    shutil.rmtree(tiny.folder)
    tiny.folder.mkdir()
    like = tiny.repository.parent / "like.toml"
    new_lane(tiny.folder, like)
    tiny.to_checked()
    assert tiny.status() == "REGISTERED"
    assert "torch is a device library; stage 0 runs without any" in sentences(tiny)


def test_no_device_library_is_loaded_by_stage_0_though_torch_is_installed(tiny: TinyLane) -> None:
    tiny.to_checked()
    stage0 = tiny.open().gate.stage0
    assert stage0 is not None
    assert stage0.device_libraries == ()
    blocked = (
        "import sys; from moegauge.jobs.stage0_process import NoDeviceLibraries;"
        "sys.meta_path.insert(0, NoDeviceLibraries())\n"
        "for name in ('torch', 'triton', 'vllm', 'vllm.model_executor'):\n"
        "    try:\n        __import__(name)\n"
        "    except ImportError as error:\n        print('device library' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4


def test_a_candidate_that_does_not_compile_fails_stage_0(tiny: TinyLane) -> None:
    register(tiny.open())
    (tiny.repository / "tiny" / "candidate.py").write_text("def run(:\n")
    commit(tiny.repository, "broken")
    assert check(tiny.open()) == "REGISTERED"
    assert "candidate.py: invalid syntax" in sentences(tiny)


def test_a_candidate_that_is_not_there_was_compiled_in_no_case(tiny: TinyLane) -> None:
    register(tiny.open())
    assert check(tiny.open()) == "REGISTERED"
    assert "compile: held against no case at all" in sentences(tiny)


def test_a_dirty_tree_fails_stage_0_on_disk(tiny: TinyLane) -> None:
    register(tiny.open())
    tiny.implement("right")
    (tiny.repository / "note.txt").write_text("left lying")
    assert check(tiny.open()) == "REGISTERED"
    assert "note.txt differs from commit" in sentences(tiny)


def test_a_change_outside_the_treatment_fails_stage_0_on_disk(tiny: TinyLane) -> None:
    register(tiny.open())
    (tiny.repository / "tiny" / "__init__.py").write_text('"""Changed."""\n')
    tiny.implement("right")
    assert check(tiny.open()) == "REGISTERED"
    assert "tiny/__init__.py differs from the starting commit" in sentences(tiny)


def test_a_registered_command_that_fails_fails_stage_0(tmp_path: Path) -> None:
    words = f'commands = [["{sys.executable}", "-c", "raise SystemExit(\'two spaces\')"]]\n'
    tiny = TinyLane(tmp_path).start(REGISTRATION + words)
    tiny.to_checked()
    assert tiny.status() == "REGISTERED"
    assert "status 1: two spaces" in sentences(tiny)


# --- registration on disk ---------------------------------------------------------------------------------------------


def test_a_draft_with_an_unknown_field_is_refused_and_nothing_is_written(tiny: TinyLane) -> None:
    draft = tiny.folder / "registration.toml"
    draft.write_text("tolerance = 1e-3\n" + draft.read_text())
    refused(lambda: register(tiny.open()), "unknown field `tolerance`", error=errors.MalformedFile)
    assert not (tiny.folder / "steps").exists()


def test_a_draft_beside_a_stray_file_is_refused(tiny: TinyLane) -> None:
    (tiny.folder / "notes.md").write_text("x")
    refused(lambda: register(tiny.open()), "registration.toml and explorations alone")


def test_a_draft_changed_after_registration_makes_the_evidence_invalid(tiny: TinyLane) -> None:
    register(tiny.open())
    draft = tiny.folder / "registration.toml"
    draft.write_text(draft.read_text().replace("min_wins = 4", "min_wins = 1"))
    assert tiny.status() == "INVALID_EVIDENCE"
    assert "registration.toml: changed" in tiny.open().problems[0]
    refused(lambda: check(tiny.open()), "registration.toml: changed", error=errors.Inconsistent)


def test_an_amendment_of_a_threshold_is_refused_on_disk(tiny: TinyLane, tmp_path: Path) -> None:
    register(tiny.open())
    text = (tiny.folder / "registration.toml").read_text()
    easier = tmp_path / "amended.toml"
    easier.write_text(text.replace("min_wins = 4", "min_wins = 1"))
    refused(lambda: amend(tiny.open(), easier, date="today", reason="too hard"), "subjects", "Register another lane")
    assert tiny.status() == "REGISTERED"


def test_an_amendment_on_disk_asks_for_stage_0_again(tiny: TinyLane, tmp_path: Path) -> None:
    tiny.to_checked()
    text = (tiny.folder / "registration.toml").read_text()
    stricter = tmp_path / "amended.toml"
    stricter.write_text(text.replace('exclusions = ["services"]', 'exclusions = ["services", "network"]'))
    assert amend(tiny.open(), stricter, date="today", reason="forgotten") == ("REGISTERED", ("exclusions",))
    assert tiny.open().gate.registration.exclusions == ("services", "network")


def test_exploring_is_disclosed_by_the_registration_and_refused_after_it(tiny: TinyLane) -> None:
    tiny.implement("right")
    seen = explore(tiny.open(), "a", dict(os.environ))
    assert (seen.differing, seen.figures[0].num_wins) == ((), 5)
    explore(tiny.open(), "b", dict(os.environ))
    register(tiny.open())
    files = tiny.open().steps[0].record.files  # type: ignore[attr-defined]
    assert {"explorations/0000-a.json", "explorations/0001-b.json", "explorations/0001-tiny-a1.profile"} <= set(files)
    refused(lambda: explore(tiny.open(), "a", dict(os.environ)), "After registration a device is touched by packets")


# --- processes that die -----------------------------------------------------------------------------------------------

RUN = """
import os, signal, sys, time
from pathlib import Path
from moegauge.evidence import lane_folder
from moegauge.evidence.host_state import HostState
from moegauge.jobs import gate_run, lane_state
lane = lane_state.open_lane(Path(sys.argv[1]), HostState(Path(sys.argv[2])), time.time_ns)
left, where = int(sys.argv[3]), sys.argv[4]
def dying(module, name):
    inner = getattr(module, name)
    def write(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*arguments)
    setattr(module, name, write)
if where == "before-write":
    dying(gate_run, "write_new")
elif where == "before-consume":
    dying(HostState, "consume")
elif where == "before-device":
    dying(gate_run, "run_device")
elif where == "before-verdict":
    dying(lane_state, "write_step")
gate_run.run(lane, sys.argv[5])
"""


@pytest.mark.parametrize("phase", ["a", "b"])
@pytest.mark.parametrize(
    ("where", "after"),
    [
        ("before-write", "authorized"),
        ("before-consume", "INFRASTRUCTURE_ABORTED"),
        ("before-device", "INFRASTRUCTURE_ABORTED"),
        ("before-verdict", "passed"),
    ],
)
def test_a_run_killed_anywhere_keeps_what_was_written_and_never_runs_again(
    tiny: TinyLane, phase: str, where: str, after: str
) -> None:
    tiny.to_rehearsed().authorized("a")
    if phase == "b":
        tiny.ran("a")
        tiny.authorized("b")
    words = [sys.executable, "-c", RUN, str(tiny.folder), str(tiny.state.folder), "0", where, phase]
    done = subprocess.run(words, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    lane = tiny.open()
    assert lane.problems == []
    if after == "authorized":
        assert lane.open_phase is None
        return
    assert lane.open_phase == phase
    before = read_observations(tiny.folder, "a" if phase == "a" else "b")
    status = tiny.ran("a" if phase == "a" else "b")
    expected = {"a": PENDING, "b": "COMPONENT_PASS"}[phase] if after == "passed" else after
    assert status == expected
    assert read_observations(tiny.folder, "a" if phase == "a" else "b") == before


def test_a_full_disk_ends_the_run_in_an_aborted_state_with_what_was_written(
    tiny: TinyLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tiny.repository / "tiny" / "device.py"
    device.write_text(device.read_text() + DISK_FULL)
    commit(tiny.repository, "start again")
    shutil.rmtree(tiny.folder)
    new_lane(tiny.folder, tiny.repository.parent / "like.toml")
    tiny.to_rehearsed().authorized("a")
    assert tiny.ran("a") == "INFRASTRUCTURE_ABORTED"
    assert "No space left on device" in sentences(tiny)
    assert len(read_observations(tiny.folder, "a")[0]["one"]) == 4


DISK_FULL = """

def _full():
    import errno, os
    from moegauge.evidence import lane_folder
    from moegauge.jobs import gate_runner
    inner, left = lane_folder.write_new, [2]

    def write_new(path, data):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return inner(path, data)

    lane_folder.write_new = write_new


class FullDevices(Devices):
    def open(self, registration, name):
        _full()
        return Device()


DEVICES = FullDevices()
"""


# --- code of another state --------------------------------------------------------------------------------------------


def test_fixtures_are_computed_again_by_other_code_than_the_frozen_one_where_it_gives_the_same(tiny: TinyLane) -> None:
    tiny.to_rehearsed().authorized("a")
    assert tiny.ran("a") == PENDING
    host = tiny.repository / "tiny" / "host.py"
    host.write_text(host.read_text() + "\nLATER = 1\n")
    found = verify_lane(tiny.folder)
    assert found.differences == ()
    assert "inputs and oracle words of 4 fixtures (by code that is not the frozen one)" in found.checked
    host.write_text(host.read_text().replace("x + np.uint16(1)", "x + np.uint16(2)"))
    found = verify_lane(tiny.folder)
    assert found.differences == ()
    assert (
        "4 fixtures NOT computed again (the lane's code is not the frozen one and gives other words)" in found.checked
    )


# --- edited evidence --------------------------------------------------------------------------------------------------


def test_an_edited_sample_is_found_though_every_digest_was_refreshed(tiny: TinyLane) -> None:
    tiny.to_rehearsed("slow").authorized("a")
    assert tiny.ran("a") == "COMPONENT_FAILED"
    run = tiny.folder / "runs" / "phase-a" / "one"
    step = next((tiny.folder / "steps").glob("*-verdict.json"))
    for path in sorted(run.glob("*-block.json")):
        path.write_text(path.read_text().replace('"elapsed_ns": 1998', '"elapsed_ns": 1000'))
    _refresh(tiny.folder, run, step)
    forgotten = open_lane(tiny.folder, HostState(tiny.state.folder / "another-host"), tiny.clock)
    assert str(forgotten.status) == "INVALID_EVIDENCE"
    assert "the verdict that the evidence leads to" in forgotten.problems[0]


def _refresh(folder: Path, run: Path, step: Path) -> None:
    """Bring the chain of a run and the digests in its verdict up to date, as a careful forger would."""
    from moegauge.evidence.digest import file_digest  # noqa: PLC0415

    previous = file_digest(run.parent / "consumed.json")
    for path in sorted(run.glob("*.json")):
        record = msgspec.json.decode(path.read_bytes())
        record["previous"] = previous
        path.write_bytes(canonical_bytes(record))
        previous = file_digest(path)
    verdict = msgspec.json.decode(step.read_bytes())
    for name in verdict["files"]:
        path = folder / name
        verdict["files"][name] = {"digest": file_digest(path), "num_bytes": path.stat().st_size}
    step.write_bytes(canonical_bytes(verdict))


def test_deleted_evidence_is_named_and_makes_the_lane_invalid(tiny: TinyLane) -> None:
    tiny.to_rehearsed("wrong").authorized("a")
    tiny.ran("a")
    (tiny.folder / "runs" / "phase-a" / "one" / "00001-exactness.json").unlink()
    assert tiny.status() == "INVALID_EVIDENCE"
    assert any("00001-exactness.json: recorded but missing" in line for line in tiny.open().problems)


def test_a_deleted_verdict_does_not_make_a_lane_runnable_again(tiny: TinyLane) -> None:
    tiny.to_rehearsed("wrong").authorized("a")
    tiny.ran("a")
    next((tiny.folder / "steps").glob("*-verdict.json")).unlink()
    assert tiny.status() == "INVALID_EVIDENCE"
    elsewhere = open_lane(tiny.folder, HostState(tiny.state.folder / "another-host"), tiny.clock)
    assert gate_run.run(elsewhere, "a") == "COMPONENT_FAILED"


def test_a_lane_rolled_back_in_every_file_is_found_by_the_host_that_took_it(tiny: TinyLane) -> None:
    tiny.to_rehearsed("wrong").authorized("a")
    tiny.ran("a")
    next((tiny.folder / "steps").glob("*-verdict.json")).unlink()
    shutil.rmtree(tiny.folder / "runs")
    assert tiny.status() == "INVALID_EVIDENCE"
    refused(lambda: tiny.ran("a"), "this host remembers", error=errors.Inconsistent)


@pytest.mark.parametrize("change", ["extra", "link", "truncated", "swapped"])
def test_a_changed_folder_is_named(tiny: TinyLane, change: str) -> None:
    tiny.to_frozen()
    step = tiny.folder / "steps" / "0004-freeze.json"
    if change == "extra":
        (tiny.folder / "notes.txt").write_text("x")
    elif change == "link":
        target = tiny.folder.parent / "elsewhere.toml"
        shutil.move(tiny.folder / "registration.toml", target)
        (tiny.folder / "registration.toml").symlink_to(target)
    elif change == "truncated":
        step.write_bytes(step.read_bytes()[:-100])
        refused(tiny.open, "The file is cut or is not JSON", error=errors.MalformedFile)
        return
    else:
        audits = sorted((tiny.folder / "steps").glob("*-audit.json"))
        one, two = (path.read_bytes() for path in audits)
        audits[0].write_bytes(two)
        audits[1].write_bytes(one)
    assert tiny.status() == "INVALID_EVIDENCE"
    words = {
        "extra": "notes.txt: not recorded",
        "link": "registration.toml: a link, or no regular file",
        "swapped": "expected steps/0003-audit.json, found another name",
    }
    assert words[change] in " ".join(tiny.open().problems)


def test_a_step_taken_from_another_copy_is_refused(tiny: TinyLane, tmp_path: Path) -> None:
    tiny.to_checked()
    shutil.copytree(tiny.repository, tmp_path / "copy" / "work")
    tiny.audited()
    copy = open_lane(tmp_path / "copy" / "work" / "lane", tiny.state, tiny.clock)
    copy.problems.clear()
    refused(lambda: check(copy), "Another step of this number was taken", error=errors.Inconsistent)


def test_a_clock_that_went_back_refuses_the_next_step(tiny: TinyLane) -> None:
    tiny.to_checked()
    tiny.clock = lambda: 5
    refused(lambda: check(tiny.open()), "The clock of this machine went back", error=errors.Inconsistent)
