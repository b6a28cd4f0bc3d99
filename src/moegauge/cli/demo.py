"""moegauge demo."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from moegauge import errors
from moegauge.adapters.vllm_environment import default_folder, own_package, runs_here, vllm_environment
from moegauge.cli.align import print_report
from moegauge.cli.arguments import Flag
from moegauge.cli.console import print_json, progress_bar, stderr, stdout
from moegauge.evidence.store import refuse_existing
from moegauge.jobs.demo import BUNDLED, closing_sentence, run_demo
from moegauge.jobs.demo_live import LiveDemo, Size, run_live
from moegauge.render.live_text import live_conclusion, live_rows, weights_line
from moegauge.render.terminal import show_ladder, show_live

INSIDE = "MOEGAUGE_DEMO_INSIDE"
"""Set in the process that has vLLM, so that it does not start another."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Serving and replay on one thread: two wait for each other whenever anything else takes a core of a small host."""


def demo_command(
    *,
    out: Path | None = None,
    example: str | None = None,
    live: Flag = False,
    environment: Path | None = None,
    requests: int | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run the ladder on a bundled H200 capture, recomputed from raw traces; needs no GPU.

    With --live: serve a tiny random model with a real vLLM on this host, record it, and find out which cache state
    explains the difference.

    Args:
        out: Report folder to make (with --live: capture, database and reports); a temporary one where left out.
        example: h200-qwen3-live (one GPU, unless given) or h200x2-qwen3-ep2 (two, expert parallel).
        live: Serve and measure here. The first time it installs vLLM for the host processor (some 3 GB).
        environment: With --live: folder of that installation, made if need be; one in the user's cache where left out.
        requests: With --live: how many are served (8 unless given).
        json: Print report.json instead of tables (with --live: that of the replay in serving order).
    """
    if not live and (environment is not None or requests is not None):
        raise errors.MisuseError(
            where="moegauge demo",
            expected="--environment and --requests with --live",
            found="no --live",
            remedy="Add it, or leave them out.",
        )
    if live and example is not None:
        raise errors.MisuseError(
            where="moegauge demo",
            expected="--live or --example",
            found="both",
            remedy="Leave one out: --live records anew.",
        )
    with tempfile.TemporaryDirectory(prefix="moegauge-") as scratch:
        if live:
            return _live(out, Path(scratch), environment, requests, as_json=json)
        target = out if out is not None else Path(scratch) / "report"
        with progress_bar() as progress:
            demo = run_demo(target, example=example or BUNDLED[0], progress=progress)
        print_report(demo.report, "json" if json else "terminal")
        if not json:
            console = stdout()
            console.print()
            console.print(Text(f"derived again: {', '.join(demo.verification.checked)}", style="dim"))
            console.print(Text(closing_sentence(demo), style="bold"))
            if out is not None:
                console.print(Text(f"report: {out}; run  moegauge verify {out}  to derive it again"))
    return 0


def register(app: App) -> None:
    """Add the verb to the command line."""
    app.command(demo_command, name="demo")


def _live(out: Path | None, scratch: Path, environment: Path | None, requests: int | None, *, as_json: bool) -> int:
    """Here if this process was started for it, else in one that has vLLM."""
    if out is not None:
        refuse_existing(out)
    if INSIDE not in os.environ:
        return _in_environment(out, environment, requests, as_json=as_json)
    size = Size() if requests is None else Size(num_requests=requests)
    with progress_bar() as progress:
        demo = run_live(out if out is not None else scratch / "live", size=size, progress=progress)
    if as_json:
        print_json(demo.in_order)
    else:
        _print(demo, out)
    return 1 if demo.differences() else 0


def _in_environment(out: Path | None, environment: Path | None, requests: int | None, *, as_json: bool) -> int:
    if environment is None and runs_here():
        python = Path(sys.executable)
    else:
        folder = default_folder() if environment is None else environment.absolute()
        stderr().print(
            f"vLLM for the host processor: {folder} (made if it is not there: minutes, 3 GB)", soft_wrap=True
        )
        with progress_bar() as progress:
            python = vllm_environment(folder, progress=progress)
    words = [str(python), "-m", "moegauge", "demo", "--live"]
    words += ["--out", str(out)] if out is not None else []
    words += ["--requests", str(requests)] if requests is not None else []
    words += ["--json"] if as_json else []
    with own_package() as package:
        own = {"PYTHONPATH": str(package), INSIDE: "1", "TQDM_DISABLE": "1"}
        return subprocess.run(words, env=dict(os.environ) | ONE_THREAD | own, check=False).returncode  # noqa: S603


def _print(demo: LiveDemo, out: Path | None) -> None:
    console = stdout()
    show_ladder(console, demo.in_order)
    console.print()
    warm, others = demo.warm_by_order, demo.others()
    show_live(console, live_rows(warm, others))
    weights = demo.weights
    console.print(Text(weights_line(weights.num_layers, weights.num_bytes, weights.cache_bytes), style="dim"))
    derived = "every number was derived again" if not demo.differences() else "; ".join(demo.differences())
    console.print(Text(f"verified, {len(demo.verifications)} reports: {derived}", style="dim"))
    console.print(Text(live_conclusion(warm, others), style="bold"))
    if out is not None:
        console.print(Text(f"evidence: {out}; run  moegauge verify {out / 'report-in-order'}  to derive it again"))
