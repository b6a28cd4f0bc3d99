"""The device engine over a backend that keeps a diary: slots, graphs, launches, poison, immutability, any format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lane_builder import registration
from moegauge import errors
from moegauge.adapters.devices.torch_backends import CpuBackend
from moegauge.adapters.devices.torch_lane import TorchDevice, TorchDevices, words_of
from moegauge.gate.ports import DeviceFailure
from moegauge.records.observation import ArmName

torch = pytest.importorskip("torch")


class Diary(CpuBackend):
    """A device with graphs: a captured run is replayed, and its kernels are counted, without the host's calls."""

    def __init__(self, arms: AddOne) -> None:
        self.arms, self.captures, self.profiled = arms, 0, 0

    def elapsed_ns(self, run: Callable[[], None]) -> int:
        before = len(self.arms.launched)
        run()
        return 1000 * (len(self.arms.launched) - before)

    def captured(self, run: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        return run

    def launched(self, run: Callable[[], None]) -> list[str]:
        before = len(self.arms.launched)
        run()
        return self.arms.launched[before:]

    def under_profiler(self, run: Callable[[], None]) -> None:
        self.profiled += 1
        run()


class AddOne:
    """out = x + 1 in a format of choice; the incumbent takes two launches."""

    def __init__(self, dtype: str = "bfloat16", *, kernel: str = "scale_add", greedy: bool = False) -> None:
        self.input_dtypes: Mapping[str, str] = {"x": dtype}
        self.dtype, self.kernel, self.greedy = dtype, kernel, greedy
        self.launched: list[str] = []

    def buffers(self, subject: str, arm: ArmName) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        return {"out": (self.dtype, (2, 2))}

    def call(self, subject: str, arm: ArmName, inputs: Mapping[str, Any], buffers: Mapping[str, Any]) -> None:
        self.launched += ["scale", "add"] if arm == "incumbent" else [self.kernel]
        buffers["out"].copy_(inputs["x"])
        if self.greedy:
            inputs["x"].zero_()

    def boundaries(
        self, subject: str, arm: ArmName, inputs: Mapping[str, Any], buffers: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return {"final": buffers["out"]}

    def files(self) -> Mapping[str, Path]:
        return {"arms": Path(__file__)}

    def versions(self) -> Mapping[str, str]:
        return {"arms": "1"}


def fixture(seed: int, dtype: type[np.generic] = np.uint16) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": (np.arange(4, dtype=dtype).reshape(2, 2) + dtype(seed))}  # type: ignore[call-arg]


def opened(arms: AddOne, **changes: Any) -> tuple[TorchDevice, Diary]:
    backend = Diary(arms)
    return TorchDevice(registration(**changes), arms, backend), backend


GRAPH = {"subjects__0__timing__launch_mode": "graph", "deviations": ["a cycle is replayed as one graph"]}


def test_a_cycle_of_47_calls_is_captured_once_an_arm_and_replayed() -> None:
    arms = AddOne()
    device, backend = opened(arms, **GRAPH)
    device.place("scale-add", [fixture(i) for i in range(5)])
    assert backend.captures == 2
    sample = device.run_arm("scale-add", "incumbent", num_cycles=3, first_fixture=0)
    assert (sample.elapsed_ns, sample.num_launches) == (3 * 94 * 1000, 3 * 94)
    assert device.run_arm("scale-add", "candidate", num_cycles=3, first_fixture=0).num_launches == 3 * 47
    assert backend.captures == 2


def test_eager_timing_captures_nothing() -> None:
    device, backend = opened(AddOne())
    device.place("scale-add", [fixture(0)])
    assert backend.captures == 0


def test_slot_i_has_fixture_first_plus_i_and_each_block_begins_on_poison() -> None:
    device, _ = opened(AddOne())
    device.place("scale-add", [fixture(10 * i) for i in range(5)])
    device.run_arm("scale-add", "candidate", num_cycles=1, first_fixture=3)
    placed = device._placed
    assert placed is not None
    assert [int(words_of(one["out"])[0, 0]) for one in placed.buffers["candidate"][:4]] == [30, 40, 0, 10]
    assert {int(word) for word in words_of(placed.buffers["incumbent"][46]["out"]).flat} == {0x7FC1}  # not run yet


def test_a_profile_without_kernels_is_no_count_of_0() -> None:
    arms = AddOne()
    device, backend = opened(arms)
    backend.launched = lambda run: []  # type: ignore[method-assign]
    with pytest.raises(DeviceFailure, match="no kernel records; that is not 0 launches"):
        device.place("scale-add", [fixture(0)])


def test_a_profile_without_the_registered_kernel_says_what_was_seen() -> None:
    device, _ = opened(AddOne(kernel="other"))
    with pytest.raises(DeviceFailure, match="candidate: no kernel is called scale_add; seen: other"):
        device.place("scale-add", [fixture(0)])


def test_a_profile_with_one_of_two_registered_kernels_says_which_is_missing() -> None:
    device, backend = opened(AddOne())
    launched = backend.launched
    backend.launched = lambda run: ["scale" for _ in launched(run)]  # type: ignore[method-assign]
    with pytest.raises(DeviceFailure, match="incumbent: no kernel is called add; seen: scale"):
        device.place("scale-add", [fixture(0)])


def test_a_graph_that_writes_other_words_than_a_call_ends_the_run_with_its_block() -> None:
    device, backend = opened(AddOne(), **GRAPH)
    backend.captured = lambda run: lambda: None  # type: ignore[method-assign]
    backend.launched = lambda run: ["scale", "add", "scale_add"]  # type: ignore[method-assign]
    device.place("scale-add", [fixture(i) for i in range(5)])
    device.run_arm("scale-add", "candidate", num_cycles=1, first_fixture=0)
    words = "scale-add, candidate, slot 0: a timed cycle wrote other words than a call"
    with pytest.raises(DeviceFailure, match=words):
        device.run_arm("scale-add", "candidate", num_cycles=1, first_fixture=1)


def test_the_words_of_the_last_block_are_held_against_calls_too() -> None:
    device, _ = opened(AddOne())
    device.place("scale-add", [fixture(i) for i in range(5)])
    device.run_arm("scale-add", "incumbent", num_cycles=1, first_fixture=0)
    assert device._placed is not None
    device._placed.buffers["incumbent"][46]["out"].zero_()
    with pytest.raises(DeviceFailure, match="incumbent, slot 46: a timed cycle wrote other words than a call"):
        device.close()


def test_a_changed_input_is_seen() -> None:
    device, _ = opened(AddOne(greedy=True))
    out = device.outputs("scale-add", "candidate", "random/0", fixture(7), 0x7FC1)
    assert (int(out.inputs_before["x"][0, 0]), int(out.inputs_after["x"][0, 0])) == (7, 0)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("bfloat16", np.uint16),
        ("float16", np.uint16),
        ("float32", np.uint32),
        ("float64", np.uint64),
        ("float8_e4m3fn", np.uint8),
        ("int32", np.uint32),
        ("int64", np.uint64),
    ],
)
def test_words_of_every_format_go_to_the_device_and_back(dtype: str, words: type[np.generic]) -> None:
    device, _ = opened(AddOne(dtype))
    given = fixture(250 if words is np.uint8 else 0x7FC0, words)
    out = device.outputs("scale-add", "incumbent", "random/0", given, 0xA5A5)
    assert out.words["final"].dtype == words
    assert out.words["final"].tolist() == given["x"].tolist()
    assert out.inputs_before["x"].tolist() == given["x"].tolist()


def test_a_profiled_arm_runs_eagerly_and_only_between_start_and_stop() -> None:
    arms = AddOne()
    device, backend = opened(arms, **GRAPH)
    device.run_profiled("scale-add", "incumbent", [fixture(0)], num_cycles=2)
    assert (backend.captures, backend.profiled, len(arms.launched)) == (0, 1, 94 * 3)  # one cycle compiles


def test_a_graph_on_a_processor_is_refused() -> None:
    with pytest.raises(errors.MisuseError, match="eager, on a processor"):
        CpuBackend().captured(lambda: None)


def test_an_identity_holds_the_lanes_own_files_and_versions() -> None:
    found = TorchDevices(arms=AddOne(), backend="cpu").identify(registration(), "card0")
    assert found.uuid.startswith("CPU-")
    assert (found.versions["arms"], "arms" in found.libraries) == ("1", True)


def test_counters_without_a_command_or_a_profiler_are_refused() -> None:
    with pytest.raises(errors.MisuseError, match="a command that profiles, or a profiler of the lane's own"):
        TorchDevices(arms=AddOne(), backend="cpu").counters(registration(), "card0")
