"""What the frames of a recording say beside routes and times: conditions, requests, steps, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from moegauge.adapters.routes.serving import inconsistent
from moegauge.evidence.frame_log import FrameLog
from moegauge.evidence.serving_tables import REQUESTS, STEPS
from moegauge.records.capture import Finding
from moegauge.records.recording import End, IterationFrame, Problem, RequestPart, Surroundings

_WHOLE = re.compile(r"^[0-9]{1,18}\Z")
PREFILL = "prefill"
"""Phase: the whole prompt (all of it that was not computed before) in one iteration."""
CHUNK = "chunk"
"""Phase: a part of the prompt; more of it follows, or came in an earlier iteration."""
DECODE = "decode"
"""Phase: every row follows the prompt."""


def phase(part: RequestPart, first_computed: int) -> str | None:
    """Phase of a request in an iteration; None where the length of its prompt was not seen.

    Args:
        part: its share. first_computed: tokens that were computed before it was first scheduled (a cached prefix).
    """
    if part.num_prompt is None:
        return None
    if part.num_computed >= part.num_prompt:
        return DECODE
    whole = part.num_computed <= first_computed and part.num_computed + part.num_tokens >= part.num_prompt
    return PREFILL if whole else CHUNK


def request_rows(rank: int, frames: Sequence[IterationFrame]) -> pl.DataFrame:
    """Rows of the requests table of one rank."""
    out: list[tuple[object, ...]] = []
    first_computed: dict[str, int] = {}
    for frame in frames:
        row = 0
        for position, part in enumerate(frame.requests):
            if part.resumed:
                first_computed[part.request] = part.num_computed
            first = first_computed.setdefault(part.request, part.num_computed)
            place = (frame.number, rank, position, part.request, phase(part, first), row, part.num_tokens)
            out.append((*place, part.num_computed, part.num_prompt, part.resumed))
            row += part.num_tokens
    return pl.DataFrame(out, schema=REQUESTS.columns, orient="row")


def step_rows(rank: int, frames: Sequence[IterationFrame]) -> pl.DataFrame:
    """Rows of the steps table of one rank."""
    rows = [(f.number, rank, f.start_ns, f.end_ns, f.num_draft_tokens, f.kernel_config) for f in frames]
    return pl.DataFrame(rows, schema=STEPS.columns, orient="row")


def conditions_of(logs: Mapping[int, FrameLog]) -> dict[str, str]:
    """Conditions that the recorder read, over all ranks: profiler, device model, clocks, power, throttle reasons."""
    heads = [log.head for _, log in sorted(logs.items())]
    found = {"profiler": "kineto" if heads[0].clock == "device" else "none (monotonic clock)"}
    models = sorted({head.device_model for head in heads if head.device_model is not None})
    if models:
        found["device_model"] = ", ".join(models)
    samples = [f.facts for log in logs.values() for f in log.frames if isinstance(f, Surroundings)]
    clocks = [("SM", _range(samples, "sm_clock_mhz")), ("memory", _range(samples, "memory_clock_mhz"))]
    told = [f"{name} {values} MHz" for name, values in clocks if values]
    if told:
        found["clocks"] = ", ".join(told)
    draw, limit = _range(samples, "power_mw", 1000), _range(samples, "power_limit_mw", 1000)
    if draw and limit:
        found["power"] = f"{draw} W of {limit} W"
    threads = _range(samples, "threads")
    if threads:
        found["threads"] = threads
    frames = [frame for log in logs.values() for frame in log.frames if isinstance(frame, IterationFrame)]
    configs = sorted({frame.kernel_config for frame in frames if frame.kernel_config is not None})
    if configs:
        several = f"{len(configs)} configurations, by executed rows"
        found["kernel_config_digest"] = configs[0] if len(configs) == 1 else several
    throttle = sorted({one["throttle"] for one in samples if "throttle" in one})
    if throttle:
        found["throttle"] = ", ".join(throttle)
    return found


def _range(samples: Sequence[Mapping[str, str]], name: str, unit: int = 1) -> str | None:
    """Smallest and largest of a sampled whole number, in units; one number where they are the same."""
    texts = [sample[name] for sample in samples if name in sample]
    odd = [text for text in texts if not _WHOLE.match(text)]
    if odd:
        raise inconsistent(f"surroundings, {name}", "a whole number", repr(odd[0][:60]))
    values = [int(text) // unit for text in texts]
    if not values:
        return None
    return str(min(values)) if min(values) == max(values) else f"{min(values)}-{max(values)}"


def findings_of(logs: Mapping[int, FrameLog], *, num_common: int) -> tuple[Finding, ...]:
    """What the recorder could not do, what the end of the file lost, and what endangers exactness."""
    found: list[Finding] = []
    for rank, log in sorted(logs.items()):
        found += [*_end(rank, log, num_common), *_problems(rank, log)]
    return (*found, *_risks(logs))


def _end(rank: int, log: FrameLog, num_common: int) -> list[Finding]:
    found = []
    end = next((frame for frame in log.frames if isinstance(frame, End)), None)
    num = sum(isinstance(frame, IterationFrame) for frame in log.frames)
    last = max((frame.number for frame in log.frames if isinstance(frame, IterationFrame)), default=None)
    if end is None or log.cut is not None:
        torn = (
            "" if log.cut is None else f"; {log.cut.num_bytes} bytes after it belong to no whole frame ({log.cut.why})"
        )
        found.append(
            Finding(
                code="RECORDING_CUT",
                sentence=f"rank {rank} was not stopped on purpose: whatever ran after iteration {last} is missing",
                num=1,
                examples=(f"last whole iteration {last}{torn}",),
            )
        )
    if end is not None and end.num_dropped:
        sentence = f"iterations of rank {rank} that were not recorded, since its writer was behind"
        found.append(Finding(code="ITERATIONS_DROPPED", sentence=sentence, num=end.num_dropped, examples=()))
    if num > num_common:
        sentence = f"iterations of rank {rank} that another rank lacks; they are left out"
        found.append(Finding(code="RANKS_UNEVEN", sentence=sentence, num=num - num_common, examples=()))
    return found


def _problems(rank: int, log: FrameLog) -> list[Finding]:
    problems = [frame for frame in log.frames if isinstance(frame, Problem)]
    return [
        Finding(
            code="RECORDER_PROBLEM",
            sentence=f"the recorder of rank {rank} could not do all it should ({what}); serving went on",
            num=len(mine),
            examples=tuple(f"before iteration {one.before_iteration}: {one.text[:200]}" for one in mine[:5]),
        )
        for what in sorted({problem.what for problem in problems})
        if (mine := [problem for problem in problems if problem.what == what])
    ]


def _risks(logs: Mapping[int, FrameLog]) -> list[Finding]:
    """Features of the engine under which the exactness of inputs or the comparability of iterations is in danger."""
    head = logs[min(logs)].head
    frames = [frame for frame in logs[min(logs)].frames if isinstance(frame, IterationFrame)]
    drafts = sum(frame.num_draft_tokens > 0 for frame in frames)
    resumed = sum(any(part.resumed for part in frame.requests) for frame in frames)
    moving = len(frames) if head.engine.get("eplb") == "True" else 0
    found = [
        Finding(
            code="SPECULATIVE_TOKENS",
            sentence="iterations with draft tokens: rows that may be rejected count as logical tokens",
            num=drafts,
            examples=(),
        ),
        Finding(
            code="PREEMPTED_REQUESTS",
            sentence="iterations that compute again what a preempted request had",
            num=resumed,
            examples=(),
        ),
        Finding(
            code="EXPERTS_MOVE",
            sentence="iterations under expert rebalancing: expert_map is the one at the start, ids may be physical",
            num=moving,
            examples=(),
        ),
    ]
    return [one for one in found if one.num]
