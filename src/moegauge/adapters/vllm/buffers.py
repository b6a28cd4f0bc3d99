"""Where each layer's routing is copied to while a step runs, so that a CUDA graph can do it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moegauge.records.recording import NOT_WRITTEN


@dataclass(frozen=True)
class Snapshot:
    """A step's routing on its way to the host; ``event`` is passed when it has arrived (None: it has)."""

    topk_ids: torch.Tensor
    topk_weights: torch.Tensor
    event: Any | None

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids int32, weights float32), both [layers, rows, top_k]; waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        return self.topk_ids.numpy(), self.topk_weights.numpy()


class RoutedBuffers:
    """Ids and weights of one step, int32 and float32 [layers, max_rows, top_k], at addresses that never change."""

    def __init__(self, *, layers: int, max_rows: int, top_k: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self.on_device = device.type == "cuda"
        shape = (layers, max_rows, top_k)
        self._ids = torch.full(shape, NOT_WRITTEN, dtype=torch.int32, device=device)
        self._weights = torch.zeros(shape, dtype=torch.float32, device=device)
        # One kernel copies both: bits of a weight are the bits of an integer as wide.
        self._weight_bits = self._weights.view(torch.int32)

    def write(self, index: int, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> None:
        """Copy one layer's routing, on the current stream; inside a graph capture this becomes part of the graph.

        Raises:
            ValueError: more rows than the buffers hold.
        """
        rows = topk_ids.shape[0]
        if rows > self.max_rows:
            raise ValueError(f"{rows} rows in a step, and buffers for {self.max_rows}")
        to_ids, to_weights = self._ids[index, :rows], self._weights[index, :rows]
        if self.on_device and topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32:
            bits = [topk_ids, topk_weights.view(torch.int32)]
            torch._foreach_copy_([to_ids, self._weight_bits[index, :rows]], bits)
        else:
            to_ids.copy_(topk_ids)
            to_weights.copy_(topk_weights)

    def take(self, rows: int) -> Snapshot:
        """Start copying the first rows to the host, and mark them as not written for the next step."""
        ids, weights = self._ids[:, :rows], self._weights[:, :rows]
        if not self.on_device:
            found = Snapshot(ids.clone(), weights.clone(), None)
        else:
            host = [torch.empty(ids.shape, dtype=one.dtype, pin_memory=True) for one in (ids, weights)]
            for to, one in zip(host, (ids, weights), strict=True):
                to.copy_(one.contiguous(), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            found = Snapshot(host[0], host[1], event)
        ids.fill_(NOT_WRITTEN)
        return found
