"""Ids in integer types that are too narrow or not declared.

https://github.com/sgl-project/sglang/pull/9499
https://github.com/PrimeIntellect-ai/verifiers/pull/2043
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, moegauge, write_bundle

from moegauge import errors
from moegauge.routing.expert_load import as_topk_ids, ids_from_bytes
from simulator import NAMES, TraceBuilder


def import_ids(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ids: list[int],
    *,
    ids_type: type[np.integer],
    num_experts: int,
    top_k: int,
) -> Outcome:
    """Import a bundle whose only routed row is ``ids``."""
    trace = TraceBuilder()
    trace.kernel(NAMES["gemm"], EPOCH_NS, 5 * US)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 1, "padded": 1}],
        routes=[[(0, 0, [ids])]],
        traces=[trace],
        num_experts=num_experts,
        top_k=top_k,
        ids_type=ids_type,
    )
    refused = moegauge(capsys, "capture", "import", "bundle", bundle, "--out", tmp_path / "capture")
    assert (tmp_path / "capture").exists() == (refused.status == 0)
    return refused


def test_two_spare_slots_of_255_are_refused_and_not_counted_as_expert_255(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [3, 9, 17, 20, 33, 41, 255, 255]
    refused = import_ids(tmp_path, capsys, ids, ids_type=np.uint8, num_experts=256, top_k=6)
    assert refused.status == 2
    assert "6 columns (the model's top_k)" in refused.err
    assert "8 columns, with id 255 twice in row 0" in refused.err


def test_two_slots_of_255_are_refused_at_the_right_width_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [3, 9, 17, 20, 255, 255]
    refused = import_ids(tmp_path, capsys, ids, ids_type=np.uint8, num_experts=256, top_k=6)
    assert refused.status == 2
    assert "id 255 twice in row 0" in refused.err


def test_two_bytes_of_a_declared_uint16_are_one_id() -> None:
    data = bytes([0x2C, 0x01])
    ids = ids_from_bytes(data, dtype="uint16", num_tokens=1, num_layers=1, top_k=1, where="ids")
    assert ids.tolist() == [[[300]]]
    assert as_topk_ids(ids[:, 0], top_k=1, num_experts=512, where="ids").tolist() == [[300]]


def test_bytes_without_a_type_are_refused_where_they_are_not_one_an_id() -> None:
    with pytest.raises(errors.Inconsistent) as refused:
        ids_from_bytes(bytes([0x2C, 0x01]), dtype=None, num_tokens=1, num_layers=1, top_k=1, where="ids")
    assert refused.value.expected == "1 bytes (1 tokens x 1 layers x 1 ids as uint8)"
    assert refused.value.found == "2 bytes"
    assert refused.value.remedy == "Declare the integer type of the ids (dtype), for example uint16."


def test_bytes_of_half_a_declared_id_are_refused() -> None:
    with pytest.raises(errors.Inconsistent, match=r"expected 4 bytes .* as uint16.*, found 3 bytes"):
        ids_from_bytes(bytes([0x2C, 0x01, 0x02]), dtype="uint16", num_tokens=1, num_layers=1, top_k=2, where="ids")


@pytest.mark.parametrize(
    ("ids", "ids_type", "num_experts"),
    [
        ([-56, 3], np.int8, 256),  # 200 as int8
        ([-1, 3], np.int8, 256),  # 255 as int8: looks like a skipped slot
        ([44, 3], np.uint8, 512),  # 300 as uint8: looks like another expert
    ],
)
def test_a_type_that_cannot_hold_the_experts_is_refused(
    ids: list[int],
    ids_type: type[np.integer],
    num_experts: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = import_ids(tmp_path, capsys, ids, ids_type=ids_type, num_experts=num_experts, top_k=2)
    assert refused.status == 2
    assert f"an integer type that holds every id up to {num_experts - 1}" in refused.err


def test_a_negative_id_other_than_the_skip_mark_is_never_padding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = import_ids(tmp_path, capsys, [-56, 3], ids_type=np.int16, num_experts=256, top_k=2)
    assert refused.status == 2
    assert "id -56 at row 0, slot 0" in refused.err


@pytest.mark.parametrize("ids_type", [np.uint8, np.int8, np.uint16, np.int64])
def test_any_type_that_holds_the_experts_gives_the_same_ids(ids_type: type[np.integer]) -> None:
    table = np.array([[3, 7], [0, 5]], dtype=ids_type)
    assert as_topk_ids(table, top_k=2, num_experts=8, where="ids").tolist() == [[3, 7], [0, 5]]
