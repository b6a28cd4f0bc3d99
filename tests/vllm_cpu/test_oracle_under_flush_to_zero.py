"""The oracle of a lane while the processor itself flushes subnormals; torch can set that, NumPy cannot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from moegauge.lanes.laguna_m8.corpus import fixture_spec
from moegauge.lanes.laguna_m8.sequence import gather_finalize, words_of


@pytest.fixture
def flushing() -> Iterator[None]:
    assert torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


def final_words(name: str) -> dict[str, list[int]]:
    fixture = fixture_spec(name).build()
    found = words_of(gather_finalize(fixture.rows, fixture.weights, fixture.shared))
    return {boundary: words.ravel().tolist() for boundary, words in found.items()}


@pytest.mark.parametrize("name", ["subnormal-rows", "subnormal-weights", "subnormal-products", "subnormal-boundaries"])
def test_words_are_the_same_while_the_processor_flushes_subnormals(name: str, request: pytest.FixtureRequest) -> None:
    before = final_words(name)
    request.getfixturevalue("flushing")
    smallest = np.array([1], dtype=np.uint32).view(np.float32)
    assert (smallest * np.float32(1.0)).view(np.uint32).tolist() == [0]  # the processor does flush
    assert final_words(name) == before
