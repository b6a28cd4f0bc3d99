"""Without its guard a reported fault gives the wrong outcome again; the table of cases names files that exist."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_b15_b17_b18_b25_foreign_routes import B15, B18, B25, MAP, SLOTS, read, rows

import moegauge
from moegauge import errors
from moegauge.adapters.routes import foreign
from moegauge.routing import expert_load

SOURCE = Path(moegauge.__file__).parent
TESTS = Path(__file__).parent.parent
TABLE = re.findall(
    r"^\| (B\d\d) \| [^|]+ \| `([^`]+)` \| `([^`:]+)(?::(\w+))?` \| (yes|no) \|$",
    (Path(__file__).parent / "README.md").read_text(),
    re.MULTILINE,
)


def test_the_table_has_thirty_cases_each_with_a_test_and_a_guard_that_exist() -> None:
    assert len({case for case, *_ in TABLE}) == len(TABLE) == 30
    for case, test, module, function, _ in TABLE:
        assert (TESTS / test).is_file(), case
        assert not function or f"def {function}(" in (SOURCE / module).read_text(), case


def test_the_table_says_yes_where_a_guard_is_taken_away_here() -> None:
    here = {name[5:8].upper() for name in globals() if re.match(r"test_b\d\d_", name)}
    assert {case for case, *_, removed in TABLE if removed == "yes"} == here


def test_b15_without_its_finding_a_lost_row_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = replace(B15, num_logical={0: 5})
    assert read(rows(4), lost).findings
    monkeypatch.setattr(foreign, "_findings", lambda tables, declared: ())
    assert read(rows(4), lost).findings == ()


def test_b17_without_its_finding_a_draft_models_rows_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(B15, num_logical={0: 5}, target_only=None)
    assert read(rows(5), unknown).findings
    monkeypatch.setattr(foreign, "_findings", lambda tables, declared: ())
    assert read(rows(5), unknown).findings == ()


def test_b18_without_the_map_slots_are_counted_as_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(B18, ids="physical", physical_to_logical={0: MAP})

    def clipped(slots: Any, *given: object) -> Any:
        return np.minimum(slots, 7)

    monkeypatch.setattr(foreign, "logical_ids", clipped)
    counts = expert_load.expert_load(read(SLOTS, known).tables[None].topk_ids, num_experts=8).counts
    assert counts.tolist() != [3, 1, 0, 2, 0, 0, 0, 0]


def test_b22_without_conservation_rank_sums_four_times_too_large_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = [np.array([2, 2, 0, 0])] * 4
    given = {"scope": "local", "num_tokens": 2, "top_k": 2, "where": "dumps"}
    with pytest.raises(errors.Inconsistent, match=r"sum 16 does not equal tokens\*K=4"):
        expert_load.merged_load(dumps, **given)
    monkeypatch.setattr(expert_load, "check_conservation", lambda counts, **given: None)
    assert expert_load.merged_load(dumps, **given).tolist() == [8, 8, 0, 0]


def test_b25_without_the_check_of_the_axis_every_layer_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.tile(np.array([0, 1]), (1, 60, 1))
    ids[0, 0] = [6, 7]
    layers = tuple(range(3, 61))
    monkeypatch.setattr(foreign, "moe_layers_of", lambda piece, declared, where: (tuple(range(58)), layers))
    table = read(ids, B25).tables[None]
    assert (table.layer[0], table.topk_ids[0].tolist()) == (3, [6, 7])
