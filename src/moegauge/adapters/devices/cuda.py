"""An NVIDIA GPU: identity, clocks, power, temperature, throttle reasons, last-level cache, cache flush. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pynvml
import torch

_THROTTLE = {
    "gpu_idle": 0x1,
    "applications_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
_HARMLESS = frozenset({"gpu_idle"})


def surroundings(uuid: str | None = None) -> dict[str, str]:
    """Device UUID, clocks, power, temperature and throttle reasons, as NVML reads them now.

    Args:
        uuid: of the device; the current one of the calling thread where it is not given.
    """
    pynvml.nvmlInit()
    try:
        uuid = uuid or device_uuid()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        active = sorted(name for name, bit in _THROTTLE.items() if reasons & bit and name not in _HARMLESS)
        return {
            "device_uuids": uuid,
            "sm_clock_mhz": str(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": str(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "power_mw": str(pynvml.nvmlDeviceGetPowerUsage(handle)),
            "power_limit_mw": str(pynvml.nvmlDeviceGetPowerManagementLimit(handle)),
            "temperature_c": str(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            "throttle": ", ".join(active) or "none",
        }
    finally:
        pynvml.nvmlShutdown()


def device_uuid() -> str:
    """UUID of the current device, as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def model_name() -> str:
    """Model name of the current device."""
    return str(torch.cuda.get_device_name())


def last_level_cache_bytes() -> int:
    """Size of the L2 cache of the current device."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


@contextmanager
def idle_around(step: AbstractContextManager[None]) -> Iterator[None]:
    """A step that ranks take together, begun and ended on an idle device; with a nullcontext nothing is held up."""
    if isinstance(step, nullcontext):
        yield
        return
    torch.cuda.synchronize()
    with step:
        yield
        torch.cuda.synchronize()


class CacheFlush:
    """Writes a buffer of four times the L2 cache on the current stream."""

    def __init__(self) -> None:
        self.num_bytes = 4 * last_level_cache_bytes()
        self._buffer = torch.zeros(self.num_bytes // 8, dtype=torch.float64, device="cuda")

    def __call__(self) -> None:
        """Write every word."""
        self._buffer.add_(1.0)
