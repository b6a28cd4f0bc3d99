"""Digests. The prefix of a digest says what was hashed and how, so two of different make never compare equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from moegauge.records.schema import canonical_bytes

_CHUNK_BYTES = 1 << 20


def bytes_digest(data: bytes | memoryview) -> str:
    """SHA-256 of plain bytes: ``sha256:<hex>``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes: ``sha256:<hex>``, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return "sha256:" + digest.hexdigest()


def record_digest(value: object) -> str:
    """SHA-256 of canonical JSON: ``canonical-json+sha256:<hex>``."""
    return "canonical-json+sha256:" + hashlib.sha256(canonical_bytes(value)).hexdigest()


def routed_ids_digest(topk_ids: NDArray[np.int32]) -> str:
    """SHA-256 over shape and row-major little-endian int32 ids: ``routed-ids-v1+sha256:<hex>``.

    Args:
        topk_ids: int32 [rows, top_k].
    """
    rows, top_k = topk_ids.shape
    digest = hashlib.sha256(f"routed-ids-v1 {rows} {top_k}\n".encode())
    digest.update(np.ascontiguousarray(topk_ids, dtype="<i4").tobytes())
    return "routed-ids-v1+sha256:" + digest.hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """SHA-256 over named arrays in order of name: ``arrays-v1+sha256:<hex>``.

    Each array gives one line ``arrays-v1 <name> <type> <dims>``, then its row-major little-endian bytes. The type
    carries the width, so words of one width never pass for words of another.

    Args:
        arrays: integer arrays by name, of any shape.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = array.dtype.newbyteorder("<")
        dims = " ".join(str(dim) for dim in array.shape)
        digest.update(f"arrays-v1 {name} {array.dtype.name} {dims}\n".encode())
        digest.update(np.ascontiguousarray(array, dtype=little).tobytes())
    return "arrays-v1+sha256:" + digest.hexdigest()


def expert_map_digest(expert_map: Iterable[int] | None) -> str | None:
    """SHA-256 of an expert map as canonical JSON; None where there is no map."""
    if expert_map is None:
        return None
    return "expert-map-v1+sha256:" + hashlib.sha256(canonical_bytes([int(e) for e in expert_map])).hexdigest()


def kernel_sequence_digest(names: Iterable[str]) -> str:
    """SHA-256 of an ordered list of kernel names: ``kernel-sequence-v1+sha256:<hex>``."""
    return "kernel-sequence-v1+sha256:" + hashlib.sha256(canonical_bytes(list(names))).hexdigest()
