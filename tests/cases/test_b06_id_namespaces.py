"""A kernel belongs to the operator of its launch call; correlations and external ids are different namespaces.

https://github.com/pytorch/pytorch/issues/124388
"""

from __future__ import annotations

from pathlib import Path

import pytest
from literal_bundle import EPOCH_NS, US, moegauge, write_bundle

from moegauge import errors
from moegauge.adapters.traces.kineto import parse_kineto
from moegauge.kernels.trace import Trace
from simulator import TraceBuilder


def cpu_op(trace: TraceBuilder, name: str, start_us: int, external_id: int) -> None:
    event = trace.host_scope(name, EPOCH_NS + start_us * US, 10 * US)
    event["cat"], event["args"] = "cpu_op", {"External id": external_id}


def launch(trace: TraceBuilder, start_us: int, *, correlation: int, external_id: int | None = None) -> None:
    trace.launch(EPOCH_NS + start_us * US, external_id=external_id)
    trace.events[-1]["args"]["correlation"] = correlation


def kernel(trace: TraceBuilder, start_us: int, *, correlation: int, device: int = 0, name: str = "k") -> None:
    trace.device = device
    trace.kernel(name, EPOCH_NS + start_us * US, 5 * US, correlation=correlation)


def owners(trace: Trace) -> list[str]:
    """Operator of each kernel, through its launch call."""
    return [trace.names[trace.launches.owner[index]] for index in trace.ops.launch]


def processes(trace: Trace) -> list[int]:
    """Process of each kernel, through its launch call."""
    return trace.launches.process[trace.ops.launch].tolist()


def test_a_kernel_goes_to_the_operator_of_its_launch_call_not_to_an_equal_external_id() -> None:
    trace = TraceBuilder()
    cpu_op(trace, "aten::mm", 0, 23)
    cpu_op(trace, "moe", 20, 40)
    launch(trace, 22, correlation=23, external_id=40)
    kernel(trace, 30, correlation=23, name="fused_moe_kernel")
    found = parse_kineto(trace.data(), source="trace.json")
    assert owners(found) == ["moe"]
    assert found.launches.correlation.tolist() == [23]


def test_an_external_id_of_another_process_is_not_taken() -> None:
    trace = TraceBuilder(pid=1)
    cpu_op(trace, "aten::mm", 0, 40)
    trace.pid = 2
    cpu_op(trace, "moe", 0, 40)
    launch(trace, 2, correlation=23, external_id=40)
    kernel(trace, 30, correlation=23)
    assert owners(parse_kineto(trace.data(), source="trace.json")) == ["moe"]


def two_processes(*, devices: tuple[int, int]) -> TraceBuilder:
    """Two processes that both use correlation 7; each is known to use a device by another launch of its own."""
    trace = TraceBuilder()
    for number, (pid, device) in enumerate(zip((1, 2), devices, strict=True)):
        trace.pid = pid
        launch(trace, number, correlation=100 + number)
        kernel(trace, 10 + 10 * number, correlation=100 + number, device=device)
        launch(trace, 2 + number, correlation=7)
        kernel(trace, 100 + 10 * number, correlation=7, device=device)
    return trace


def test_a_correlation_of_two_processes_is_separated_by_their_devices() -> None:
    found = parse_kineto(two_processes(devices=(0, 1)).data(), source="trace.json")
    assert found.ops.device.tolist() == [0, 0, 1, 1]
    assert processes(found) == [0, 0, 1, 1]


def test_a_correlation_of_two_processes_on_one_device_is_refused() -> None:
    with pytest.raises(errors.Ambiguous, match="correlation 7 on 2 launch calls"):
        parse_kineto(two_processes(devices=(0, 0)).data(), source="trace.json")


def test_a_process_whose_device_is_unknown_is_not_ruled_out() -> None:
    trace = TraceBuilder(pid=1)
    launch(trace, 0, correlation=100)
    kernel(trace, 10, correlation=100)
    launch(trace, 1, correlation=7)
    trace.pid = 2
    launch(trace, 2, correlation=7)
    kernel(trace, 100, correlation=7)
    with pytest.raises(errors.Ambiguous, match="correlation 7 on 2 launch calls"):
        parse_kineto(trace.data(), source="trace.json")


def test_the_command_line_names_the_shared_correlation_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [[0, 1]])]],
        traces=[two_processes(devices=(0, 0))],
    )
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture")
    assert refused.status == 2
    assert "AMBIGUOUS" in refused.err
    assert "correlation 7 on 2 launch calls" in refused.err
    assert not (tmp_path / "capture").exists()
