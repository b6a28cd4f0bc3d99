"""The guards that routed inputs of every foreign format pass. Expected ids and counts are written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moegauge import errors
from moegauge.adapters.routes.foreign import foreign_routes, logical_ids, stacked
from moegauge.adapters.routes.normal_form import Declared, ForeignRoutes, Piece
from moegauge.records.identity import ModelShape
from moegauge.routing.expert_load import expert_load

SHAPE = ModelShape(hidden_size=64, intermediate_size=32, num_experts=8, top_k=2)
KNOWN = Declared(shape=SHAPE, moe_layers=(0,), num_layers=1, ids="logical", num_logical={0: 3}, target_only=True)


def routes(pieces: list[Piece], declared: Declared) -> ForeignRoutes:
    return foreign_routes(pieces, declared, source_format="test", numbered_by="iteration", where="routes")


def piece(ids: list[list[list[int]]], *, rank: int | None = None, number: int = 0, kind: type = np.int32) -> Piece:
    """``ids`` by row, layer, slot."""
    return Piece(rank=rank, number=number, ids=np.array(ids, dtype=kind))


def test_declared_rows_pass_without_a_finding() -> None:
    read = routes([piece([[[0, 1]], [[2, 7]], [[3, -1]]])], KNOWN)
    assert read.tables[None].topk_ids.tolist() == [[0, 1], [2, 7], [3, -1]]
    assert (read.findings, read.ids_type, read.physical) == ((), "int32", {})


def test_the_kind_of_id_has_to_be_declared() -> None:
    with pytest.raises(errors.Ambiguous, match=r"logical experts or physical slots \(ids\)"):
        routes([piece([[[0, 1]]])], replace(KNOWN, ids=None))


def test_physical_slots_become_experts_by_the_map_of_their_iteration() -> None:
    one = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 3])
    two = np.array([0, 1, 2, 3, 4, 5, 6, 7, 5, 6])
    known = replace(KNOWN, ids="physical", num_logical={0: 3, 1: 1}, physical_to_logical={0: one, 1: two})
    read = routes([piece([[[8, 1]], [[9, 0]], [[0, 3]]]), piece([[[8, 9]]], number=1)], known)
    table = read.tables[None]
    assert table.topk_ids.tolist() == [[0, 1], [3, 0], [0, 3], [5, 6]]
    assert read.physical[None].tolist() == [[8, 1], [9, 0], [0, 3], [8, 9]]
    assert expert_load(table.topk_ids[:3], num_experts=8).counts.tolist() == [3, 1, 0, 2, 0, 0, 0, 0]


def test_the_map_of_another_iteration_is_not_taken() -> None:
    known = replace(KNOWN, ids="physical", physical_to_logical={1: np.arange(8)})
    with pytest.raises(errors.Ambiguous, match="the physical-to-logical map of iteration 0"):
        routes([piece([[[0, 1]]])], known)


def test_physical_ids_called_logical_are_refused() -> None:
    with pytest.raises(errors.Inconsistent, match="id 8 at row 0"):
        routes([piece([[[8, 1]], [[9, 0]], [[0, 3]]])], KNOWN)


def test_a_skipped_slot_never_indexes_the_map_from_its_end() -> None:
    assert logical_ids(np.array([[-1, 0]], dtype=np.int32), np.array([4, 5]), 8, "x").tolist() == [[-1, 4]]


def test_a_wrapped_sentinel_is_recovered_only_where_it_is_declared() -> None:
    rows = [piece([[[0, 255]], [[1, 255]], [[2, 3]]], kind=np.uint8)]
    with pytest.raises(errors.Inconsistent, match="id 255"):
        routes(rows, KNOWN)
    read = routes(rows, replace(KNOWN, skipped_as=255))
    assert read.tables[None].topk_ids.tolist() == [[0, -1], [1, -1], [2, 3]]


def test_a_type_too_narrow_for_the_experts_stays_refused_with_a_declared_sentinel() -> None:
    wide = replace(KNOWN, shape=ModelShape(hidden_size=64, intermediate_size=32, num_experts=512, top_k=2))
    for known in (wide, replace(wide, skipped_as=255)):
        with pytest.raises(errors.Inconsistent, match="an integer type that holds every id up to 511"):
            routes([piece([[[0, 255]]], kind=np.uint8)], known)


def test_a_declared_sentinel_may_not_be_an_expert() -> None:
    with pytest.raises(errors.Inconsistent, match="skipped_as"):
        routes([piece([[[0, 5]]], kind=np.uint8)], replace(KNOWN, skipped_as=5))


@pytest.mark.parametrize(("length", "first"), [(5, 2), (3, 0)])
def test_dense_layers_in_the_axis_or_not_give_the_same_layers(length: int, first: int) -> None:
    ids = np.tile(np.array([0, 1]), (3, length, 1))
    ids[:, first] = [6, 7]
    known = replace(KNOWN, moe_layers=(2, 3, 4), num_layers=5)
    table = routes([Piece(rank=None, number=0, ids=ids)], known).tables[None]
    assert table.layer.tolist() == [2, 3, 4]
    assert table.topk_ids.tolist() == [[6, 7]] * 3 + [[0, 1]] * 6


def test_an_axis_that_is_neither_all_layers_nor_the_moe_layers_is_refused() -> None:
    known = replace(KNOWN, moe_layers=tuple(range(3, 61)), num_layers=61)
    with pytest.raises(errors.Inconsistent, match="60 layers, which matches neither"):
        routes([Piece(rank=None, number=0, ids=np.tile(np.array([0, 1]), (3, 60, 1)))], known)


def test_several_ranks_need_a_declared_scope() -> None:
    same = [piece([[[0, 1]], [[0, 1]], [[2, 3]]], rank=rank) for rank in (0, 1)]
    with pytest.raises(errors.Ambiguous, match="2 ranks holds all tokens or its own"):
        routes(same, KNOWN)
    assert list(routes(same, replace(KNOWN, scope="global")).tables) == [0, 1]


def test_ranks_that_differ_are_not_of_a_global_scope() -> None:
    rows = [piece([[[0, 1]]], rank=0), piece([[[0, 2]]], rank=1)]
    with pytest.raises(errors.Inconsistent, match="rank 1 differs from rank 0"):
        routes(rows, replace(KNOWN, scope="global", num_logical={0: 1}))


def test_a_missing_rank_is_named() -> None:
    rows = [piece([[[0, 1]]], rank=0), piece([[[0, 1]]], rank=2)]
    with pytest.raises(errors.Incomplete, match="no rank 1"):
        routes(rows, replace(KNOWN, scope="local"))


def test_a_rank_missing_from_one_iteration_is_named() -> None:
    rows = [piece([[[0, 1]]], rank=0), piece([[[0, 1]]], rank=1), piece([[[0, 1]]], rank=0, number=1)]
    with pytest.raises(errors.Incomplete, match="iteration 1 has no rank 1"):
        routes(rows, replace(KNOWN, scope="local"))


def test_rows_without_a_token_count_or_a_stated_model_are_not_called_exact() -> None:
    read = routes([piece([[[0, 1]]])], replace(KNOWN, num_logical={}, target_only=None))
    assert [finding.code for finding in read.findings] == ["LOGICAL_ROWS_UNKNOWN", "CAPTURED_MODEL_UNKNOWN"]


def test_fewer_rows_than_tokens_are_kept_and_counted_as_missing() -> None:
    read = routes([piece([[[0, 1]], [[2, 3]]])], KNOWN)
    assert len(read.tables[None].topk_ids) == 2
    assert [(one.code, one.num, one.examples) for one in read.findings] == [
        ("ROWS_MISSING", 1, ("iteration 0 layer 0: 2 of 3 rows",))
    ]


def test_rows_beyond_the_tokens_may_be_stale() -> None:
    read = routes([piece([[[0, 1]], [[2, 3]], [[3, 7]], [[7, 7]]])], KNOWN)
    assert read.tables[None].topk_ids.tolist()[3] == [7, 7]


def test_layers_of_different_tokens_are_refused_as_of_two_models() -> None:
    with pytest.raises(errors.Inconsistent, match=r"layer 0 has int32 \[3, 2\], layer 1 has int32 \[5, 2\]"):
        stacked({0: np.zeros((3, 2), np.int32), 1: np.zeros((5, 2), np.int32)}, "x")


def test_shared_expert_columns_are_cut_only_where_declared() -> None:
    rows = [piece([[[0, 1, 8]], [[2, 3, 8]], [[4, 5, 8]]])]
    with pytest.raises(errors.Inconsistent, match="2 columns"):
        routes(rows, KNOWN)
    assert routes(rows, replace(KNOWN, num_shared=1)).tables[None].topk_ids.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_weights_that_are_not_numbers_are_refused() -> None:
    rows = replace(piece([[[0, 1]]]), weights=np.array([[[np.nan, 0.5]]]))
    with pytest.raises(errors.Inconsistent, match="finite topk_weights"):
        routes([rows], KNOWN)


def test_the_tokens_of_all_ranks_say_nothing_of_one_rank_with_a_local_scope() -> None:
    rows = [piece([[[0, 1]]], rank=0), Piece(rank=1, number=0, ids=np.zeros((0, 1, 2), np.int32))]
    read = routes(rows, replace(KNOWN, scope="local", num_logical={0: 1}))
    assert [len(table.topk_ids) for table in read.tables.values()] == [1, 0]
    assert [finding.code for finding in read.findings] == ["LOGICAL_ROWS_UNKNOWN"]
