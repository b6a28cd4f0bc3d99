"""Where each layer's routing is copied to while a step runs, so that a CUDA graph can do it too."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moegauge.records.recording import NOT_WRITTEN

_NUM_HOST_BLOCKS = 8


@dataclass(frozen=True)
class Snapshot:
    """A step's routing on its way to the host.

    Attributes:
        both: int32 [2, layers, rows, top_k] on the host: ids, and the bits of the weights.
        event: passed when it has arrived; None where it has.
        release: to be called once the arrays are no longer used.
    """

    both: torch.Tensor
    event: Any | None
    release: Callable[[], None]

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids int32, weights float32), both [layers, rows, top_k]; waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        array: NDArray[np.int32] = self.both.numpy()
        return array[0], array[1].view(np.float32)


class RoutedBuffers:
    """Ids and weights of one step, at addresses that never change: int32 [2, layers, max_rows, top_k].

    One tensor for both, so that one kernel copies a layer's routing in and one transfer takes a step's out; the bits
    of a weight are those of an integer as wide.
    """

    def __init__(self, *, layers: int, max_rows: int, top_k: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self.on_device = device.type == "cuda"
        shape = (2, layers, max_rows, top_k)
        self._both = torch.full(shape, NOT_WRITTEN, dtype=torch.int32, device=device)
        self._weights = self._both[1].view(torch.float32)
        self._blocks: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()
        for _ in range(_NUM_HOST_BLOCKS if self.on_device else 0):
            self._blocks.put(torch.empty(self._both.numel(), dtype=torch.int32, pin_memory=True))

    def write(self, index: int, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> None:
        """Copy one layer's routing, on the current stream; inside a graph capture this becomes part of the graph.

        Raises:
            ValueError: more rows than the buffers hold.
        """
        rows = topk_ids.shape[0]
        if rows > self.max_rows:
            raise ValueError(f"{rows} rows in a step, and buffers for {self.max_rows}")
        if self.on_device and topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32:
            to = [self._both[0, index, :rows], self._both[1, index, :rows]]
            torch._foreach_copy_(to, [topk_ids, topk_weights.view(torch.int32)])
        else:
            self._both[0, index, :rows].copy_(topk_ids)
            self._weights[index, :rows].copy_(topk_weights)

    def take(self, rows: int) -> Snapshot:
        """Start copying the first rows to the host, and mark them as not written for the next step."""
        found = self._both[:, :, :rows]
        if not self.on_device:
            snapshot = Snapshot(found.clone(), None, lambda: None)
        else:
            block = self._block()
            host = block[: found.numel()].view(found.shape)
            host.copy_(found.contiguous(), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            snapshot = Snapshot(host, event, lambda: self._blocks.put(block))
        found[0].fill_(NOT_WRITTEN)
        return snapshot

    def _block(self) -> torch.Tensor:
        """A block of pinned memory that nothing uses; a new one where the writer is behind."""
        try:
            return self._blocks.get_nowait()
        except queue.Empty:
            return torch.empty(self._both.numel(), dtype=torch.int32, pin_memory=True)
