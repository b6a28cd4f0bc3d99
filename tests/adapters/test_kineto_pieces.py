"""A trace read piece by piece says what it says when it is decoded as a whole, whatever way it is written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moegauge import errors
from moegauge.adapters.traces import kineto, kineto_pieces
from moegauge.adapters.traces.kineto import parse_kineto, read_kineto
from moegauge.adapters.traces.kineto_json import Event, KinetoFile
from moegauge.adapters.traces.kineto_pieces import decode_pieces
from moegauge.adapters.traces.kineto_times import NO_NUMBER, exact_ns
from moegauge.kernels.trace import Trace
from simulator import NAMES, Recording, exact_json

TRICKY = 'a},{"b}, {"c\\"},\n  {d'
SMALL = 64


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few events."""
    monkeypatch.setattr(kineto_pieces, "PIECE_BYTES", SMALL)
    monkeypatch.setattr(kineto, "PIECE_BYTES", SMALL)


def whole(monkeypatch: pytest.MonkeyPatch, data: bytes) -> Trace:
    """The trace as one decode gives it."""
    with monkeypatch.context() as patch:
        patch.setattr(kineto, "decode_pieces", lambda text, take: None)
        return parse_kineto(data, source="trace.json")


def same(one: Trace, two: Trace) -> bool:
    """Whether two traces are equal in every column."""
    columns = [
        (getattr(getattr(one, part), name), getattr(getattr(two, part), name))
        for part in ("ops", "invalid", "launches", "host_scopes", "device_scopes")
        for name in getattr(one, part).__dataclass_fields__
        if name != "raw"
    ]
    facts = [(t.names, t.streams, t.findings, t.facts, t.rank, t.world_size, t.invalid.raw) for t in (one, two)]
    return facts[0] == facts[1] and all(np.array_equal(a, b) for a, b in columns)


def laid_out(recording: Recording, separator: str) -> bytes:
    """A serving trace with host operators and an awkward name, its events put one behind the other by a separator."""
    trace = recording.serving(0)
    for number in range(40):
        trace.launch(5_108_314_524_000_000 + number, external_id=number % 7)
        event = trace.host_scope(TRICKY, 5_108_314_524_000_000 + number, 5)
        event["cat"], event["args"] = "cpu_op", {"External id": number % 5, "Call stack": [{"a": 1}, {"b": 2}]}
    trace.kernel(NAMES["norm"], 0, 5)
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 4}}
    texts = separator.join(exact_json(event).decode() for event in trace.events)
    tail = '"deviceProperties": [{"id": 0, "name": "a"},{"id": 1, "name": "b"}], "traceName": "x"}'
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{texts}\n  ], {tail}'.encode()


@pytest.mark.parametrize("separator", [",\n  ", ",\n", ", ", ",", " ,\t"])
@pytest.mark.usefixtures("small_pieces")
def test_a_trace_in_pieces_says_what_the_whole_one_says(
    separator: str, recording: Recording, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = laid_out(recording, separator)
    expected = whole(monkeypatch, data)
    assert (expected.rank, expected.facts["device_model"], len(expected.invalid.name)) == (3, "a", 1)
    assert same(parse_kineto(data, source="trace.json"), expected)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(data))
    found = read_kineto(tmp_path / "trace.json.gz")
    assert np.array_equal(found.ops.start_ns, expected.ops.start_ns)


def read_in_pieces(data: bytes, size: int = 16) -> tuple[KinetoFile | None, list[str | None], int]:
    """The file, the names of its events, and in how many times they were taken."""
    taken: list[list[str | None]] = []
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    file = decode_pieces(pieces, lambda events: taken.append([event.name for event in events]))
    return file, [name for names in taken for name in names], len(taken)


@pytest.mark.usefixtures("small_pieces")
def test_events_are_taken_in_order_and_not_all_at_once() -> None:
    events = [{"ph": "X", "name": f"{number}"} for number in range(50)]
    data = json.dumps({"traceEvents": events, "distributedInfo": {"rank": 2}}).encode()
    file, names, num_times = read_in_pieces(data)
    assert names == [f"{number}" for number in range(50)]
    assert num_times > 10
    assert file is not None
    assert file.trace_events == []
    assert file.distributed is not None
    assert file.distributed.rank == 2


@pytest.mark.parametrize(
    "data",
    [
        b'{"meta": {"traceEvents": [{"name": "a"},{"name": "%s"}]}, "traceEvents": [{"name": "c"}]}' % (b"b" * 200),
        b'{"traceEvents": [{"name": "a"},{"name": "%s"}], "traceEvents": [{"name": "c"}]}' % (b"b" * 200),
        b'{"traceEvents": [{"name": "a"},{"name": "%s"}' % (b"b" * 200),
        b'{"traceEvents": [{"name": "a"},{"name": "%s"}]} trailing' % (b"b" * 200),
        b'{"traceEvents": [{"name": "a"},{"name": 5},{"name": "%s"}]}' % (b"b" * 200),
        b'{"traceEvents": [{"name": "a"},]}',
        b'{"traceEvents": {"a": [{"name": "a"},{"name": "b"}]}}',
        b'[{"name": "a"},{"name": "b"}]',
        b"",
    ],
    ids=["nested", "twice", "cut", "trailing", "wrong type", "comma", "no list", "no object", "empty"],
)
@pytest.mark.usefixtures("small_pieces")
def test_what_is_no_plain_trace_is_left_to_the_whole_decode(data: bytes) -> None:
    assert read_in_pieces(data)[0] is None


