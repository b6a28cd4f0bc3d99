"""The device half of the lane: both arms as torch tensors see them, for the gate's engine.

``CUDA`` runs the Triton kernels, ``CPU`` the same arithmetic in torch. ``XPU`` refuses: no runner for Intel cards was
ever tried. The incumbent gets its canonical route map; its scaled words are those that 2.5 times its routed words give,
since it stores none.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moegauge import errors
from moegauge.adapters.devices.torch_lane import TorchDevices
from moegauge.adapters.devices.torch_words import Tensors
from moegauge.gate.ports import CounterSource, Device
from moegauge.lanes.laguna_m8.host_halves import DIAGNOSTIC
from moegauge.lanes.laguna_m8.sequence import (
    FINAL,
    HIDDEN_SIZE,
    NUM_RANKS,
    NUM_ROWS,
    NUM_TOKENS,
    RANK_SUM,
    ROUTED,
    SCALED,
    TOP_K,
)
from moegauge.records.observation import ArmName
from moegauge.records.packet import DeviceIdentity
from moegauge.records.registration import Registration

_OUTPUT = ("bfloat16", (NUM_TOKENS, HIDDEN_SIZE))
_HERE = Path(__file__).parent
_TRITON_SOURCES = ("builds.py", "kernels.py", "launch.py")


@dataclass
class LagunaArms:
    """Both arms.

    Attributes:
        triton: whether the arms are the Triton kernels; else they are the arithmetic in torch.
    """

    triton: bool
    input_dtypes: Mapping[str, str] = field(
        default_factory=lambda: {
            "rows": "bfloat16",
            "weights": "float32",
            "shared": "bfloat16",
            "peers": "bfloat16",
            "rank": "int64",
        }
    )
    _route_map: Any = None

    def buffers(self, subject: str, arm: ArmName) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """The incumbent writes routed and out, the candidate out alone."""
        del subject
        return {"routed": _OUTPUT, "out": _OUTPUT} if arm == "incumbent" else {"out": _OUTPUT}

    def call(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> None:
        """Two launches, or one."""
        del subject
        kernels = self._kernels()
        if arm == "candidate":
            kernels.gather_finalize(buffers["out"], inputs["rows"], inputs["weights"], inputs["shared"])
            return
        route_map = self._canonical(inputs["rows"].device)
        kernels.moe_gather(buffers["routed"], inputs["rows"], inputs["weights"], route_map)
        kernels.scale_add(buffers["out"], inputs["shared"], buffers["routed"])

    def boundaries(self, subject: str, arm: ArmName, inputs: Tensors, buffers: Tensors) -> Tensors:
        """The words of every boundary; the candidate's routed and scaled ones are those of its diagnostic build."""
        del subject
        import torch  # noqa: PLC0415 - importing torch is a device action

        from moegauge.adapters.lanes.laguna_m8 import host  # noqa: PLC0415

        out = buffers["out"]
        if arm == "incumbent":
            routed, diagnostic = buffers["routed"], out
            scaled = host.rounded(routed.float() * 2.5)
        else:
            routed, scaled, diagnostic = (torch.full_like(out, float("nan")) for _ in range(3))
            self._kernels().gather_finalize_diagnostic(
                routed=routed,
                scaled=scaled,
                out=diagnostic,
                rows=inputs["rows"],
                weights=inputs["weights"],
                shared=inputs["shared"],
            )
        ranks = [*inputs["peers"]]
        ranks.insert(int(inputs["rank"]), out)
        total = ranks[0]
        for rank in range(1, NUM_RANKS):
            total = host.rounded(total.float() + ranks[rank].float())
        return {ROUTED: routed, SCALED: scaled, FINAL: out, DIAGNOSTIC: diagnostic, RANK_SUM: total}

    def files(self) -> Mapping[str, Path]:
        """The kernels' sources, and what compiles them: Triton's library and its assembler."""
        if not self.triton:
            return {"laguna_m8/host.py": _HERE / "host.py"}
        found = {f"laguna_m8/{name}": _HERE / name for name in _TRITON_SOURCES}
        origin = importlib.util.find_spec("triton")
        if origin is None or origin.origin is None:
            return found
        folder = Path(origin.origin).parent
        tools = ("_C/libtriton.so", "backends/nvidia/bin/ptxas")
        return {**found, **{f"triton/{name}": folder / name for name in tools}}

    def versions(self) -> Mapping[str, str]:
        """Triton's version."""
        return {"triton": importlib.metadata.version("triton")} if self.triton else {}

    def _kernels(self) -> Any:
        if self.triton:
            from moegauge.adapters.lanes.laguna_m8 import launch  # noqa: PLC0415 - imports torch

            return launch
        from moegauge.adapters.lanes.laguna_m8 import host  # noqa: PLC0415 - imports torch

        return host

    def _canonical(self, device: Any) -> Any:
        """Row token x 10 + slot of every slot, int32 [8, 10]; made once for a device."""
        if self._route_map is None or self._route_map.device != device:
            import torch  # noqa: PLC0415 - importing torch is a device action

            self._route_map = torch.arange(NUM_ROWS, dtype=torch.int32, device=device).view(NUM_TOKENS, TOP_K)
        return self._route_map


class NoRunner:
    """Four cards of the original lane: registered, and not to be run with this release."""

    def identify(self, registration: Registration, name: str) -> DeviceIdentity:
        """Refuse.

        Raises:
            MisuseError
        """
        raise _refused(registration, name)

    def open(self, registration: Registration, name: str) -> Device:
        """Refuse, as above."""
        raise _refused(registration, name)

    def counters(self, registration: Registration, name: str) -> CounterSource:
        """Refuse, as above."""
        raise _refused(registration, name)


def _refused(registration: Registration, name: str) -> errors.MisuseError:
    return errors.MisuseError(
        where=f"device {name} of {registration.lane}",
        expected="a runner that was tried on the platform",
        found="none for Intel XPU",
        remedy="The kernels are compiled for Xe2 and were never executed there (scripts/xpu-offline).",
    )


CUDA = TorchDevices(arms=LagunaArms(triton=True), backend="cuda")
XPU = NoRunner()
CPU = TorchDevices(arms=LagunaArms(triton=False), backend="cpu")
