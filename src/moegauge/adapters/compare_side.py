"""One side of a comparison on the host: a registered runner, or a Python function, called on captured inputs.

A function ``pkg.module:function`` is called with five tensors, by position:

    hidden_states [rows, hidden]            the capture's numeric format
    w1            [experts, 2 * intermediate, hidden]   gate rows first, then up rows
    w2            [experts, hidden, intermediate]
    topk_weights  float32 [rows, top_k]
    topk_ids      int32 [rows, top_k]       experts of this rank; -1 for a slot to skip

and returns [rows, hidden] in the format of ``hidden_states``: for each row the sum over its slots of weight x
w2 . (SiLU(gate) x up). It leaves its inputs as they are.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch

from moegauge import errors
from moegauge.adapters.devices.cpu import model_name
from moegauge.adapters.runners.moe_forward import local_ids, moe_forward
from moegauge.adapters.runners.torch_moe import MoeWeights
from moegauge.adapters.runners.work import ModelSpec, Work
from moegauge.evidence.digest import arrays_digest, file_digest
from moegauge.gate.words import WORD_DTYPES, Words
from moegauge.records.kernel_compare import Side, SideBits

FusedExperts = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
NORM = "frobenius_relative"
"""Frobenius norm of (output - reference) over that of the reference; of a token, over its own row."""


@dataclass(frozen=True)
class Implementation:
    """A side that can be called."""

    side: Side
    call: FusedExperts


def implementation(name: str, option: str) -> Implementation:
    """Find a side.

    Args:
        name: ``torch_moe`` or ``pkg.module:function``. option: which it was given by, for messages.

    Raises:
        MisuseError: neither, or the function is not there.
    """
    if name == "torch_moe":
        return _described(name, _torch_moe)
    if _ENTRY_POINT.fullmatch(name) is None:
        raise _no_side(option, name)
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # whatever the module does when it is imported
        raise _no_side(option, f"{name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise _no_side(option, f"{name}, where no such function is")
    return _described(name, cast(FusedExperts, found))


def _described(name: str, call: FusedExperts) -> Implementation:
    try:
        source = inspect.getsourcefile(inspect.unwrap(call))
    except TypeError:
        source = None
    digest = file_digest(Path(source)) if source and Path(source).is_file() else None
    return Implementation(Side(name=name, code_digest=digest), call)


def _torch_moe(
    hidden: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    return moe_forward(hidden, w1, w2, ids.long(), weights)


def _no_side(option: str, found: str) -> errors.MisuseError:
    return errors.MisuseError(
        where=option,
        expected="torch_moe, or an importable function as pkg.module:function",
        found=found,
        remedy="docs/compare.md gives the signature; the function's folder has to be on PYTHONPATH.",
    )


class Bench:
    """Seeded weights on the host, on which both sides are called with the same tensors."""

    def __init__(self, model: ModelSpec) -> None:
        if model.numeric_format not in {"bfloat16", "float32"}:
            raise errors.MisuseError(
                where="moegauge compare",
                expected="a capture in bfloat16 or float32",
                found=model.numeric_format,
                remedy="Choose another capture.",
            )
        try:
            self.weights = MoeWeights(model, "cpu")
        except MemoryError as error:
            raise errors.LimitExceeded(
                where="moegauge compare",
                expected="weights of one layer that the host has room for",
                found=str(error),
                remedy="Compare on a host with more memory.",
            ) from error
        self.dtype = model.numeric_format

    def facts(self) -> dict[str, str]:
        """Conditions of every call."""
        return {
            "device_model": model_name(),
            "torch": str(torch.__version__),
            "threads": str(torch.get_num_threads()),
            "timer": "host monotonic clock around each call; one untimed call before each arm (warm cache)",
            "weights": "random-normal, one set for all layers",
        }

    def weight_sums(self) -> tuple[int, ...]:
        """Sums of the words of all weights, by which a side that writes to them is found."""
        tensors = (self.weights.w13[0], self.weights.w2[0])
        return tuple(int(tensor.view(torch.int16).sum().item()) for tensor in tensors)

    def tensors(self, work: Work) -> tuple[torch.Tensor, ...]:
        """The five arguments of a call."""
        given = self.weights.inputs(work)
        w1, w2 = self.weights.of_layer(work.layer)
        ids = local_ids(given.topk_ids, work).to(torch.int32)
        return given.hidden_states, w1, w2, given.topk_weights, ids

    def output(self, one: Implementation, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Call a side once and hold its output against the signature.

        Raises:
            Inconsistent: it raised, or returned something else.
        """
        wanted = f"{self.dtype} {list(tensors[0].shape)}"
        try:
            out = one.call(*tensors)
        except Exception as error:  # code of a person, which may raise anything
            raise _broken(one, wanted, f"{type(error).__name__}: {error}") from error
        if not isinstance(out, torch.Tensor):
            raise _broken(one, wanted, type(out).__name__)
        found = f"{str(out.dtype).removeprefix('torch.')} {list(out.shape)}"
        if found != wanted:
            raise _broken(one, wanted, found)
        return out.detach().clone()

    def bits(self, one: Implementation, work: Work) -> tuple[Words, SideBits, bool]:
        """Words of one side on one work, what they show, and whether the call left its inputs alone."""
        tensors = self.tensors(work)
        before = [tensor.clone() for tensor in (tensors[0], *tensors[3:])]
        out, again = self.output(one, tensors), self.output(one, tensors)
        probed = sorted({0, len(out) - 1})
        hidden, w1, w2, weights, ids = tensors
        alone = torch.cat([self.output(one, (hidden[[t]], w1, w2, weights[[t]], ids[[t]])) for t in probed])
        kept = all(torch.equal(a, b) for a, b in zip(before, (tensors[0], *tensors[3:]), strict=True))
        error, bias, token, worst = _errors(out, tensors)
        found = SideBits(
            output_digest=self._digest(out),
            again_digest=self._digest(again),
            in_batch_digest=self._digest(out[probed]),
            alone_digest=self._digest(alone),
            error_ratio=error,
            bias_ratio=bias,
            worst_token=token,
            worst_token_ratio=worst,
        )
        return self._words(out), found, kept

    def timed(self, one: Implementation, work: Work, num_calls: int) -> tuple[int, ...]:
        """Times of so many calls in ns, after one that is not timed."""
        tensors = self.tensors(work)
        one.call(*tensors)
        times = []
        for _ in range(num_calls):
            begin = time.perf_counter_ns()
            one.call(*tensors)
            times.append(time.perf_counter_ns() - begin)
        return tuple(times)

    def _words(self, out: torch.Tensor) -> Words:
        kind = torch.int16 if self.dtype == "bfloat16" else torch.int32
        return np.asarray(out.contiguous().view(kind).numpy().view(WORD_DTYPES[self.dtype]))

    def _digest(self, out: torch.Tensor) -> str:
        return arrays_digest({"output": np.ascontiguousarray(self._words(out))})


class _Float64:
    """Matrices of experts as float64, one at a time."""

    def __init__(self, matrices: torch.Tensor) -> None:
        self.matrices = matrices

    def __getitem__(self, expert: int) -> torch.Tensor:
        return self.matrices[expert].double()


def _errors(
    out: torch.Tensor, tensors: tuple[torch.Tensor, ...]
) -> tuple[float | None, float | None, int, float | None]:
    """Error, bias, worst token and its error, against float64; see :class:`SideBits`."""
    hidden, w1, w2, weights, ids = tensors
    reference = moe_forward(hidden.double(), _Float64(w1), _Float64(w2), ids.long(), weights.double())
    difference = out.double() - reference
    scale = reference.norm().item() or 1.0
    rows = difference.norm(dim=1) / reference.norm(dim=1).clamp(min=1e-300)
    token = int(torch.nan_to_num(rows, nan=math.inf).argmax())
    bias = difference.mean().item() / (scale / math.sqrt(reference.numel()))
    return _finite(difference.norm().item() / scale), _finite(bias), token, _finite(rows[token].item())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _broken(one: Implementation, wanted: str, found: str) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=one.side.name, expected=f"an output {wanted}", found=found, remedy="docs/compare.md gives the signature."
    )
