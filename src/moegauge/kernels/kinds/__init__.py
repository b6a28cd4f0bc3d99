"""The registered kernel kinds as data, one module a family. A new kind is one entry in its family's KINDS."""

from __future__ import annotations

from moegauge.kernels.kinds import triton, vllm_cpu

FAMILIES = (triton.KINDS, vllm_cpu.KINDS)
"""Kinds by family, in the order in which they are listed."""
