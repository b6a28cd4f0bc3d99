"""Integer ns and ratios as text."""

from __future__ import annotations

from moegauge.records.serving_run import Overhead

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def time_text(ns: int | None) -> str:
    """``109.887 µs``; a dash where there is no time."""
    if ns is None:
        return "-"
    for scale, unit in _UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.3f} {unit}"
    return f"{ns} ns"


def signed_time_text(ns: int | None) -> str:
    """Like :func:`time_text` with its sign."""
    return "-" if ns is None else ("+" if ns >= 0 else "−") + time_text(abs(ns))


def ratio_text(ratio: float | None) -> str:
    """``-0.287%`` with its sign; a dash where undefined."""
    return "-" if ratio is None else f"{ratio:+.3%}".replace("-", "−")


def interval_text(interval: tuple[float, float] | None) -> str:
    """``[-0.310%, -0.260%]``; ``none`` where there is no interval."""
    return "none" if interval is None else f"[{ratio_text(interval[0])}, {ratio_text(interval[1])}]"


def bytes_text(num_bytes: int) -> str:
    """Bytes in the unit that reads best."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} B"


def overhead_text(overhead: Overhead) -> str:
    """What a recorder costs, with the spread over neighbouring processes."""
    same = "the same tokens in every run" if overhead.outputs_identical else "OTHER TOKENS in some runs"
    told = []
    if overhead.recording_ratio is not None:
        told.append(f"recording costs {overhead.recording_ratio:+.2%} of the workload's time against a paused recorder")
    if overhead.ratio is not None:
        turns = ", ".join(f"{turn:+.2%}" for turn in overhead.ratio_by_turn)
        told.append(f"{overhead.ratio:+.2%} against processes without one (by turn {turns})")
    num = sum(run.take is None for run in overhead.runs)
    return f"{', '.join(told) or 'cost not measured'}; {num} runs; {same}"
