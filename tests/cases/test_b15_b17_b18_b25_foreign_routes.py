"""Routed inputs that lack a row, are of another model, name slots for experts, or count layers from elsewhere.

B15 a row that was not delivered: sgl-project/sglang#20964. B17 a draft model's rows: vllm-project/vllm#48622.
B18 physical ids: vllm-project/vllm#33013. B25 the base of the layer index: verl-project/verl#5037.
Each is held at the guards that every foreign format passes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moegauge import errors
from moegauge.adapters.routes.foreign import foreign_routes, stacked
from moegauge.adapters.routes.normal_form import Declared, ForeignRoutes, Piece
from moegauge.records.identity import ModelShape
from moegauge.routing.expert_load import expert_load

FOUR = ModelShape(hidden_size=64, intermediate_size=32, num_experts=4, top_k=2)
EIGHT = ModelShape(hidden_size=64, intermediate_size=32, num_experts=8, top_k=2)


def read(ids: object, known: Declared, *, number: int = 0) -> ForeignRoutes:
    piece = Piece(rank=None, number=number, ids=np.asarray(ids, dtype=np.int32))
    return foreign_routes([piece], known, source_format="test", numbered_by="request", where="routes")


def rows(num: int) -> list[list[list[int]]]:
    """Distinct pairs of four experts, one layer."""
    pairs = [[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2], [3, 0]]
    return [[pair] for pair in pairs[:num]]


B15 = Declared(shape=FOUR, moe_layers=(0,), num_layers=1, ids="logical", target_only=True)


def test_b15_the_last_sampled_token_never_ran_so_seven_of_seven_rows_match() -> None:
    found = read(rows(7), replace(B15, num_logical={0: 5 + 3 - 1}))
    assert found.findings == ()
    load = expert_load(found.tables[None].topk_ids, num_experts=4)
    assert (load.num_tokens, int(load.counts.sum())) == (7, 14)


@pytest.mark.parametrize("delivered", [4, 1])
def test_b15_a_row_that_was_not_delivered_is_counted_and_never_made_up(delivered: int) -> None:
    found = read(rows(delivered), replace(B15, num_logical={0: 5}))
    table = found.tables[None].topk_ids
    assert (len(table), table.size) == (delivered, 2 * delivered)  # 8 of 10 assignments where four rows came
    (finding,) = found.findings
    assert (finding.code, finding.examples) == ("ROWS_MISSING", (f"iteration 0 layer 0: {delivered} of 5 rows",))


def test_b17_layers_of_three_and_of_five_tokens_are_not_one_iteration() -> None:
    draft, target = np.zeros((3, 2), np.int32), np.zeros((5, 2), np.int32)
    with pytest.raises(errors.Inconsistent, match=r"layer 0 has int32 \[3, 2\], layer 1 has int32 \[5, 2\]"):
        stacked({0: draft, 1: target}, "routes")


@pytest.mark.parametrize(
    ("target_only", "codes"), [(None, ["CAPTURED_MODEL_UNKNOWN"]), (False, ["CAPTURED_MODEL_UNKNOWN"]), (True, [])]
)
def test_b17_equal_counts_without_a_stated_model_are_not_called_exact(
    target_only: bool | None, codes: list[str]
) -> None:
    found = read(rows(5), replace(B15, num_logical={0: 5}, target_only=target_only))
    assert [finding.code for finding in found.findings] == codes


SLOTS = [[[8, 1]], [[9, 0]], [[0, 3]]]
MAP = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 3])
B18 = Declared(shape=EIGHT, moe_layers=(0,), num_layers=1, num_logical={0: 3}, target_only=True)


def test_b18_an_id_of_a_slot_is_no_logical_expert() -> None:
    with pytest.raises(errors.Inconsistent, match=r"ids in -1\.\.7, found id 8 at row 0"):
        read(SLOTS, replace(B18, ids="logical"))


def test_b18_a_map_gives_logical_counts_and_the_slots_are_kept_for_the_kernel() -> None:
    found = read(SLOTS, replace(B18, ids="physical", physical_to_logical={0: MAP}))
    logical = expert_load(found.tables[None].topk_ids, num_experts=8).counts
    slots = np.bincount(found.physical[None].ravel(), minlength=10)
    assert logical.tolist() == [3, 1, 0, 2, 0, 0, 0, 0]
    assert slots.tolist() == [2, 1, 0, 1, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("maps", [None, {1: MAP}], ids=["no map", "the map after a rebalance"])
def test_b18_only_the_map_of_that_iteration_counts(maps: dict[int, np.ndarray] | None) -> None:
    with pytest.raises(errors.Ambiguous, match="the physical-to-logical map of iteration 0"):
        read(SLOTS, replace(B18, ids="physical", physical_to_logical=maps))


B25 = Declared(
    shape=EIGHT, moe_layers=tuple(range(3, 61)), num_layers=61, ids="logical", num_logical={0: 1}, target_only=True
)


@pytest.mark.parametrize("length", [61, 58])
def test_b25_an_axis_of_all_layers_or_of_the_moe_layers_gives_layers_3_to_60(length: int) -> None:
    ids = np.zeros((1, length, 2), dtype=np.int32)
    for index in range(58):  # row i of the MoE layers routes to a pair that tells it
        ids[0, length - 58 + index] = [index % 7, 7]
    table = read(ids, B25).tables[None]
    assert table.layer.tolist() == list(range(3, 61))
    assert table.topk_ids.tolist() == [[index % 7, 7] for index in range(58)]


@pytest.mark.parametrize("length", [60, 62, 59])
def test_b25_any_other_axis_is_refused_and_no_layer_is_folded_into_another(length: int) -> None:
    with pytest.raises(errors.Inconsistent, match=f"{length} layers, which matches neither"):
        read(np.tile(np.array([0, 1]), (1, length, 1)), B25)
