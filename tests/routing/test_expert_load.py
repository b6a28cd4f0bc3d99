"""Token counts per expert: the conservation law, what a narrow integer type does to ids, ranks and padding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from moegauge import errors
from moegauge.routing.expert_load import (
    as_topk_ids,
    check_conservation,
    check_expert_map,
    expert_load,
    ids_from_bytes,
    local_load,
    merged_load,
    suspicious_padding,
)

NUM_EXPERTS, TOP_K = 12, 3

token = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=TOP_K, max_size=TOP_K, unique=True).flatmap(
    lambda ids: st.lists(st.booleans(), min_size=TOP_K, max_size=TOP_K).map(
        lambda skip: [-1 if gone else one for one, gone in zip(ids, skip, strict=True)]
    )
)
tokens = st.lists(token, max_size=12)


def table(rows: list[list[int]], dtype: type[np.integer] = np.int32) -> NDArray[np.int32]:
    return np.array(rows, dtype=dtype).reshape(-1, TOP_K)


def checked(rows: NDArray[np.generic], num_experts: int = NUM_EXPERTS) -> NDArray[np.int32]:
    return as_topk_ids(rows, top_k=TOP_K, num_experts=num_experts, where="here")


@given(tokens, st.sampled_from([np.int8, np.int16, np.int32, np.int64]))
def test_counts_and_skipped_slots_add_up_to_tokens_times_top_k(rows: list[list[int]], dtype: type[np.integer]) -> None:
    ids = checked(table(rows, dtype))
    assert ids.dtype == np.int32
    assert ids.tolist() == rows
    load = expert_load(ids, num_experts=NUM_EXPERTS)
    seen = Counter(one for row in rows for one in row)
    assert load.num_tokens == len(rows)
    assert load.num_skipped == seen.pop(-1, 0)
    assert load.counts.tolist() == [seen[expert] for expert in range(NUM_EXPERTS)]
    assert int(load.counts.sum()) + load.num_skipped == len(rows) * TOP_K
    check_conservation(load.counts, num_skipped=load.num_skipped, num_tokens=len(rows), top_k=TOP_K, where="here")


@given(tokens, st.integers(-3, 3).filter(bool))
def test_a_count_that_is_off_by_any_number_breaks_the_conservation_law(rows: list[list[int]], off: int) -> None:
    load = expert_load(checked(table(rows)), num_experts=NUM_EXPERTS)
    with pytest.raises(errors.Inconsistent, match=f"does not equal tokens\\*K={len(rows) * TOP_K}"):
        check_conservation(
            load.counts, num_skipped=load.num_skipped + off, num_tokens=len(rows), top_k=TOP_K, where="here"
        )


@given(tokens.filter(len), st.data())
def test_one_id_out_of_range_is_found_and_named_by_row_and_slot(rows: list[list[int]], data: st.DataObject) -> None:
    row, slot = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, TOP_K - 1))
    bad = data.draw(st.sampled_from([-2, -128, NUM_EXPERTS, NUM_EXPERTS + 1, 1 << 40, -(1 << 40), (1 << 63) - 1]))
    ids = table(rows, np.int64)
    ids[row, slot] = bad
    with pytest.raises(errors.Inconsistent, match=f"id {bad} at row {row}, slot {slot} "):
        checked(ids)


@given(tokens.filter(len), st.data())
def test_an_expert_twice_in_a_token_is_found_and_a_skipped_slot_twice_is_not(
    rows: list[list[int]], data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, len(rows) - 1))
    expert = data.draw(st.integers(0, NUM_EXPERTS - 1))
    ids = table(rows)
    ids[row] = [expert, -1, expert]
    with pytest.raises(errors.Inconsistent, match=f"id {expert} twice in row {row}$|id {expert} twice in row {row}\\."):
        checked(ids)
    ids[row] = -1
    assert checked(ids)[row].tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("values", "num_experts"),
    [
        (np.array([[255, 1, 2]], dtype=np.uint8), 128),  # -1 in uint8
        (np.array([[65535, 1, 2]], dtype=np.uint16), 512),  # -1 in uint16
        (np.array([[(1 << 64) - 1, 1, 2]], dtype=np.uint64), 128),  # -1 in uint64
        (np.array([[-56, 1, 2]], dtype=np.int8), 256),  # 200 in int8
        (np.array([[44, 1, 2]], dtype=np.int8), 512),  # 300 in int8, in range by accident
    ],
)
def test_an_id_that_wrapped_in_its_integer_type_is_refused(values: NDArray[np.generic], num_experts: int) -> None:
    with pytest.raises(errors.Inconsistent):
        checked(values, num_experts)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((4, TOP_K), dtype=np.float32),
        np.zeros((4, TOP_K), dtype=bool),
        np.zeros(TOP_K, dtype=np.int32),
        np.zeros((2, 2, TOP_K), dtype=np.int32),
        np.arange(8, dtype=np.int32).reshape(4, 2),
    ],
    ids=["floats", "booleans", "one dimension", "three dimensions", "another top_k"],
)
def test_a_table_that_is_not_integers_rows_by_top_k_is_refused(values: NDArray[np.generic]) -> None:
    with pytest.raises(errors.Inconsistent, match="here"):
        checked(values)


def shared_map(rank: int, ranks: int) -> NDArray[np.int32]:
    share = NUM_EXPERTS // ranks
    found = np.full(NUM_EXPERTS, -1, dtype=np.int32)
    found[rank * share : (rank + 1) * share] = np.arange(share)
    return found


@given(tokens, st.sampled_from([1, 2, 3, 4]))
def test_the_ranks_shares_add_up_to_the_whole_and_skipped_slots_belong_to_nobody(
    rows: list[list[int]], ranks: int
) -> None:
    ids = checked(table(rows))
    whole = expert_load(ids, num_experts=NUM_EXPERTS)
    shares = [local_load(ids, shared_map(rank, ranks)) for rank in range(ranks)]
    assert np.concatenate([share.counts for share in shares]).tolist() == whole.counts.tolist()
    for share in shares:
        assert share.num_skipped == whole.num_skipped
        assert int(share.counts.sum()) + share.num_non_local + share.num_skipped == len(rows) * TOP_K


def test_a_skipped_slot_never_indexes_the_expert_map() -> None:
    owns_the_last = np.full(NUM_EXPERTS, -1, dtype=np.int32)
    owns_the_last[-1] = 0
    load = local_load(table([[-1, -1, 0]]), owns_the_last)
    assert (load.counts.tolist(), load.num_non_local, load.num_skipped) == ([0], 1, 2)


@given(st.permutations(list(range(6)) + [-1] * (NUM_EXPERTS - 6)))
def test_an_expert_map_in_any_order_is_accepted_and_a_local_index_twice_is_not(order: list[int]) -> None:
    check_expert_map(np.array(order, dtype=np.int32), num_experts=NUM_EXPERTS, where="here")
    twice = [0 if local == 5 else local for local in order]
    gap = [6 if local == 5 else local for local in order]
    below = [-2 if local == -1 else local for local in order]
    for wrong in (twice, gap, below, order[1:]):
        with pytest.raises(errors.Inconsistent, match="here"):
            check_expert_map(np.array(wrong, dtype=np.int32), num_experts=NUM_EXPERTS, where="here")


@given(tokens, st.sampled_from(["uint8", "int16", "uint16", "int32", "int64"]))
def test_raw_ids_of_a_declared_type_are_read_back(rows: list[list[int]], dtype: str) -> None:
    ids = np.abs(table(rows)).reshape(-1, 1, TOP_K)
    data = ids.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    found = ids_from_bytes(data, dtype=dtype, num_tokens=len(rows), num_layers=1, top_k=TOP_K, where="here")
    assert found.tolist() == ids.tolist()


def test_raw_ids_of_two_bytes_are_not_taken_for_one_byte_ids() -> None:
    data = np.arange(2 * 4 * TOP_K, dtype="<u2").tobytes()
    with pytest.raises(errors.Inconsistent, match=r"found 48 bytes\..*Declare the integer type"):
        ids_from_bytes(data, dtype=None, num_tokens=2, num_layers=4, top_k=TOP_K, where="here")
    with pytest.raises(errors.Inconsistent, match="expected 96 bytes"):
        ids_from_bytes(data, dtype="int32", num_tokens=2, num_layers=4, top_k=TOP_K, where="here")


def merged(counts: list[list[int]], scope: str | None, num_tokens: int) -> list[int]:
    arrays = [np.array(one, dtype=np.int64) for one in counts]
    return merged_load(arrays, scope=scope, num_tokens=num_tokens, top_k=2, where="here").tolist()


def test_counts_of_ranks_that_saw_all_tokens_are_not_added_up() -> None:
    assert merged([[3, 3, 2], [3, 3, 2]], "global", 4) == [3, 3, 2]
    assert merged([[3, 3, 2], [3, 3, 2]], None, 4) == [3, 3, 2]


def test_counts_of_ranks_that_saw_their_own_tokens_are_added_up() -> None:
    assert merged([[3, 1, 0], [0, 2, 2]], "local", 4) == [3, 3, 2]
    assert merged([[3, 1, 0], [0, 2, 2]], None, 4) == [3, 3, 2]


def test_counts_summed_under_the_wrong_scope_break_the_conservation_law() -> None:
    with pytest.raises(errors.Inconsistent, match="sum 16 does not equal"):
        merged([[3, 3, 2], [3, 3, 2]], "local", 4)
    with pytest.raises(errors.Inconsistent, match="sum 4 does not equal"):
        merged([[3, 1, 0], [3, 1, 0]], "global", 4)


def test_ranks_that_differ_although_each_saw_all_tokens_are_refused() -> None:
    with pytest.raises(errors.Inconsistent, match="ranks that differ"):
        merged([[3, 3, 2], [2, 3, 3]], "global", 4)


def test_a_scope_that_neither_reading_fits_or_both_do_is_ambiguous() -> None:
    with pytest.raises(errors.Ambiguous, match="a declared scope"):
        merged([[3, 3, 1], [3, 3, 1]], None, 4)
    with pytest.raises(errors.Ambiguous, match="a declared scope"):
        merged([[3, 3, 2], [0, 0, 0]], None, 4)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 3))
def test_the_longest_run_of_rows_alike_in_every_layer_is_counted(kinds: list[int], num_layers: int) -> None:
    layers = [np.array([[(kind + layer) % 4, 4, 5] for kind in kinds], dtype=np.int32) for layer in range(num_layers)]
    text, longest = "".join(map(str, kinds)), 1
    for kind in "0123":
        while kind * (longest + 1) in text:
            longest += 1
    assert suspicious_padding(layers) == (longest if longest > 1 else 0)


def test_rows_that_differ_in_one_layer_are_not_stale() -> None:
    same = table([[0, 1, 2], [0, 1, 2]])
    other = table([[0, 1, 2], [0, 1, 3]])
    assert suspicious_padding([same, same]) == 2
    assert suspicious_padding([same, other]) == 0
