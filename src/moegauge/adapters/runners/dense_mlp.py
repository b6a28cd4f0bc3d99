"""Work beside a kernel: what a shared expert does to it, without a shared expert."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from moegauge.adapters.runners.torch_moe import MoeWeights


class DenseMlp:
    """A gated MLP on a second stream, launched beside each call and joined after it, as a shared expert is."""

    def __init__(self, width: int, weights: MoeWeights) -> None:
        hidden = weights.model.shape.hidden_size
        generator = torch.Generator(device="cuda").manual_seed(weights.model.seed)

        def normal(rows: int, columns: int) -> torch.Tensor:
            tensor = torch.empty((rows, columns), dtype=weights.dtype, device="cuda")
            return tensor.normal_(0.0, columns**-0.5, generator=generator)

        self.gate_up, self.down = normal(2 * width, hidden), normal(hidden, width)
        self.weights = weights
        self.stream = torch.cuda.Stream()

    def along(self, call: Callable[[], torch.Tensor], rows: int) -> Callable[[], torch.Tensor]:
        """The call with the MLP beside it."""
        hidden = self.weights.hidden(rows)

        def both() -> torch.Tensor:
            main = torch.cuda.current_stream()
            self.stream.wait_stream(main)
            with torch.cuda.stream(self.stream):
                gate, up = functional.linear(hidden, self.gate_up).chunk(2, dim=-1)
                functional.linear(functional.silu(gate) * up, self.down)
            out = call()
            main.wait_stream(self.stream)
            return out

        return both
