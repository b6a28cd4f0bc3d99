"""Which Triton configuration vLLM's fused MoE kernel runs so many rows with: given, found, or its heuristic.

vLLM 0.25.1 takes what override_config has set; else the entry nearest to the rows in the tuned file for experts, width,
device, format and blocks, looked for in VLLM_TUNED_CONFIG_FOLDER and then among its own; else what its heuristic gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm.model_executor.layers.fused_moe import override_config
from vllm.model_executor.layers.fused_moe.fused_moe import (
    get_config_file_name,
    get_default_config,
    try_get_optimal_moe_config,
)

from moegauge.adapters.runners.kernel_config import DEFAULT, Config, KernelConfig, given_config


@dataclass(frozen=True)
class TritonChoice:
    """What a configuration is looked up by, and what was given.

    Attributes:
        kernel_config: given configurations; None for those that vLLM finds.
        w13, w2: sizes of the weights. dtype: vLLM's name of the format, None for none. block_shape: of the weights.
    """

    kernel_config: KernelConfig | None
    w13: tuple[int, ...]
    w2: tuple[int, ...]
    top_k: int
    dtype: str | None
    block_shape: tuple[int, int] | None

    def given(self, rows: int) -> Config | None:
        """The configuration that was given for so many rows; None, where none was, has vLLM find one."""
        return self.heuristic(rows) if self.kernel_config is DEFAULT else given_config(self.kernel_config, rows)

    def found(self, rows: int) -> Config:
        """What vLLM finds by itself: in a tuned file, or else by its heuristic."""
        with override_config(None):
            return dict(
                try_get_optimal_moe_config(self.w13, self.w2, self.top_k, self.dtype, rows, block_shape=self._blocks())
            )

    def heuristic(self, rows: int) -> Config:
        """What vLLM's heuristic gives, whether or not there is a tuned file."""
        experts, _, width = self.w2
        return dict(get_default_config(rows, experts, width, self.w13[2], self.top_k, self.dtype, self._blocks()))

    def file_name(self) -> str:
        """Name under which vLLM looks for a tuned file."""
        experts, _, width = self.w2
        return str(get_config_file_name(experts, width, self.dtype, self._blocks()))

    def _blocks(self) -> list[int] | None:
        return None if self.block_shape is None else list(self.block_shape)
