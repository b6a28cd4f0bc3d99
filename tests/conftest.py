"""Shared fixtures: a simulated recording imported as a capture, with measured passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.profile_derivation import ReplayLabels
from moegauge.jobs.profile_import import import_replay
from simulator import Recording
from vllm_stand_in import vllm

__all__ = ["vllm"]

# The same examples in every run and on every machine, and no clock in the verdict.
settings.register_profile("moegauge", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("moegauge")

NO_LABELS = ReplayLabels(None, None, {})


@pytest.fixture
def recording() -> Recording:
    """One rank, three iterations (one eager, two as graphs), three MoE layers."""
    return Recording()


@pytest.fixture
def capture(recording: Recording, tmp_path: Path) -> CaptureFolder:
    """The recording as a capture."""
    return import_serving(recording.write(tmp_path / "bundle"), tmp_path / "capture")


@pytest.fixture
def one_pass(recording: Recording, capture: CaptureFolder, tmp_path: Path) -> Path:
    """A profile database with one eager pass and one graph pass, 1 % slower than serving."""
    db = tmp_path / "profile.db"
    for name, trace in (("eager", recording.replay(scale=1.01)), ("graph", recording.graph_replay(scale=1.01))):
        path = tmp_path / f"{name}.json"
        path.write_bytes(trace.data())
        import_replay(capture.path, [path], db, labels=NO_LABELS)
    return db
