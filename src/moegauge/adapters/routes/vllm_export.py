"""routed_experts_official.npz: what vLLM's enable_return_routed_experts returned for each request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.adapters.npz import read_npz


def read_official_routes(path: Path, *, num_layers: int, top_k: int) -> list[NDArray[np.int64]]:
    """The engine's own export of routed experts: one array [tokens, layers, top_k] a request, in request order.

    Args:
        path: the .npz. num_layers: layers every array must reach (dense ones included). top_k: of the model.

    Raises:
        MissingFile, MalformedFile, LimitExceeded, Inconsistent
    """
    lengths = read_npz(path, required=("prompt_len", "out_len"))
    if lengths["prompt_len"].ndim != 1:
        raise _inconsistent(str(path), "prompt_len: one number a request", str(lengths["prompt_len"].shape))
    names = tuple(f"r{index}" for index in range(len(lengths["prompt_len"])))
    arrays = read_npz(path, required=names)
    for name in names:
        shape, kind = arrays[name].shape, arrays[name].dtype
        if len(shape) != 3 or shape[1] < num_layers or shape[2] != top_k or not np.issubdtype(kind, np.integer):
            expected = f"{name}: integers [tokens, at least {num_layers} layers, {top_k}]"
            raise _inconsistent(str(path), expected, f"{kind} {list(shape)}")
    return [arrays[name].astype(np.int64) for name in names]


def _inconsistent(where: str, expected: str, found: str) -> errors.Inconsistent:
    return errors.Inconsistent(
        where=where,
        expected=expected,
        found=found,
        remedy="Leave the export out, or write it as docs/formats/bundle.md says.",
    )
