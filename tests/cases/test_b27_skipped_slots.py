"""A skipped slot (-1) is neither an expert nor an index into the expert map.

https://github.com/vllm-project/vllm/pull/46408
https://github.com/vllm-project/vllm-xpu-kernels/issues/571
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, literal_kind, moegauge, write_bundle

from moegauge.kernels.registry import KINDS
from moegauge.routing.expert_load import as_topk_ids, expert_load, local_load
from simulator import TraceBuilder

KIND = literal_kind("one_a_layer", ["fused_moe"])
IDS = [[0, -1], [3, 2]]


def checked() -> np.ndarray:
    return as_topk_ids(np.array(IDS, dtype=np.int32), top_k=2, num_experts=4, where="ids")


def import_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: list[list[int]], *more: str) -> Outcome:
    trace = TraceBuilder()
    trace.device_scope("iteration I0", EPOCH_NS, 500 * US)
    trace.kernel("fused_moe", EPOCH_NS, 50 * US)
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": 0, "tokens": 2, "padded": 2}],
        routes=[[(0, 0, ids)]],
        traces=[trace],
        num_experts=4,
    )
    return moegauge(capsys, "capture", "import", "bundle", bundle, *more, "--out", tmp_path / "capture", "--json")


def test_three_assignments_and_one_skipped_slot_are_counted() -> None:
    counted = expert_load(checked(), num_experts=4)
    assert counted.counts.tolist() == [1, 0, 1, 1]
    assert (counted.num_tokens, counted.num_skipped, int(counted.counts.sum())) == (2, 1, 3)


@pytest.mark.parametrize(
    ("expert_map", "local_counts", "num_non_local"),
    [
        ([-1, 0, 1, -1], [0, 1], 2),  # local expert 1 is expert 2; experts 0 and 3 live elsewhere
        ([-1, -1, 0, 1], [1, 1], 1),  # the map ends in a valid local id, which -1 must not reach
    ],
)
def test_a_skipped_slot_does_not_reach_the_end_of_the_expert_map(
    expert_map: list[int], local_counts: list[int], num_non_local: int
) -> None:
    mine = local_load(checked(), np.array(expert_map, dtype=np.int32))
    assert mine.counts.tolist() == local_counts
    assert (mine.num_non_local, mine.num_skipped) == (num_non_local, 1)


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        ([[0, -2], [3, 2]], "id -2 at row 0, slot 1"),
        ([[0, -1], [4, 2]], "id 4 at row 1, slot 0"),
    ],
)
def test_other_negative_or_too_large_ids_are_refused(
    ids: list[list[int]], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = import_ids(tmp_path, capsys, ids)
    assert outcome.status == 2
    assert "ids in -1..3" in outcome.err
    assert named in outcome.err
    assert not (tmp_path / "capture").exists()


def test_skipped_slots_are_imported_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)
    outcome = import_ids(tmp_path, capsys, IDS, "--kind", KIND.name)
    assert outcome.status == 0
    assert outcome.json["capture"]["coverage"]["num_rank_invocations_routed"] == 1
