"""Where each layer's routing is copied to while a step runs, so that a CUDA graph can do it too, and its way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moegauge.records.recording import NOT_WRITTEN

_WORD_BYTES = 4
_STEPS_ON_HOST = 32
_MOST_ON_HOST = (256 << 20) // _WORD_BYTES
_LEAST_ON_HOST = (16 << 20) // _WORD_BYTES
_LEAST_STEPS_ON_HOST = 4


class HostRing:
    """Memory of the host for steps that wait for the writer; int32, allocated once, pinned where a device copies.

    Taken by the engine's thread and given back, in the same order, by the writer's. A place that is not there is
    refused at once: nothing is ever allocated or waited for while the engine serves.
    """

    def __init__(self, num_words: int, *, pinned: bool) -> None:
        self._memory = torch.empty(num_words, dtype=torch.int32, pin_memory=pinned)
        self._size = num_words
        self._taken = 0
        self._given = 0

    def take(self, num_words: int) -> tuple[torch.Tensor, int] | None:
        """A contiguous place, and what :meth:`give_back` wants for it; None where there is none."""
        start = self._taken % self._size
        begin = self._taken if start + num_words <= self._size else self._taken + self._size - start
        if begin + num_words - self._given > self._size:
            return None
        self._taken = begin + num_words
        start = begin % self._size
        return self._memory[start : start + num_words], self._taken

    def give_back(self, taken: int) -> None:
        """All that was taken up to and with the place of that number is free again."""
        self._given = taken


@dataclass(frozen=True)
class Snapshot:
    """A step's routing on its way to the host.

    Attributes:
        words: int32, flat. shape: (2, layers, rows, top_k): ids, and the bits of the weights.
        event: passed when they have arrived; None where they have. ring, place: whose they are.
    """

    words: torch.Tensor
    shape: tuple[int, int, int, int]
    event: Any | None
    ring: HostRing
    place: int

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids int32, weights float32), both [layers, rows, top_k]; waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        array: NDArray[np.int32] = self.words.numpy().reshape(self.shape)
        return array[0], array[1].view(np.float32)

    def release(self) -> None:
        """Give the memory back; the arrays are no longer valid."""
        self.ring.give_back(self.place)


class RoutedBuffers:
    """Ids and weights of one step, at addresses that depend on its number of rows alone.

    Flat int32 words, seen as [2, layers, rows, top_k] of the step's own rows: so that one kernel copies a layer's
    routing in, and what a step wrote is one piece, which one transfer takes out. The bits of a weight are those of an
    integer as wide. Between two steps every word is NOT_WRITTEN.

    On a device the way out is on a stream of its own, beside whatever follows the layers; the next step waits for it
    there (:meth:`before_step`).
    """

    def __init__(self, *, layers: int, max_rows: int, top_k: int, device: torch.device) -> None:
        self.layers, self.max_rows, self.top_k = layers, max_rows, top_k
        self.on_device = device.type == "cuda"
        self._words = torch.full((2 * layers * max_rows * top_k,), NOT_WRITTEN, dtype=torch.int32, device=device)
        whole = self._words.numel()
        most = max(_LEAST_STEPS_ON_HOST * whole, min(_STEPS_ON_HOST * whole, _MOST_ON_HOST))
        self.ring = HostRing(max(most, _LEAST_ON_HOST), pinned=self.on_device)
        self._rows: int | None = None
        self._views: tuple[torch.Tensor, ...] = ()
        self._stream = torch.cuda.Stream(device) if self.on_device else None
        self._copied: Any | None = None

    def write(self, index: int, topk_ids: torch.Tensor, topk_weights: torch.Tensor, *, of_rows: int) -> None:
        """Copy one layer's routing, on the current stream; inside a graph capture this becomes part of the graph.

        Args:
            index: of the layer. topk_ids, topk_weights: [rows, top_k]. of_rows: rows of the step, the same for all its
                layers.

        Raises:
            ValueError: more rows than the step has, or than the buffers hold.
        """
        rows = topk_ids.shape[0]
        if of_rows != self._rows:
            self._lay_out(of_rows)
        ids, weights = self._views[index], self._views[self.layers + index]
        if rows != of_rows:
            if rows > of_rows:
                raise ValueError(f"{rows} rows in a layer, and {of_rows} in its step")
            ids, weights = ids[:rows], weights[:rows]
        if self.on_device and topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32:
            torch._foreach_copy_([ids, weights], [topk_ids, topk_weights.view(torch.int32)])
        else:
            ids.copy_(topk_ids)
            weights.view(torch.float32).copy_(topk_weights)

    def _lay_out(self, rows: int) -> None:
        if rows > self.max_rows:
            raise ValueError(f"{rows} rows in a step, and buffers for {self.max_rows}")
        words = self._words[: 2 * self.layers * rows * self.top_k]
        self._views = words.view(2 * self.layers, rows, self.top_k).unbind()
        self._rows = rows

    def take(self, rows: int, *, wanted: bool = True) -> Snapshot | None:
        """Start copying a step's rows to the host, and mark them as not written for the next step.

        Args:
            rows: of the step. wanted: False where nobody would write them.

        Returns:
            None where they are not wanted, or where the host's memory for them is full.
        """
        found = self._words[: 2 * self.layers * rows * self.top_k]
        place = self.ring.take(found.numel()) if wanted else None
        event = None
        if self._stream is None:
            if place is not None:
                place[0].copy_(found)
            found.fill_(NOT_WRITTEN)
        else:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                if place is not None:
                    place[0].copy_(found, non_blocking=True)
                found.fill_(NOT_WRITTEN)
                event = torch.cuda.Event()
                event.record()
            self._copied = event
        shape = (2, self.layers, rows, self.top_k)
        return None if place is None else Snapshot(place[0], shape, event, self.ring, place[1])

    def before_step(self) -> None:
        """Let the current stream wait until the step before was copied out; the host does not wait."""
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)
            self._copied = None

    def reset(self) -> None:
        """Mark everything as not written: graphs write whether or not a take is under way."""
        self._words.fill_(NOT_WRITTEN)
