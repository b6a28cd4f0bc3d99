"""What the recorder is told from outside: environment variables, the control file, and nothing when neither asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from moegauge import errors
from moegauge.adapters.vllm import plugin
from moegauge.adapters.vllm.settings import Control, Target, settings_of, write_control
from moegauge.jobs.recording_control import start_recording, stop_recording

EVERYTHING = (0, 2**31 - 1)
NOTHING = (0, -1)


def test_every_iteration_is_recorded_and_the_first_64_are_profiled_unless_told_otherwise() -> None:
    found = settings_of({})
    assert (found.iterations, found.profile) == (EVERYTHING, (0, 63))


@pytest.mark.parametrize(
    ("text", "span"), [("all", EVERYTHING), ("none", NOTHING), ("0-0", (0, 0)), ("7-63", (7, 63)), ("08-9", (8, 9))]
)
def test_a_range_is_read_with_both_ends(text: str, span: tuple[int, int]) -> None:
    found = settings_of({"MOEGAUGE_PROFILE": text, "MOEGAUGE_ITERATIONS": text})
    assert (found.iterations, found.profile) == (span, span)


@pytest.mark.parametrize("variable", ["MOEGAUGE_PROFILE", "MOEGAUGE_ITERATIONS"])
@pytest.mark.parametrize(
    "text", ["", "7", "9-8", "-1-3", "0-", "0-3\n", " 0-3", "ALL", "0-9999999999", "٣-٤", "0-3,5-6"]
)
def test_what_is_no_range_is_misuse_that_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(errors.MisuseError) as caught:
        settings_of({variable: text})
    assert (caught.value.where, caught.value.found) == (variable, repr(text))
    assert caught.value.expected == "all, none or first-last, as 0-63"


def test_without_a_control_file_the_folder_itself_is_recorded_into(tmp_path: Path) -> None:
    assert Control(tmp_path).target() == Target(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "profiled"),
    [("take-3", "take-3", True), ("take-3 unprofiled", "take-3", False), ("take-0\n", "take-0", True)],
)
def test_a_take_is_recorded_into_its_own_folder(tmp_path: Path, text: str, name: str, profiled: bool) -> None:
    write_control(tmp_path, text)
    assert Control(tmp_path).target() == Target(tmp_path / name, profiled)


@pytest.mark.parametrize(
    "text", ["off", "", "on", "take", "take-", "take-x", "take-1234567", "take-3 profiled", "TAKE-3", "../take-3",
             "take-3/../..", "take-3\ntake-4", "take--1"],
)  # fmt: skip
def test_off_and_nonsense_record_nothing(tmp_path: Path, text: str) -> None:
    write_control(tmp_path, text)
    assert Control(tmp_path).target() is None


def test_bytes_that_are_no_text_record_nothing(tmp_path: Path) -> None:
    (tmp_path / "control").write_bytes(b"\xff\xfetake-3")
    assert Control(tmp_path).target() is None


def test_a_control_file_is_read_again_when_it_changes_and_when_it_goes(tmp_path: Path) -> None:
    control = Control(tmp_path)
    found = []
    for text in ("off", "take-1", "off", "take-2 unprofiled"):
        write_control(tmp_path, text)
        os.utime(tmp_path / "control", ns=(1, 1))  # all within one tick of the clock
        found.append(control.target())
    (tmp_path / "control").unlink()
    found.append(control.target())
    takes = [Target(tmp_path / "take-1"), Target(tmp_path / "take-2", False)]
    assert found == [None, takes[0], None, takes[1], Target(tmp_path)]


def test_writing_the_control_file_leaves_nothing_else(tmp_path: Path) -> None:
    write_control(tmp_path, "off")
    assert [path.name for path in tmp_path.iterdir()] == ["control"]


def test_start_takes_the_next_number_that_was_never_used(tmp_path: Path) -> None:
    for name in ("take-0", "take-7", "take-x", "other"):
        (tmp_path / name).mkdir()
    assert start_recording(tmp_path) == tmp_path / "take-8"
    assert (tmp_path / "control").read_text() == "take-8\n"
    stop_recording(tmp_path)
    assert (tmp_path / "control").read_text() == "off\n"


def test_start_in_an_empty_folder_is_take_0(tmp_path: Path) -> None:
    assert start_recording(tmp_path) == tmp_path / "take-0"


@pytest.mark.parametrize("act", [start_recording, stop_recording])
def test_a_folder_that_no_engine_made_is_misuse(tmp_path: Path, act: object) -> None:
    with pytest.raises(errors.MisuseError):
        act(tmp_path / "none")  # type: ignore[operator]
    assert not (tmp_path / "none").exists()


REGISTER = """
import sys
from moegauge.adapters.vllm import plugin
plugin.register()
print(" ".join(sorted({"torch", "vllm", "numpy", "polars", "msgspec"} & set(sys.modules))))
"""


def registered(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MOEGAUGE_")} | variables
    return subprocess.run(
        [sys.executable, "-c", REGISTER], capture_output=True, text=True, check=False, env=environment
    )


def test_the_plugin_imports_nothing_where_it_is_not_asked_to_record() -> None:
    found = registered()
    assert (found.returncode, found.stdout, found.stderr) == (0, "\n", "")


def test_an_empty_variable_asks_for_nothing() -> None:
    assert registered(MOEGAUGE_CAPTURE="").stdout == "\n"


def test_nothing_is_recorded_where_a_lane_replaces_the_call_that_is_recorded(tmp_path: Path) -> None:
    worker = SimpleNamespace(rank=3, moegauge_lane_counts=dict)
    plugin.attach(worker, tmp_path)
    assert not hasattr(worker, "moegauge_recorder")
    assert "a lane's kernel is on" in (tmp_path / "rank3.not-recorded.txt").read_text()


@pytest.mark.parametrize("value", ["0", "true", "", "1 "])
def test_the_selector_of_a_lane_is_off_with_anything_but_1(value: str) -> None:
    found = registered(MOEGAUGE_CPU_LAGUNA_M8_GATHER_FINALIZE=value)
    assert (found.returncode, found.stdout, found.stderr) == (0, "\n", "")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="it would patch the real one")
def test_a_lane_that_was_asked_for_and_cannot_be_had_is_an_error_where_a_recorder_only_warns() -> None:
    assert registered(MOEGAUGE_CAPTURE="folder").returncode == 0
    found = registered(MOEGAUGE_CPU_LAGUNA_M8_GATHER_FINALIZE="1")
    assert found.returncode == 1
    assert "No module named 'vllm'" in found.stderr


@pytest.mark.skipif(find_spec("vllm") is not None, reason="it would patch the real one")
def test_an_engine_without_a_worker_to_record_goes_on_and_is_told_so(tmp_path: Path) -> None:
    found = registered(MOEGAUGE_CAPTURE=str(tmp_path / "recording"))
    assert found.returncode == 0
    assert "moegauge records nothing: this vLLM has no v1 GPU worker class" in found.stderr
    assert not (tmp_path / "recording").exists()


ENVIRONMENT = """
import json, sys, types
stand_in = types.ModuleType("vllm")
stand_in.__version__ = "0"
sys.modules.setdefault("vllm", stand_in)
from moegauge.adapters.vllm.engine import environment
print(json.dumps(environment(json.loads(sys.argv[1]))))
"""


def test_the_recorded_environment_has_no_secret_no_host_and_no_place() -> None:
    kept = {
        "VLLM_USE_V1": "1", "OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "WARN",
        "TRITON_INTERPRET": "0", "TORCH_LOGS": "x",
    }  # fmt: skip
    dropped = {
        "VLLM_API_KEY": "s", "VLLM_HOST_IP": "10.0.0.1", "VLLM_PORT": "1", "VLLM_CACHE_ROOT": "c",
        "CUDA_HOME": "/opt/x", "CUDA_PATH": "x", "TORCH_HOME": "~x/y", "VLLM_HF_TOKEN": "t", "VLLM_S3_SECRET": "s",
        "NCCL_IF_HOST": "h", "TRITON_CACHE_DIR": "d", "VLLM_SOME": "a/b", "HOME": "h", "PATH": "p",
        "HF_TOKEN": "t", "USER": "u", "VLLM_PASSWORD": "p", "VLLM_ENDPOINT_URL": "u", "AWS_SECRET_ACCESS_KEY": "k",
        "vllm_lower": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", ENVIRONMENT, json.dumps(kept | dropped)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == kept
