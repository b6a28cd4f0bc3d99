"""Entry point of vLLM's ``vllm.general_plugins``: a recorder in each worker, or a lane's kernel in its layers.

Without MOEGAUGE_CAPTURE, MOEGAUGE_RANDOM_WEIGHTS or a lane's selector in the environment it returns at once and touches
nothing. No failure of the recorder reaches the engine: what could not be recorded is said in the log and beside the
recording. A lane is the opposite: where its contract does not hold, the engine does not start.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import Any

logger = logging.getLogger("vllm.moegauge")

CAPTURE = "MOEGAUGE_CAPTURE"
"""Environment variable: folder to record into; nothing is recorded without it."""
RANDOM_WEIGHTS = "MOEGAUGE_RANDOM_WEIGHTS"
"""Environment variable: seed to draw the weights of a loaded model anew from (moegauge capture vllm sets it)."""
LANE_SELECTORS = "LAGUNA_M8_GATHER_FINALIZE"
"""How the names of the selectors of lane laguna_m8 end, one for each platform."""


def register() -> None:
    """Patch the worker class so that what was asked for is attached when the model is loaded."""
    folder = os.environ.get(CAPTURE)
    seed = os.environ.get(RANDOM_WEIGHTS)
    lane = any(name.endswith(LANE_SELECTORS) and value == "1" for name, value in os.environ.items())
    if not folder and seed is None and not lane:
        return
    try:
        from vllm.v1.worker.gpu_worker import Worker  # noqa: PLC0415 - an engine without a recorder never imports it
    except ImportError as error:
        if lane:
            raise
        logger.warning("moegauge records nothing: this vLLM has no v1 GPU worker class (%s)", error)
        return
    original = Worker.load_model
    if getattr(original, "moegauge", False):
        return

    @functools.wraps(original)
    def load_model(worker: Any, *args: Any, **kwargs: Any) -> Any:
        treated = lane and _prepare_lane(worker)
        result = original(worker, *args, **kwargs)
        if seed is not None:
            from moegauge.adapters.vllm.random_weights import draw_weights  # noqa: PLC0415 - torch is loaded by now

            draw_weights(worker.model_runner.model, seed=int(seed))
        if treated:
            _attach_lane(worker)
        if folder:
            attach(worker, Path(folder))
        return result

    load_model.moegauge = True  # type: ignore[attr-defined]
    Worker.load_model = load_model


def _prepare_lane(worker: Any) -> bool:
    from moegauge.adapters.vllm import laguna_m8  # noqa: PLC0415 - without a selector it is never imported

    return laguna_m8.prepare(worker.vllm_config)


def _attach_lane(worker: Any) -> None:
    from moegauge.adapters.vllm import laguna_m8  # noqa: PLC0415 - without a selector it is never imported

    layers = laguna_m8.attach(worker.model_runner.model, worker.vllm_config)
    worker.moegauge_lane_counts = functools.partial(laguna_m8.counts, layers)


def attach(worker: Any, folder: Path) -> None:
    """Attach a recorder to a worker whose model is loaded; say why where that is not possible."""
    rank = getattr(worker, "rank", 0)
    try:
        if hasattr(worker, "moegauge_lane_counts"):
            raise RuntimeError("a lane's kernel is on, and its calls do not pass where the recorder sees them")
        from moegauge.adapters.vllm.recorder import Recorder  # noqa: PLC0415 - torch is loaded by now

        worker.moegauge_recorder = Recorder(worker, folder)
        worker.moegauge_close = worker.moegauge_recorder.close
    except Exception as error:  # serving goes on, whatever the recorder lacks
        logger.exception("moegauge records nothing on rank %s", rank)
        refuse(folder, rank, error)


def refuse(folder: Path, rank: int, error: Exception) -> None:
    """Leave the reason beside where the recording would be; the log holds it too."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank{rank}.not-recorded.txt").write_text(f"{type(error).__name__}: {error}\n")
    except OSError:
        logger.exception("moegauge cannot write into %s", folder)
