"""Expert-parallel ranks derived from a capture of one: named as derived, and nothing of them is lost or invented."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cases.literal_bundle import moegauge
from fake_ranks import two_ranks
from moegauge import errors
from moegauge.adapters.profile_db import open_profile_db
from moegauge.evidence.capture_folder import CaptureFolder
from moegauge.jobs.capture_import import import_serving
from moegauge.jobs.expert_shards import ShardedSource, derived_type, linear_expert_map, served_type
from moegauge.jobs.profile_specs import EXACT, ITERATION, InputChoice, SpecSource

COMMON = ("--runner", "torch_moe", "--cache-state", "warm", "--launch-mode", "eager", "--passes", "2")


def test_consecutive_experts_are_shared_out_and_the_first_ranks_own_the_rest() -> None:
    assert linear_expert_map(0, 2, 4).tolist() == [0, 1, -1, -1]
    assert linear_expert_map(1, 2, 4).tolist() == [-1, -1, 0, 1]
    assert [linear_expert_map(rank, 3, 8).tolist() for rank in range(3)] == [
        [0, 1, 2, -1, -1, -1, -1, -1],
        [-1, -1, -1, 0, 1, 2, -1, -1],
        [-1, -1, -1, -1, -1, -1, 0, 1],
    ]


def test_a_derived_input_has_a_type_of_its_own_that_names_what_it_was_derived_from() -> None:
    assert derived_type("exact", 2) == "exact_derived_ep2"
    assert served_type("exact_derived_ep2") == ("exact", 2)
    assert served_type("exact") == ("exact", None)
    assert served_type("exact_derived_ep9999999999") == ("exact_derived_ep9999999999", None)


def test_every_rank_gets_the_rows_that_were_served_and_its_share_of_the_experts(capture: CaptureFolder) -> None:
    served = SpecSource(capture).specs(InputChoice(type=EXACT))
    derived = ShardedSource(SpecSource(capture), 2).specs(InputChoice(type=EXACT))
    assert [one.rank for one in derived] == [0] * len(served) + [1] * len(served)
    for rank, mine in ((0, derived[: len(served)]), (1, derived[len(served) :])):
        assert [(one.iteration, one.layer) for one in mine] == [(one.iteration, one.layer) for one in served]
        for one, original in zip(mine, served, strict=True):
            assert np.array_equal(one.topk_ids, original.topk_ids)
            assert one.match.input_digest == original.match.input_digest
            assert one.match.input_type == "exact_derived_ep2"
            assert (one.match.subject.ep_size, one.match.subject.num_local_experts) == (2, len(one.expert_map) // 2)
            assert np.flatnonzero(one.expert_map >= 0)[0] == rank * len(one.expert_map) // 2


def test_rebuilt_inputs_are_those_of_the_capture(capture: CaptureFolder) -> None:
    choice = InputChoice(type=ITERATION)
    served = SpecSource(capture).specs(choice)
    derived = ShardedSource(SpecSource(capture), 2).specs(choice)
    assert [one.match.input_digest for one in derived] == [one.match.input_digest for one in served] * 2
    assert {one.match.input_type for one in derived} == {"iteration_popularity_derived_ep2"}


@pytest.mark.parametrize("num_ranks", [0, 1, 1000])
def test_a_number_of_ranks_that_experts_cannot_be_shared_over_is_refused(
    capture: CaptureFolder, num_ranks: int
) -> None:
    with pytest.raises(errors.MisuseError, match=r"expected 2 to [0-9]+ ranks \(the model's experts\)") as raised:
        ShardedSource(SpecSource(capture), num_ranks)
    assert raised.value.where == "--expert-parallel"


def test_ranks_of_a_capture_that_has_several_are_not_derived_again(tmp_path: Path) -> None:
    several = import_serving(two_ranks().write(tmp_path / "bundle"), tmp_path / "two")
    with pytest.raises(errors.MisuseError, match="expected a capture of one rank with all experts, found 2 ranks"):
        ShardedSource(SpecSource(several), 2)


def test_measured_derived_ranks_verify_and_answer_no_lookup_of_served_ones(
    capture: CaptureFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "shards.db"
    where = ("--capture", capture.path, "--db", db)
    ran = moegauge(
        capsys, "profile", "run", *where, *COMMON, "--expert-parallel", "2", "--ranks-together", "no", "--json"
    )
    assert (ran.status, ran.json["num_rows"], ran.json["num_missing"]) == (0, 18, 0)
    assert ran.json["ranks"] == "ranks ran one at a time, as asked"
    look = (*where, "--runner", "torch_moe", "--launch-mode", "eager", "--passes", "2", "--json")
    assert moegauge(capsys, "profile", "count-missing", *look, "--expert-parallel", "2").json["num_missing"] == 0
    assert moegauge(capsys, "profile", "count-missing", *look, "--expert-parallel", "3").json["num_missing"] == 27
    assert moegauge(capsys, "profile", "count-missing", *look).json["num_missing"] == 9
    verified = moegauge(capsys, "profile", "verify", db, "--capture", capture.path)
    assert verified.status == 0
    assert "inputs of 18 invocations from the capture" in verified.out
    with open_profile_db(db) as database:
        kinds = {row.key.match.input_type for row in database.rows()}
    assert kinds == {"exact_derived_ep2"}


def test_given_inputs_have_their_own_share_of_the_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = moegauge(
        capsys, "profile", "run", "--db", tmp_path / "a.db", "--runner", "torch_moe", "--spec", tmp_path / "spec.json",
        "--expert-parallel", "2",
    )  # fmt: skip
    assert refused.status == 2
    assert re.search(r"--expert-parallel.*a --capture beside it", refused.err, re.DOTALL)
