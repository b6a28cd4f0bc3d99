"""A torch tensor as the lane's contract sees it."""

from torch import Tensor

from moegauge.lanes.laguna_m8.facts import TensorFacts


def facts(tensor: Tensor) -> TensorFacts:
    """A tensor as it lies in memory; touches no device."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return TensorFacts(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        contiguous=tensor.is_contiguous(),
        device=str(tensor.device),
        address=tensor.data_ptr(),
        num_bytes=(last + 1) * tensor.element_size() if tensor.numel() else 0,
    )
