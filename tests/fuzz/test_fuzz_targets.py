"""The fuzzer feeds whole files to each reader, and ends with another status than 0 when a reader falls over."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in HERE.glob("*_target.py"))


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_of_a_target_is_a_file_its_reader_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    target = importlib.import_module(name)
    seeds = target.seeds()
    assert len(seeds) >= 2
    for seed in seeds:
        target.read(seed)


@pytest.mark.parametrize(
    ("body", "falls"),
    [
        ("raise ValueError('not typed')", True),
        ("raise EvidenceError(where='', expected='', found='', remedy='')", False),
    ],
)
def test_an_error_without_a_type_of_ours_ends_the_fuzzer_and_a_typed_one_does_not(
    tmp_path: Path, body: str, falls: bool
) -> None:
    (tmp_path / "fuzz.py").write_text((HERE / "fuzz.py").read_text())
    lines = ["from moegauge.errors import EvidenceError", "def seeds():", "    return [b'seed']", "def read(data):"]
    (tmp_path / "small_target.py").write_text("\n".join([*lines, f"    {body}"]))
    done = subprocess.run(
        [sys.executable, tmp_path / "fuzz.py", "--runs", "50"], capture_output=True, check=False, cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert (done.returncode != 0) == falls, done.stderr
    assert (b"not typed" in done.stderr + done.stdout) == falls
