"""The device half: the two arms, on the host processor through torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from moegauge.adapters.counters.torch_profiler import profile_bytes
from moegauge.adapters.devices.torch_lane import Tensors, TorchDevice, TorchDevices
from moegauge.records.observation import ArmName
from moegauge.records.registration import Registration
from scale_add.host import SCALES, SHAPE


class ScaleAddArms:
    """Both arms write one buffer, which is the boundary."""

    input_dtypes: Mapping[str, str] = {"routed": "bfloat16", "shared": "bfloat16"}

    def buffers(self, subject: str, arm: ArmName) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """The final tensor."""
        del subject, arm
        return {"final": ("bfloat16", SHAPE)}

    def call(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> None:
        """One call of an arm."""
        from scale_add import candidate, incumbent  # noqa: PLC0415 - both import torch

        module: Any = incumbent if arm == "incumbent" else candidate
        module.run(inputs["routed"], inputs["shared"], SCALES[subject], buffers["final"])

    def boundaries(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> Tensors:
        """What was written."""
        del subject, arm, inputs
        return {"final": buffers["final"]}

    def files(self) -> Mapping[str, Path]:
        """torch's library holds the operators; there is no other."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """None besides those of torch and the kernel."""
        return {}


class HostProfiler:
    """Operators that were called from outside any other, and the memory each allocated."""

    def __init__(self, device: TorchDevice, registration: Registration) -> None:
        del registration
        self.device = device

    def profile(self, subject: str, arm: ArmName, *, num_cycles: int, cache_control: str) -> bytes:
        """Profile whole cycles; nothing is done to caches."""
        del cache_control
        import torch  # noqa: PLC0415

        inputs = {name: np.zeros(SHAPE, dtype=np.uint16) for name in ("routed", "shared")}
        self.device.place(subject, [inputs])
        self.device.run_arm(subject, arm, num_cycles=1, first_fixture=0)  # fills the slots
        profiler = torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
            self.device.run_arm(subject, arm, num_cycles=num_cycles, first_fixture=0)
        launches = [
            (event.name, {"allocated_bytes": event.cpu_memory_usage})
            for event in sorted(seen.events(), key=lambda event: event.time_range.start)
            if event.cpu_parent is None and event.name.startswith("aten::")
        ]
        return profile_bytes(launches, {"allocated_bytes": "byte"})


DEVICES = TorchDevices(arms=ScaleAddArms(), backend="cpu", counted=HostProfiler)
