"""Routed experts of one request as vLLM and SGLang return them: base64 of an .npy file, and of bare int32.

Sources: vllm 0.32.0 (utils/serial_utils, numpy2base64), sglang 0.5.23 (srt/state_capturer/routed_experts).
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import tokenize
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moegauge import errors
from moegauge.routing.expert_load import ids_from_bytes

MAX_TEXT_CHARS = 1 << 30
_NPY = b"\x93NUMPY"


def vllm_routed_experts(text: str, *, where: str) -> NDArray[Any]:
    """Ids [tokens, layers, top_k] of the ``routed_experts`` of a vLLM response, in the integer type found.

    Raises:
        LimitExceeded
        MalformedFile: no base64, no .npy, objects, another number of axes or a size other than the header's.
    """
    data = _decoded(text, where)
    if not data.startswith(_NPY):
        raise _malformed(where, "the bytes of an .npy file", f"{data[:6]!r} (bare int32 is SGLang's form)")
    try:
        stream = io.BytesIO(data)
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = read(stream)
    except (ValueError, EOFError, OverflowError, RecursionError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise _malformed(where, "the header of an .npy file", str(error)[:120]) from error
    body = data[stream.tell() :]
    if not np.issubdtype(kind, np.integer) or len(shape) != 3 or fortran:
        raise _malformed(where, "integers [tokens, layers, top_k], row by row", f"{kind} {list(shape)[:8]}")
    if min(shape) < 0 or math.prod(shape) * kind.itemsize != len(body):
        raise _malformed(where, f"{list(shape)} of {kind}", f"{len(body)} bytes")
    return np.frombuffer(body, dtype=kind).reshape(shape)


def sglang_routed_experts(text: str, *, num_tokens: int, num_layers: int, top_k: int, where: str) -> NDArray[Any]:
    """Ids [num_tokens, num_layers, top_k] of ``meta_info.routed_experts``, which carries no shape.

    Raises:
        LimitExceeded
        MalformedFile: no base64, or an .npy file. Inconsistent: other bytes than the declared shape as int32.
    """
    data = _decoded(text, where)
    if data.startswith(_NPY):
        raise _malformed(where, "bare int32 ids", "an .npy file (vLLM's form)")
    return ids_from_bytes(data, dtype="int32", num_tokens=num_tokens, num_layers=num_layers, top_k=top_k, where=where)


def executed_tokens(*, prompt: int, output: int) -> int:
    """Tokens of a request that ran: the last sampled one did not; of a prefill-only request all did."""
    return prompt + max(output - 1, 0)


def _decoded(text: str, where: str) -> bytes:
    if len(text) > MAX_TEXT_CHARS:
        raise errors.LimitExceeded(
            where=where,
            expected=f"at most {MAX_TEXT_CHARS} characters",
            found=str(len(text)),
            remedy="Split the recording.",
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed(where, "base64", str(error)[:120]) from error


def _malformed(where: str, expected: str, found: str) -> errors.MalformedFile:
    return errors.MalformedFile(
        where=where, expected=expected, found=found, remedy="Give routed_experts as the engine returned it."
    )
