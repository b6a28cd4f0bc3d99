"""FP8 weights in blocks, and what a kernel computes that quantises its activations as it runs.

Weights: e4m3 words, one float32 scale a block of 128 x 128, the largest magnitude of a block at 448. Activations: e4m3
words, one scale for each token and group of 128, found while the kernel runs. That is how DeepSeek-V3 and the FP8
releases of Qwen3 are stored, and how vLLM 0.25.1 runs them.
"""

from __future__ import annotations

import torch

from moegauge import errors
from moegauge.adapters.runners.moe_forward import moe_forward
from moegauge.adapters.runners.torch_moe import MoeWeights
from moegauge.adapters.runners.work import ModelSpec

BLOCK = 128
"""Rows and columns of a weight block, and the length of a group of activations."""

E4M3_MAX = 448.0
_SMALLEST = 1e-10
"""Floor of a group's largest magnitude, so that a group of zeros has a scale (vLLM 0.25.1 takes the same)."""

BOUND = 3e-2
"""Largest relative error of an output against float64.

The reference quantises activations too, so what is left is that kernels round between the products to bfloat16. That
moves a value by 2**-9 of itself at most, which carries some over the middle between two e4m3 words, a step of 2**-3 to
2**-4: of the order of the square root of 2**-10 x 2**-3, some 1.1 %. Emulated in float32 over five shapes it was 0.7 to
2.2 %, 1.3 to 1.6 % with the sizes of Qwen3-30B-A3B. A kernel that does not quantise its activations is 4 % away. One
that leaves out the second quantisation alone is 2.5 % away and passes; the kernel sequence of the kind tells it.
"""


class BlockFp8Weights(MoeWeights):
    """Weights drawn in bfloat16 and kept as e4m3 in blocks.

    Attributes:
        scales: float32 [experts, rows / 128, columns / 128], those of every w13 first, then those of every w2.

    Raises:
        MisuseError: a size that blocks do not divide.
    """

    bound = BOUND

    def __init__(self, model: ModelSpec, device: str) -> None:
        sizes = {"hidden size": model.shape.hidden_size, "intermediate size": model.shape.intermediate_size}
        for name, size in sizes.items():
            if size % BLOCK:
                raise errors.MisuseError(
                    where="FP8 weights in blocks",
                    expected=f"a {name} that is a multiple of {BLOCK}",
                    found=str(size),
                    remedy="Choose another runner, or fewer tensor-parallel ranks.",
                )
        self.scales: list[torch.Tensor] = []
        super().__init__(model, device)

    def drawn_type(self) -> torch.dtype:
        """Weights are drawn in bfloat16 and then quantised; hidden states stay in it."""
        return torch.bfloat16

    def kept(self, drawn: torch.Tensor) -> torch.Tensor:
        """The quantised words; their scales are kept beside them."""
        words, scale = quantised_blocks(drawn)
        self.scales.append(scale)
        return words

    @property
    def origin(self) -> dict[str, str]:
        """As drawn, and how it was quantised."""
        drawn = super().origin
        return {
            "weights": f"{drawn['weights']}, float8_e4m3fn in blocks of {BLOCK} x {BLOCK} with float32 scales",
            "activations": f"{drawn['activations']}, quantised by token and group of {BLOCK}",
        }

    def scales_of(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(scales of w13, scales of w2) of a set."""
        return self.scales[index], self.scales[self.model.num_weight_sets + index]

    def in_float64(self, hidden: torch.Tensor, index: int, ids: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Products of dequantised weights with quantised activations, in float64."""
        scale13, scale2 = self.scales_of(index)
        w13, w2 = _Dequantised(self.w13[index], scale13), _Dequantised(self.w2[index], scale2)
        return moe_forward(quantised_groups(hidden), w13, w2, ids, shares, between=quantised_groups)


class _Dequantised:
    """Matrices of experts as float64 on the host, one at a time."""

    def __init__(self, words: torch.Tensor, scale: torch.Tensor) -> None:
        self.words, self.scale = words, scale

    def __getitem__(self, expert: int) -> torch.Tensor:
        scale = self.scale[expert].cpu().double()
        return self.words[expert].cpu().double() * scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)


def quantised_blocks(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise [experts, rows, columns] by blocks: e4m3 words of the same shape, float32 scales [experts, r, c]."""
    experts, rows, columns = matrices.shape
    blocks = matrices.float().view(experts, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    scale = blocks.abs().amax(dim=(2, 4), keepdim=True).clamp_(min=_SMALLEST) / E4M3_MAX
    words = (blocks / scale).to(torch.float8_e4m3fn).view(experts, rows, columns)
    return words, scale.view(experts, rows // BLOCK, columns // BLOCK)


def quantised_groups(activations: torch.Tensor) -> torch.Tensor:
    """Values that activations [..., columns] have once they are quantised by groups, in their own type."""
    groups = activations.unflatten(-1, (-1, BLOCK))
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=_SMALLEST) / E4M3_MAX
    words = (groups / scale).clamp(-E4M3_MAX, E4M3_MAX).float().to(torch.float8_e4m3fn)
    return (words.to(activations.dtype) * scale).flatten(-2)
