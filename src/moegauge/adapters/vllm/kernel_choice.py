"""Which kernel configuration the engine's experts choose for a number of rows, as a digest like the runners'."""

from __future__ import annotations

from typing import Any

from moegauge.evidence.digest import record_digest


class KernelChoice:
    """Digest by executed rows, read once for each number of rows."""

    def __init__(self) -> None:
        self._by_rows: dict[int, str | None] = {}

    def digest(self, rows: int) -> str | None:
        """Digest of the configuration for so many rows; None where none was read."""
        return self._by_rows.get(rows)

    def observe(self, experts: Any, kwargs: dict[str, Any]) -> None:
        """Note what the experts choose for the rows of a call that is about to be made."""
        rows = int(kwargs["topk_ids"].shape[0])
        if rows not in self._by_rows:
            self._by_rows[rows] = _read(experts, kwargs, rows)


def _read(experts: Any, kwargs: dict[str, Any], rows: int) -> str | None:
    name = type(experts).__name__
    if name == "TritonExperts":
        from vllm.model_executor.layers.fused_moe.fused_moe import (  # noqa: PLC0415 - needs Triton
            try_get_optimal_moe_config,
        )

        config = experts.quant_config.config_name(kwargs["hidden_states"].dtype)
        w1, w2, top_k = kwargs["w1"].size(), kwargs["w2"].size(), int(kwargs["topk_ids"].shape[1])
        return record_digest(try_get_optimal_moe_config(w1, w2, top_k, config, rows, block_shape=experts.block_shape))
    isa = getattr(experts, "isa", None)
    return None if isa is None else record_digest({"isa": isa})