events_ = st.lists(
    st.fixed_dictionaries(
        {"ph": st.just("X"), "name": st.text(st.sampled_from('ab{}[],": \\\n\u00e4'), max_size=12)},
        optional={"args": st.just({"x": [{"a": 1}, {"b": "}, {"}]})},
    ),
    max_size=12,
)


@given(events_, st.sampled_from([(",", ":"), (", ", ": ")]), st.integers(1, 40), st.integers(8, 80))
def test_any_events_are_taken_once_each_or_not_at_all(
    events: list[dict[str, Any]], separators: tuple[str, str], size: int, piece_bytes: int
) -> None:
    data = json.dumps(
        {"a": {"b": [1]}, "traceEvents": events, "z": [{"q": 1}, {"q": 2}]}, separators=separators
    ).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_pieces, "PIECE_BYTES", piece_bytes)
        file, names, _ = read_in_pieces(data, size)
    if file is not None:
        assert names == [event["name"] for event in events]


@pytest.mark.usefixtures("small_pieces")
def test_an_operation_without_a_stream_is_named_by_its_number_in_the_whole_file() -> None:
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"device": 0, "stream": 7}}] * 20
    events.append({"ph": "X", "cat": "kernel", "name": "odd", "ts": 1, "dur": 1, "args": {"device": 0}})
    with pytest.raises(errors.MalformedFile, match=r"event 20 \(odd\): no integer device and stream"):
        parse_kineto(json.dumps({"traceEvents": events}).encode(), source="trace.json")


TEXTS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**16), max_value=10**16, places=3).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["null", '"1.5"', "1e3", "1.0005", "2.0015", "[1,\n2]", "{}", "9223372036854775.807", "1e400"]),
)


@given(st.lists(TEXTS, max_size=8))
def test_a_column_of_times_is_exact(texts: list[str]) -> None:
    raws = [msgspec.Raw(text.encode()) for text in texts]
    ns, num_rounded = exact_ns(raws)
    expected = [literal_ns(text) for text in texts]
    assert ns.tolist() == [NO_NUMBER if one is None else one[0] for one in expected]
    assert num_rounded == sum(one is not None and one[1] for one in expected)


def literal_ns(text: str) -> tuple[int, bool] | None:
    """What Python's decimal arithmetic says."""
    try:
        value = Decimal(text) * 1000
    except ArithmeticError:
        return None
    if abs(value) >= 1 << 62:
        return None
    return round(value), round(value) != value


def test_times_as_kineto_writes_them_take_the_column_at_once() -> None:
    texts = [b"5167248423000.658", b"0.001", b"142517.609"]
    assert exact_ns([msgspec.Raw(text) for text in texts])[0].tolist() == [5167248423000658, 1, 142517609]
    assert exact_ns([])[0].tolist() == []


MEMORY = """
import resource, sys
from pathlib import Path
from moegauge.adapters.traces.kineto import read_kineto
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
read_kineto(Path(sys.argv[1]))
before = peak()
trace = read_kineto(Path(sys.argv[2]))
print(len(trace.ops), peak() - before)
"""


def test_a_trace_takes_less_memory_than_its_text(tmp_path: Path) -> None:
    line = (
        b'{"ph": "X", "cat": "%s", "name": "%s", "pid": 0, "tid": 7, "ts": %d.001, "dur": 1.000, "args": '
        b'{"device": 0, "stream": 7, "correlation": %d, "External id": %d, "grid": [64, 1, 1], "block": [128, 1, 1]}}'
    )
    sizes = {"small": 1_000, "large": 200_000}
    for name, num in sizes.items():
        kinds = (b"kernel", b"cuda_runtime", b"cpu_op", b"ac2g")
        lines = [line % (kinds[i % 4], b"k" * 90, 10**12 + i, i // 4, i // 4) for i in range(num)]
        (tmp_path / name).write_bytes(b'{"traceEvents": [\n' + b",\n".join(lines) + b"\n]}")
    command = [sys.executable, "-c", MEMORY, *(str(tmp_path / name) for name in sizes)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    num_ops, grown = map(int, ran.stdout.split())
    assert num_ops == 50_000
    assert grown < (tmp_path / "large").stat().st_size  # some 55 MB; decoded as a whole it is several times that


def test_events_are_not_tracked_by_the_garbage_collector() -> None:
    assert not Event.__struct_config__.gc
