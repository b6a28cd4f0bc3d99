"""Routed experts of a request, from the texts that an engine's response carries."""

from __future__ import annotations

import base64
import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moegauge import errors
from moegauge.adapters.routes.foreign import foreign_routes
from moegauge.adapters.routes.normal_form import Declared, Piece
from moegauge.adapters.routes.routed_experts import executed_tokens, sglang_routed_experts, vllm_routed_experts
from moegauge.records.identity import ModelShape


def npy(array: np.ndarray) -> str:
    out = io.BytesIO()
    np.save(out, array)
    return base64.b64encode(out.getvalue()).decode()


IDS = np.array([[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[1, 0], [7, 3]]])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_the_type_of_vllm_ids_is_the_one_found(kind: type) -> None:
    read = vllm_routed_experts(npy(IDS.astype(kind)), where="x")
    assert (read.dtype, read.tolist()) == (np.dtype(kind), IDS.tolist())


def test_ids_of_sglang_are_int32_of_the_declared_shape() -> None:
    text = base64.b64encode(IDS.astype("<i4").tobytes()).decode()
    assert sglang_routed_experts(text, num_tokens=3, num_layers=2, top_k=2, where="x").tolist() == IDS.tolist()
    with pytest.raises(errors.Inconsistent, match="64 bytes"):
        sglang_routed_experts(text, num_tokens=4, num_layers=2, top_k=2, where="x")


def test_each_engine_s_form_is_refused_by_the_other_s_reader() -> None:
    with pytest.raises(errors.MalformedFile, match="vLLM's form"):
        sglang_routed_experts(npy(IDS), num_tokens=3, num_layers=2, top_k=2, where="x")
    with pytest.raises(errors.MalformedFile, match="SGLang's form"):
        vllm_routed_experts(base64.b64encode(IDS.tobytes()).decode(), where="x")


@pytest.mark.parametrize(("prompt", "output", "ran"), [(5, 3, 7), (5, 0, 5), (5, 1, 5)])
def test_the_last_sampled_token_never_ran(prompt: int, output: int, ran: int) -> None:
    assert executed_tokens(prompt=prompt, output=output) == ran


def test_a_prefill_only_request_that_lacks_its_last_row_is_four_of_five() -> None:
    ids = vllm_routed_experts(npy(np.tile(np.array([0, 1], dtype=np.uint8), (4, 1, 1))), where="x")
    known = Declared(
        shape=ModelShape(hidden_size=8, intermediate_size=8, num_experts=4, top_k=2),
        moe_layers=(0,),
        num_layers=1,
        ids="logical",
        num_logical={0: executed_tokens(prompt=5, output=0)},
        target_only=True,
    )
    read = foreign_routes(
        [Piece(rank=None, number=0, ids=ids)], known, source_format="vllm", numbered_by="request", where="x"
    )
    assert [one.examples for one in read.findings] == [("iteration 0 layer 0: 4 of 5 rows",)]
    assert read.tables[None].topk_ids.size == 8


def test_an_array_of_objects_is_refused_and_not_unpickled() -> None:
    with pytest.raises(errors.MalformedFile, match=r"found object"):
        vllm_routed_experts(npy(np.array([[[{}]]], dtype=object)), where="x")


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2, 2), bool)])
def test_other_arrays_are_refused(array: np.ndarray) -> None:
    with pytest.raises(errors.MalformedFile, match="integers"):
        vllm_routed_experts(npy(array), where="x")


def test_a_header_that_claims_more_than_there_is_allocates_nothing() -> None:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<i4", "fortran_order": False, "shape": (10**9, 48, 8)})
    with pytest.raises(errors.MalformedFile, match="found 0 bytes"):
        vllm_routed_experts(base64.b64encode(out.getvalue()).decode(), where="x")


GOOD = base64.b64decode(npy(IDS.astype(np.uint8)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(GOOD)))
def test_any_bytes_are_ids_or_a_typed_refusal(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    with contextlib.suppress(errors.MoegaugeError):
        vllm_routed_experts(base64.b64encode(bytes(data[:cut])).decode(), where="x")
