"""moegauge kernels list and show: what is registered, and what can be run here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cases.literal_bundle import moegauge
from moegauge.adapters.runners import registry
from moegauge.adapters.runners.registry import NEEDS, RUNNERS
from moegauge.kernels.registry import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_the_list_holds_every_kind_with_what_is_known_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = moegauge(capsys, "kernels", "list", "--json")
    assert found.status == 0
    kinds = {one["name"]: one for one in found.json}
    assert list(kinds) == list(KINDS)
    marlin = kinds["vllm_marlin_moe"]
    assert marlin["boundary"] == ["permute", "experts", "activation", "topk_weight_and_reduce"]
    assert (marlin["confirmed"], marlin["runners"]) == (False, [])
    (gemm,) = [role for role in marlin["roles"] if role["name"] == "gemm"]
    assert (gemm["told_apart"], gemm["stages"]) == (["gate and up", "down"], ["experts"])


def test_a_kernel_that_does_several_stages_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    shown = moegauge(capsys, "kernels", "show", "aiter_moe_1stage", "--json").json
    assert shown["roles"][0]["stages"] == ["experts", "activation", "unpermute", "topk_weight_and_reduce"]
    text = moegauge(capsys, "kernels", "show", "aiter_moe_1stage").out
    assert "experts+activation+unpermute+topk_weight_and_reduce" in text
    assert "no: read from source text; a capture takes it only by --kind" in text


@pytest.mark.parametrize(
    ("absent", "said"),
    [((), "vllm_cpu_moe"), (("vllm",), "vllm_cpu_moe (not here: no package vllm)")],
    ids=["all packages", "no vllm"],
)
def test_a_runner_is_there_or_the_package_it_lacks_is_named(
    absent: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name in absent else object())
    text = moegauge(capsys, "kernels", "show", "vllm_cpu_moe").out
    assert re.search(r"runners +(.*?) *\n", text)[1] == said


def test_the_packages_of_every_runner_are_known() -> None:
    assert list(NEEDS) == list(RUNNERS)
    assert {kind for kind, *_ in RUNNERS.values()} - set(KINDS) == {"torch_moe"}


def test_a_kind_that_is_not_registered_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused = moegauge(capsys, "kernels", "show", "vllm_triton")
    assert (refused.status, refused.out) == (2, "")
    assert "a name that is not registered" in refused.err


def test_the_page_lists_exactly_the_kinds_and_which_are_confirmed() -> None:
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| .* \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(kind.name, "yes" if kind.confirmed else "no") for kind in KINDS.values()]
