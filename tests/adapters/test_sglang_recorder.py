"""Files that SGLang's own recorder wrote (fixtures/sglang_recorder/README.md). Expected ids are the ones it was fed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from moegauge import errors
from moegauge.adapters.routes.normal_form import Declared, ForeignLoads, ForeignRoutes
from moegauge.adapters.routes.sglang_recorder import read_sglang_recorder
from moegauge.records.identity import ModelShape

FIXTURES = Path(__file__).parent / "fixtures" / "sglang_recorder"
SHAPE = ModelShape(hidden_size=64, intermediate_size=32, num_experts=8, top_k=2)
KNOWN = Declared(
    shape=SHAPE, moe_layers=(1, 2), num_layers=3, scope="local", map_constant=True, num_logical={0: 3, 1: 1}
)


def test_rows_of_per_token_are_the_ones_that_were_routed() -> None:
    read = read_sglang_recorder([FIXTURES / "per_token.pt"], KNOWN)
    assert isinstance(read, ForeignRoutes)
    table = read.tables[0]
    assert (table.iteration.tolist(), table.layer.tolist()) == ([0, 0, 1, 1], [1, 2, 1, 2])
    assert table.offset.tolist() == [0, 3, 6, 7, 8]
    assert read.physical[0].tolist() == [[8, 1], [9, 0], [0, 3], [2, 4], [5, 8], [7, 6], [1, 2], [9, 8]]
    assert table.topk_ids.tolist() == [[0, 1], [3, 0], [0, 3], [2, 4], [5, 0], [7, 6], [1, 2], [3, 0]]
    assert (read.source_format, read.numbered_by, read.ids_type) == ("sglang_per_token", "iteration", "int32")


def test_the_last_map_is_taken_only_where_experts_stayed_in_place() -> None:
    with pytest.raises(errors.Ambiguous, match="map of iteration 0"):
        read_sglang_recorder([FIXTURES / "per_token.pt"], replace(KNOWN, map_constant=None))


def test_a_top_k_that_cuts_real_ids_is_refused() -> None:
    one = ModelShape(hidden_size=64, intermediate_size=32, num_experts=8, top_k=1)
    with pytest.raises(errors.Inconsistent, match="after the model's top_k 1"):
        read_sglang_recorder([FIXTURES / "per_token.pt"], replace(KNOWN, shape=one))


def test_layers_have_to_be_declared() -> None:
    with pytest.raises(errors.Ambiguous, match=r"\(moe_layers\)"):
        read_sglang_recorder([FIXTURES / "per_token.pt"], replace(KNOWN, moe_layers=None))


def test_counts_of_per_pass_are_of_slots() -> None:
    read = read_sglang_recorder([FIXTURES / "per_pass.pt"], KNOWN)
    assert isinstance(read, ForeignLoads)
    assert (read.ids, read.rank.tolist(), read.number.tolist()) == ("physical", [0, 0], [0, 1])
    assert read.counts[0].tolist() == [[2, 1, 0, 1, 0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 1, 1, 1, 1, 1, 0]]
    assert read.counts[1].tolist() == [[0, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]]


def test_counts_of_stat_are_of_experts_in_slots_of_a_ring() -> None:
    read = read_sglang_recorder([FIXTURES / "stat.pt"], KNOWN)
    assert isinstance(read, ForeignLoads)
    assert (read.ids, read.rank.tolist(), read.findings[0].code) == ("logical", [-1] * 4, "ITERATIONS_UNKNOWN")
    assert read.counts[0].tolist() == [[3, 1, 0, 2, 0, 0, 0, 0], [1, 0, 1, 0, 1, 1, 1, 1]]
    assert read.counts[1].tolist() == [[0, 1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 1, 0, 0, 0, 0]]
    assert int(read.counts[2:].sum()) == 0


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"scope": None}, errors.Ambiguous, "the file holds the sum over ranks"),
        ({"scope": "global"}, errors.Inconsistent, "no count is divided"),
        ({"map_constant": None}, errors.Ambiguous, "map_constant"),
        ({"num_logical": {0: 2}}, errors.Inconsistent, r"sum 6 does not equal tokens\*K=4"),
        ({"num_layers": 4, "moe_layers": (1, 2, 3, 0)}, errors.Inconsistent, "3 layers, which matches neither"),
        ({"num_layers": 3, "moe_layers": (0, 1)}, errors.Inconsistent, r"step 0: \[0, 6\]"),
    ],
)
def test_what_stat_does_not_say_is_asked_for(changed: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        read_sglang_recorder([FIXTURES / "stat.pt"], replace(KNOWN, **changed))


def test_files_of_two_modes_are_not_one_recording() -> None:
    with pytest.raises(errors.Inconsistent, match="per_pass, per_token"):
        read_sglang_recorder([FIXTURES / "per_pass.pt", FIXTURES / "per_token.pt"], KNOWN)


def test_the_same_file_twice_is_a_repetition() -> None:
    with pytest.raises(errors.Inconsistent, match="each iteration of a rank once"):
        read_sglang_recorder([FIXTURES / "per_token.pt"] * 2, KNOWN)


def per_token(path: Path, rank: int, rows: int) -> Path:
    record = {
        "forward_pass_id": 0,
        "rank": rank,
        "gatherer_key": "primary",
        "input_ids": list(range(rows)),
        "topk_ids_of_layer": torch.tensor([[[0, 1]] * rows], dtype=torch.int32),
    }
    torch.save({"records": [record], "last_physical_to_logical_map": torch.arange(8)}, path)
    return path


def test_a_rank_whose_file_is_not_given_is_named(tmp_path: Path) -> None:
    known = replace(KNOWN, moe_layers=(0,), num_layers=1)
    files = [per_token(tmp_path / f"{rank}.pt", rank, 2) for rank in (0, 2)]
    with pytest.raises(errors.Incomplete, match="no rank 1"):
        read_sglang_recorder(files, known)


def test_another_file_of_torch_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "<b>epoch</b>": 3}, tmp_path / "x.pt")
    with pytest.raises(errors.MalformedFile, match="found <b>epoch</b>, state_dict"):
        read_sglang_recorder([tmp_path / "x.pt"], KNOWN)


@pytest.mark.parametrize("value", [[], {"records": []}, {"records": [1]}, {"records": [{"rank": 0}]}, 3])
def test_a_file_without_a_pass_is_refused(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(errors.MalformedFile, match="at least one pass"):
        read_sglang_recorder([tmp_path / "x.pt"], KNOWN)


def test_rows_fewer_than_the_scheduler_ran_are_named(tmp_path: Path) -> None:
    known = replace(KNOWN, moe_layers=(0,), num_layers=1, scope=None, num_logical={0: 40})
    read = read_sglang_recorder([per_token(tmp_path / "x.pt", 0, 32)], known)
    assert isinstance(read, ForeignRoutes)
    assert ("ROWS_MISSING", ("iteration 0 layer 0: 32 of 40 rows",)) in [(f.code, f.examples) for f in read.findings]
    assert np.diff(read.tables[0].offset).tolist() == [32]
