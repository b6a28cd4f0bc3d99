"""Feed a reader damaged files for ever, or for a number of runs: every outcome is a value or a typed error.

A target is a module beside this one with ``seeds()`` (whole files) and ``read(data)``.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = sorted(path.stem for path in HERE.glob("*_target.py"))
NOTHING_LEFT_TO_DO = 0


def main() -> int:
    """Run every target named, each in a process of its own; the status is that of the first one that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="*", help=f"{', '.join(TARGETS)}; all where none is given")
    parser.add_argument("--runs", type=int, default=-1, help="inputs a target, always the same ones")
    parser.add_argument("--seconds", type=int, default=0, help="seconds a target, other inputs each time")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return fuzz(options.target[0], options.runs, options.seconds)
    for name in options.target or TARGETS:
        limits = ["--runs", str(options.runs), "--seconds", str(options.seconds)]
        done = subprocess.run([sys.executable, __file__, "--inside", name, *limits], check=False)
        if done.returncode != NOTHING_LEFT_TO_DO:
            return done.returncode
    return NOTHING_LEFT_TO_DO


def fuzz(name: str, runs: int, seconds: int) -> int:
    """Fuzz one target in this process. Does not come back: libFuzzer ends the process."""
    import atheris  # noqa: PLC0415 - slow, and only in the process that fuzzes

    sys.path[:0] = [str(HERE), str(HERE.parent)]
    with atheris.instrument_imports(include=["moegauge.adapters"]):
        target = importlib.import_module(name)
    from moegauge.errors import EvidenceError  # noqa: PLC0415 - after the readers, which have to be instrumented

    def one(data: bytes) -> None:
        try:
            target.read(data)
        except EvidenceError:
            return

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds()):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        chosen = ["-seed=1", f"-runs={runs}"] if runs >= 0 else []
        limit = [f"-max_total_time={seconds}"] if seconds else []
        kept = f"-artifact_prefix={tempfile.gettempdir()}/moegauge-fuzz-{name}-"
        atheris.Setup([sys.argv[0], corpus, *chosen, *limit, kept, "-rss_limit_mb=4096", "-verbosity=0"], one)
        atheris.Fuzz()
    return NOTHING_LEFT_TO_DO


if __name__ == "__main__":
    sys.exit(main())
