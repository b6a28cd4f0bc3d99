"""Digests of named arrays: what they are taken over, literally, and what they tell apart."""

from __future__ import annotations

import hashlib

import numpy as np

from moegauge.evidence.digest import arrays_digest


def test_arrays_are_hashed_by_name_with_type_and_shape_and_little_endian_bytes() -> None:
    arrays = {"weights": np.array([1], dtype=np.uint32), "rows": np.array([[0x1234, 0x0001]], dtype=np.uint16)}
    text = b"arrays-v1 rows uint16 1 2\n\x34\x12\x01\x00arrays-v1 weights uint32 1\n\x01\x00\x00\x00"
    assert arrays_digest(arrays) == "arrays-v1+sha256:" + hashlib.sha256(text).hexdigest()


def test_neither_order_of_names_nor_of_bytes_in_memory_nor_strides_matter() -> None:
    plain = np.arange(12, dtype=np.uint16).reshape(3, 4)
    others = (plain.astype(">u2"), np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2])
    assert {arrays_digest({"a": plain, "b": one}) for one in others} == {arrays_digest({"b": plain, "a": plain})}


def test_name_type_shape_and_every_word_matter() -> None:
    words = np.array([1, 2, 3, 4], dtype=np.uint16)
    changed = words.copy()
    changed[3] ^= 0x8000
    variants = (
        {"words": words},
        {"other": words},
        {"words": words.astype(np.int16)},
        {"words": words.view(np.uint32)},
        {"words": words.reshape(2, 2)},
        {"words": changed},
        {"words": words, "more": words},
    )
    assert len({arrays_digest(variant) for variant in variants}) == len(variants)
