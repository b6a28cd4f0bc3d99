"""The devices that torch drives, as far as a lane needs them: identity, events, graphs, launches, throttling.

Reading an identity touches no device and imports no torch; everything else is done on an open one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from moegauge import errors
from moegauge.adapters.devices import cpu
from moegauge.gate.ports import DeviceFailure
from moegauge.records.packet import DeviceIdentity

Run = Callable[[], None]


class Backend(Protocol):
    """One kind of device."""

    device: str
    """torch's name of it."""

    def identity(self) -> DeviceIdentity:
        """Of the one visible device; versions and libraries of the driver and torch. Touches no device."""
        ...

    def open(self, uuid: str) -> None:
        """Begin to use the device, and refuse another one than identified."""
        ...

    def elapsed_ns(self, run: Run) -> int:
        """Device time of a run, between two events, from an idle device on."""
        ...

    def captured(self, run: Run) -> Run:
        """A graph of a run, to be replayed."""
        ...

    def launched(self, run: Run) -> list[str]:
        """Names of the kernels that a profiler saw during a run; copies and fills of memory are none."""
        ...

    def under_profiler(self, run: Run) -> None:
        """Run, with an outer profiler switched on for just that long."""
        ...

    def throttle(self) -> str | None:
        """Why the device runs slower than it could, ``none``, or None where it cannot say."""
        ...


class CpuBackend:
    """The host processor, on one thread; a launch is an operator that is called from outside any other."""

    device = "cpu"

    def identity(self) -> DeviceIdentity:
        """The machine."""
        machine = Path("/etc/machine-id")
        known = machine.read_bytes() if machine.is_file() else b""
        return DeviceIdentity(
            uuid=f"CPU-{hashlib.sha256(known + platform.node().encode()).hexdigest()[:32]}",
            bus_id="processor 0",
            model=cpu.model_name(),
            versions={"torch": importlib.metadata.version("torch"), "kernel": platform.release()},
            libraries={},
        )

    def open(self, uuid: str) -> None:
        """One thread."""
        import torch  # noqa: PLC0415 - the first device action

        del uuid
        torch.set_num_threads(1)

    def elapsed_ns(self, run: Run) -> int:
        """Processor time of this thread: time in which it had no processor is not device time."""
        start = time.thread_time_ns()
        run()
        return time.thread_time_ns() - start

    def captured(self, run: Run) -> Run:
        """There are no graphs.

        Raises:
            MisuseError: always.
        """
        raise errors.MisuseError(
            where="timing.launch_mode",
            expected="eager, on a processor",
            found="graph",
            remedy="Register launch_mode eager.",
        )

    def launched(self, run: Run) -> list[str]:
        """Operators, by torch's profiler."""
        import torch  # noqa: PLC0415

        profiler = torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], acc_events=True) as seen:
            run()
        return [one.name for one in seen.events() if one.cpu_parent is None and one.name.startswith("aten::")]

    def under_profiler(self, run: Run) -> None:
        """There is no outer profiler."""
        run()

    def throttle(self) -> str | None:
        """Not readable."""
        return None


class CudaBackend:
    """The one visible NVIDIA GPU."""

    device = "cuda"

    def identity(self) -> DeviceIdentity:
        """As NVML reads it, which makes no context on the device."""
        import pynvml  # noqa: PLC0415 - a driver's library is loaded where it is asked for

        pynvml.nvmlInit()
        try:
            handle = _visible_handle(pynvml)
            return DeviceIdentity(
                uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                bus_id=_text(pynvml.nvmlDeviceGetPciInfo(handle).busId),
                model=_text(pynvml.nvmlDeviceGetName(handle)),
                versions={
                    "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
                    "cuda-driver": str(pynvml.nvmlSystemGetCudaDriverVersion_v2()),
                    "torch": importlib.metadata.version("torch"),
                    "kernel": platform.release(),
                },
                libraries={},
            )
        finally:
            pynvml.nvmlShutdown()

    def open(self, uuid: str) -> None:
        """Refuse another device than the identified one.

        Raises:
            DeviceFailure
        """
        from moegauge.adapters.devices import cuda  # noqa: PLC0415 - imports torch

        found = cuda.device_uuid()
        if found != uuid:
            raise DeviceFailure(f"torch opened device {found}; {uuid} was identified")

    def elapsed_ns(self, run: Run) -> int:
        """Between two CUDA events; the device is idle before the first."""
        import torch  # noqa: PLC0415

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        elapsed_ms: float = start.elapsed_time(end)
        return round(elapsed_ms * 1_000_000)

    def captured(self, run: Run) -> Run:
        """A CUDA graph; the run has gone before on a side stream, as capture asks."""
        import torch  # noqa: PLC0415

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        replay: Run = graph.replay
        return replay

    def launched(self, run: Run) -> list[str]:
        """Kernel rows of torch's profiler. A process's first session may record none, so one goes before."""
        _kineto_kernels(run)
        return _kineto_kernels(run)

    def under_profiler(self, run: Run) -> None:
        """Between cudaProfilerStart and cudaProfilerStop."""
        import torch  # noqa: PLC0415

        torch.cuda.synchronize()
        with torch.cuda.profiler.profile():
            run()
            torch.cuda.synchronize()

    def throttle(self) -> str | None:
        """As NVML says right now."""
        from moegauge.adapters.devices import cuda  # noqa: PLC0415

        return cuda.surroundings()["throttle"]


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": CpuBackend, "cuda": CudaBackend}


@contextmanager
def driver_errors() -> Iterator[None]:
    """What torch raises for its device becomes a DeviceFailure; other faults stay what they are."""
    try:
        yield
    except RuntimeError as error:
        if "CUDA" not in str(error) and type(error).__name__ not in {"AcceleratorError", "OutOfMemoryError"}:
            raise
        raise DeviceFailure(str(error).strip().splitlines()[0]) from error


def _kineto_kernels(run: Run) -> list[str]:
    import torch  # noqa: PLC0415

    from moegauge.adapters.traces.kineto import read_kineto  # noqa: PLC0415
    from moegauge.kernels.trace import OpKind  # noqa: PLC0415

    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="moegauge-launches-") as scratch:
        path = Path(scratch) / "trace.json"
        seen.export_chrome_trace(str(path))
        try:
            trace = read_kineto(path)
        except errors.Incomplete:
            return []  # launch calls and no kernel record; whoever counts says so
    kernels = trace.ops.kind == OpKind.KERNEL
    return [trace.names[i] for i in trace.ops.name[kernels]]


def _visible_handle(pynvml: object) -> object:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    count = pynvml.nvmlDeviceGetCount()  # type: ignore[attr-defined]
    if visible.startswith("GPU-") and "," not in visible:
        return pynvml.nvmlDeviceGetHandleByUUID(visible)  # type: ignore[attr-defined]
    if visible.isdigit() and int(visible) < count:
        return pynvml.nvmlDeviceGetHandleByIndex(int(visible))  # type: ignore[attr-defined]
    if not visible and count == 1:
        return pynvml.nvmlDeviceGetHandleByIndex(0)  # type: ignore[attr-defined]
    raise errors.MisuseError(
        where="CUDA_VISIBLE_DEVICES",
        expected="one visible device",
        found=f"{visible or 'unset'}, {count} devices",
        remedy="Name one device in code.environment of the registration.",
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
