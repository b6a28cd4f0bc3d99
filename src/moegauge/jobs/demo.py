"""moegauge demo: a bundled H200 capture through the whole ladder, recomputed from its raw traces."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from moegauge import errors
from moegauge.jobs.align import align, ladder_settings
from moegauge.jobs.progress import Progress, silent
from moegauge.jobs.verification import Verification
from moegauge.jobs.verify import verify
from moegauge.records.comparison import LadderReport

BUNDLED = ("h200-qwen3-live", "h200x2-qwen3-ep2")
"""Recordings with their measurements that come with the package; the first is shown unless another is named."""


@dataclass(frozen=True)
class Demo:
    """The report of the bundled capture, and its re-derivation from raw traces."""

    report: LadderReport
    verification: Verification
    folder: Path


def run_demo(out: Path, *, example: str = BUNDLED[0], progress: Progress = silent) -> Demo:
    """Align a bundled capture with its bundled measurements, then derive every number again from raw traces.

    Args:
        out: report folder to make; nothing may stand there.
        example: which of BUNDLED.
        progress: told how far it is.

    Raises:
        EvidenceError: the bundled files are damaged. MisuseError: something already stands at ``out``, or there is no
            such example.
    """
    if example not in BUNDLED:
        raise errors.MisuseError(
            where="--example", expected=" or ".join(BUNDLED), found=example, remedy="Name one of them."
        )
    with as_file(files("moegauge") / "bundled" / example) as folder:
        report = align(folder / "capture", folder / "profile.db", out, settings=ladder_settings(), progress=progress)
        return Demo(report, verify(out, progress=progress), out)


def closing_sentence(demo: Demo) -> str:
    """What was found and what cannot be concluded, in words made from the report."""
    wide = demo.report.rungs[1].capture_wide
    found = "no rung could be computed"
    if wide is not None and wide.relative_ratio is not None:
        found = (
            f"over {wide.num_iterations} served iterations ({wide.num_invocations} MoE invocations) replaying the "
            f"exact routed inputs in isolation takes {wide.relative_ratio:+.2%} of serving's time"
        )
    derived = "served times and routed inputs were derived again from raw files, totals from raw isolated samples"
    if demo.verification.differences:
        derived = f"{len(demo.verification.differences)} numbers could NOT be derived again"
    cannot = "; ".join(demo.report.verdict.cannot_say) or "nothing is left open"
    return f"Found: {found}; {derived}. Cannot be concluded: {cannot}."
