"""Traces that the recorder exports in pieces, without what nobody reads, say what one whole trace would have said."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from moegauge import errors
from moegauge.adapters.traces.joined import joined
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.adapters.traces.slim import write_slim
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.kernels.trace import Trace
from moegauge.records.recording import IterationFrame, ProfiledRange
from recordings import end, head, write_recording
from simulator import NAMES, Recording, TraceBuilder, exact_json


def pieces(recording: Recording, last_of_first: int) -> list[TraceBuilder]:
    """The serving trace as two traces: iterations up to one, and the rest."""
    whole = recording.serving(0)
    name = f"iteration I{last_of_first + 1}"
    cut = next(event["ts"] for event in whole.events if event["name"] == name)
    first = [event for event in whole.events if event["ts"] < cut]
    rest = [event for event in whole.events if event["ts"] >= cut]
    return [TraceBuilder(events=events) for events in (first, rest)]


def live(folder: Path, recording: Recording, traces: list[TraceBuilder]) -> CaptureFolder:
    """A recording on the device's clock with these traces, as a capture."""
    frames = []
    for step in recording.steps:
        ids = np.stack([recording.topk_ids(step["iter"], layer, step["padded"]) for layer in recording.layers])
        frames.append(
            IterationFrame(
                number=step["iter"], logical_tokens=step["tokens"], executed_rows=step["padded"],
                launch_mode="graph" if step["graph"] else "eager", requests=(), num_draft_tokens=0,
                start_ns=1_000 * step["iter"], end_ns=1_000 * step["iter"] + 500, ids_type="int16",
                topk_ids=ids.astype("<i2").tobytes(), topk_weights=np.full(ids.shape, 0.5, dtype="<f4").tobytes(),
                intervals_ns=None, timed_layers=(), kernel_config=None,
            )
        )  # fmt: skip
    names = [f"rank0.trace-{number}.json.gz" for number in range(len(traces))]
    ranges = [ProfiledRange(first=0, last=0, file=name) for name in names]
    first = head(
        clock="device", layers=recording.layers, config=recording.meta()["config"], kernel_kind="vllm_triton_moe",
        experts_class="TritonExperts",
    )  # fmt: skip
    source = write_recording(folder / "recording", [first, *frames, *ranges, end(len(frames))])
    for name, trace in zip(names, traces, strict=True):
        (source / name).write_bytes(gzip.compress(trace.data()))
    return import_serving(source, folder / "capture")


def test_a_capture_of_two_pieces_is_that_of_one_trace(tmp_path: Path, recording: Recording) -> None:
    one = live(tmp_path / "one", recording, [recording.serving(0)])
    two = live(tmp_path / "two", recording, pieces(recording, 0))
    assert one.record.coverage == two.record.coverage
    assert one.record.coverage.num_iterations_closed == 3
    expected = sum(recording.busy_ns(step["iter"], layer) for step in recording.steps for layer in recording.layers)
    assert two.record.coverage.busy_ns == expected
    assert one.record.conditions == two.record.conditions
    assert_frame_equal(one.invocations, two.invocations)
    assert_frame_equal(one.iterations, two.iterations)
    order = ["start_ns", "stream", "name"]
    assert_frame_equal(one.intervals.drop("op").sort(order), two.intervals.drop("op").sort(order))


def test_a_capture_of_one_piece_alone_leaves_the_other_iterations_open(tmp_path: Path, recording: Recording) -> None:
    capture = live(tmp_path, recording, pieces(recording, 0)[:1])
    assert capture.iterations.select("iteration", "status").rows() == [
        (0, "COMPLETE"), (1, "INCOMPLETE"), (2, "INCOMPLETE"),
    ]  # fmt: skip


def told(trace: Trace) -> dict[str, list[tuple[object, ...]]]:
    """What a trace says, without its own numbering of names, launches and places."""
    names, launches = trace.names, trace.launches
    launched = [(names[n], int(start)) for n, start in zip(launches.name, launches.start_ns, strict=True)]
    ops = trace.ops
    columns = (ops.kind, ops.device, ops.stream, ops.start_ns, ops.end_ns)
    plain = list(zip(*(column.tolist() for column in columns), strict=True))
    links = zip(ops.name.tolist(), ops.launch.tolist(), strict=True)
    device, host = trace.device_scopes, trace.host_scopes
    return {
        "ops": sorted(
            (*row, names[n], launched[k] if k >= 0 else ()) for row, (n, k) in zip(plain, links, strict=True)
        ),
        "launches": sorted((*launched[k], int(c)) for k, c in enumerate(launches.correlation)),
        "device scopes": sorted(
            (names[n], trace.streams[p], int(a), int(b))
            for n, p, a, b in zip(device.name, device.place, device.start_ns, device.end_ns, strict=True)
        ),
        "host scopes": sorted(
            (names[n], int(a), int(b)) for n, a, b in zip(host.name, host.start_ns, host.end_ns, strict=True)
        ),
        "invalid": sorted((names[n], raw) for n, raw in zip(trace.invalid.name, trace.invalid.raw, strict=True)),
    }


