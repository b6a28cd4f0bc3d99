"""The registered kernel kinds as data, one module a family. A new kind is one entry in its family's KINDS."""

from __future__ import annotations

from moegauge.kernels.kinds import (
    cutlass,
    deep_gemm,
    flashinfer,
    marlin,
    rocm_aiter,
    triton,
    triton_kernels,
    vllm_cpu,
    xpu,
)

FAMILIES = (
    triton.KINDS,
    triton_kernels.KINDS,
    cutlass.KINDS,
    deep_gemm.KINDS,
    flashinfer.KINDS,
    marlin.KINDS,
    rocm_aiter.KINDS,
    xpu.KINDS,
    vllm_cpu.KINDS,
)
"""Kinds by family, in the order in which they are listed."""
