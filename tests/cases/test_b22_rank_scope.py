"""Rank dumps that each hold the whole group's tokens must not be added up.

https://github.com/vllm-project/vllm/pull/22167
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, Rows, literal_kind, moegauge, write_bundle

from moegauge import errors
from moegauge.kernels.registry import KINDS
from moegauge.routing.expert_load import expert_load, merged_load
from simulator import TraceBuilder

KIND = literal_kind("one_a_layer", ["fused_moe"])
GLOBAL_DUMPS = [[2, 2, 0, 0]] * 4
LOCAL_DUMPS = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
GLOBAL_ROWS = [[[0, 1], [1, 0]]] * 4
LOCAL_ROWS = [[[0, 1]], [[1, 0]], [], []]


def merged(dumps: list[list[int]], scope: str | None) -> list[int]:
    counts = [np.array(dump, dtype=np.int64) for dump in dumps]
    return merged_load(counts, scope=scope, num_tokens=2, top_k=2, where="iteration 0").tolist()


@pytest.mark.parametrize("scope", ["global", None], ids=["declared", "proved"])
def test_a_global_scope_counts_one_rank(scope: str | None) -> None:
    assert merged(GLOBAL_DUMPS, scope) == [2, 2, 0, 0]


@pytest.mark.parametrize("scope", ["local", None], ids=["declared", "proved"])
def test_a_local_scope_adds_the_ranks(scope: str | None) -> None:
    assert merged(LOCAL_DUMPS, scope) == [2, 2, 0, 0]


def test_adding_global_dumps_is_refused_by_the_conservation_law() -> None:
    with pytest.raises(errors.Inconsistent, match=r"sum 16 does not equal tokens\*K=4"):
        merged(GLOBAL_DUMPS, "local")


def test_taking_one_local_dump_for_all_is_refused() -> None:
    with pytest.raises(errors.Inconsistent, match="ranks that differ"):
        merged(LOCAL_DUMPS, "global")


def test_a_scope_that_the_counts_do_not_prove_is_refused() -> None:
    with pytest.raises(errors.Ambiguous, match="counts 3 on rank 0 and 12 in all, for tokens"):
        merged([[3, 0, 0, 0]] * 4, None)


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


def imported(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: Sequence[Rows],
    *,
    rank_tokens: list[int] | None = None,
    **meta: object,
) -> Outcome:
    """Import four ranks, dp=4, of one iteration with 2 tokens."""
    traces = []
    for rank in range(4):
        trace = TraceBuilder(device=rank, rank=rank, world_size=4)
        trace.device_scope("iteration I0", EPOCH_NS, 500 * US)
        trace.kernel("fused_moe" if rows[rank] else "other", EPOCH_NS + US, 50 * US)
        traces.append(trace)
    step: dict[str, object] = {"iter": 0, "tokens": 2}
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[step if rank_tokens is None else step | {"rank_tokens": rank_tokens}],
        routes=[[(0, 0, rank_rows)] for rank_rows in rows],
        traces=traces,
        num_experts=4,
        parallel={"dp": 4},
        **meta,
    )
    out = tmp_path / "capture"
    outcome = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", out, "--json")
    assert out.exists() == (outcome.status == 0)
    return outcome


def counts_of(capture: Path, ranks: list[int]) -> list[int]:
    rows = pl.read_parquet(capture / "routed_inputs.parquet").filter(pl.col("rank").is_in(ranks))
    return expert_load(np.array(rows["topk_ids"].to_list(), dtype=np.int32), num_experts=4).counts.tolist()


@pytest.mark.usefixtures("_registered")
def test_ranks_that_hold_the_same_rows_are_proved_global(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = imported(tmp_path, capsys, GLOBAL_ROWS)
    assert shown.json["capture"]["topology"]["routed_scope"] == "global"
    assert counts_of(tmp_path / "capture", [0]) == [2, 2, 0, 0]


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("rank_tokens", [None, [2, 2, 2, 2]])
def test_global_rows_declared_local_are_refused(
    rank_tokens: list[int] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = imported(tmp_path, capsys, GLOBAL_ROWS, routed_scope="local", rank_tokens=rank_tokens)
    assert refused.status == 2
    assert "sum 16 does not equal tokens*K=4" in refused.err


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("rank_tokens", [None, [1, 1, 0, 0]])
def test_local_rows_add_up_to_the_same_counts(
    rank_tokens: list[int] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = imported(tmp_path, capsys, LOCAL_ROWS, routed_scope="local", rank_tokens=rank_tokens)
    assert shown.status == 0
    assert counts_of(tmp_path / "capture", [0, 1, 2, 3]) == [2, 2, 0, 0]


@pytest.mark.usefixtures("_registered")
def test_local_rows_without_a_scope_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = imported(tmp_path, capsys, LOCAL_ROWS)
    assert refused.status == 2
    assert "AMBIGUOUS" in refused.err
    assert "rows that differ between ranks and no routed_scope" in refused.err


@pytest.mark.usefixtures("_registered")
def test_rows_that_differ_cannot_be_declared_global(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[[0, 1], [1, 0]], [[0, 1], [1, 0]], [[0, 1], [2, 0]], [[0, 1], [1, 0]]]
    refused = imported(tmp_path, capsys, rows, routed_scope="global")
    assert refused.status == 2
    assert "rows of rank 2 that differ from those of rank 0" in refused.err