def test_joined_traces_say_all_that_one_trace_says(recording: Recording) -> None:
    parts = pieces(recording, 1)
    for trace, stream in zip(parts, (9, 3), strict=True):
        begin = trace.events[0]["ts"]
        trace.device_scope("elsewhere", int(begin * 1000) + 7, 5, stream=stream)
        trace.kernel(NAMES["norm"], 0, 5, stream=stream)
        trace.kernel(NAMES["norm"], int(begin * 1000) + 8, 5, stream=stream)
    whole = TraceBuilder(events=[event for trace in parts for event in trace.events])
    read = [parse_kineto(trace.data(), source="piece") for trace in parts]
    one, two = parse_kineto(whole.data(), source="whole"), joined(read)
    assert told(two) == told(one)
    assert len(told(two)["invalid"]) == 2
    assert (two.rank, two.world_size, two.facts) == (one.rank, one.world_size, one.facts)


def test_one_trace_alone_is_itself(recording: Recording) -> None:
    trace = parse_kineto(recording.serving(0).data(), source="one")
    assert joined([trace]) is trace


@pytest.mark.parametrize("changes", [{"rank": 1}, {"world_size": 2}, {"head": {"cuda_driver_version": 12080}}])
def test_traces_of_two_processes_are_not_joined(recording: Recording, changes: dict[str, object]) -> None:
    first, rest = pieces(recording, 0)
    other = TraceBuilder(events=rest.events, **changes)  # type: ignore[arg-type]
    read = [parse_kineto(trace.data(), source="piece") for trace in (first, other)]
    with pytest.raises(errors.Inconsistent) as caught:
        joined(read)
    assert caught.value.found == "another rank, device or version"


KEPT = ("kernel", "gpu_memcpy", "gpu_memset", "user_annotation", "gpu_user_annotation")


def odd_trace() -> tuple[bytes, list[bytes], list[bytes]]:
    """A trace in an unusual way of writing, its events that have to stay, and those that may go."""
    stay = [b'{ "ph" : "M","name":"process_name", "pid":1, "args":{"name":"p\\u00e4"} }']
    for number, category in enumerate(KEPT):
        stay.append(
            b'{"ph":"X",  "cat":"%s","name":"n\\"%d","pid":0,"tid":7,"ts":5108314524917.9620,"dur":1.50,'
            b'"args":{"correlation": %d ,"stream":7,"device":0,"External id":1e2}}'
            % (category.encode(), number, number)
        )
    for name in ("cudaLaunchKernel", "cudaGraphLaunch", "cuLaunchKernelEx"):
        category = "cuda_driver" if name.startswith("cuL") else "cuda_runtime"
        stay.append(f'{{"ph": "X", "cat": "{category}", "name": "{name}", "ts": 1.001, "dur": 2}}'.encode())
    go = [
        b'{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1.0,"dur":2}',
        b'{"ph":"X","cat":"python_function","name":"forward","ts":1.0,"dur":2}',
        b'{"ph":"X","cat":"cuda_runtime","name":"cudaEventRecord","ts":1.0,"dur":2}',
        b'{"ph":"f","cat":"ac2g","name":"ac2g","id":4,"ts":1.0}',
    ]
    events = [event for pair in zip(stay, [*go, *go, *go], strict=False) for event in pair]
    whole = b'{"schemaVersion": 1, "deviceProperties":[ {"id":0} ], "traceEvents":[' + b",".join(events)
    return whole + b'], "traceName": "/some/place"}', stay, go


def test_what_is_kept_of_a_trace_is_kept_byte_for_byte_and_in_order(tmp_path: Path) -> None:
    data, stay, go = odd_trace()
    (tmp_path / "whole.json").write_bytes(data)
    write_slim(tmp_path / "whole.json", tmp_path / "slim.json.gz")
    slim = gzip.decompress((tmp_path / "slim.json.gz").read_bytes())
    places = [slim.find(event) for event in stay]
    assert -1 not in places
    assert places == sorted(places)
    assert not [event for event in go if event in slim]
    assert len(json.loads(slim)["traceEvents"]) == len(stay) == 9
    assert b'"deviceProperties":[ {"id":0} ]' in slim
    assert b"/some/place" not in slim
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slim.json.gz", "whole.json"]


def test_a_slim_trace_reads_as_the_whole_one(tmp_path: Path, recording: Recording) -> None:
    trace = recording.serving(0)
    events = [exact_json(event) for event in trace.events]
    noise = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":700,"tid":1,"ts":1.5,"dur":2,"args":{}}'
    whole = re.sub(rb'("traceEvents": ?\[)', lambda match: match[1] + (noise + b",") * 5, trace.data())
    (tmp_path / "whole.json").write_bytes(whole)
    write_slim(tmp_path / "whole.json", tmp_path / "slim.json.gz")
    slim = (tmp_path / "slim.json.gz").read_bytes()
    text = gzip.decompress(slim)
    assert all(event in text for event in events)
    assert b"aten::mm" not in text
    assert told(parse_kineto(slim, source="slim")) == told(parse_kineto(whole, source="whole"))
