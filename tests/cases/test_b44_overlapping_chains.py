"""Chains that start before the one before them ends: each keeps its whole time, and the overlap is flagged.

https://github.com/pegainfer-project/pegainfer/issues/569
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from literal_bundle import EPOCH_NS, US, Outcome, import_passes, literal_kind, moegauge, write_bundle

from moegauge.adapters.profile_db import open_profile_db
from moegauge.kernels.registry import KINDS
from moegauge.timing.intervals import busy_union
from simulator import TraceBuilder

KIND = literal_kind("pdl_chain", ["producer", "consumer"])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, KIND.name, KIND)


BACK_TO_BACK = range(0, 90, 9)
"""Starts of the ten chains in us."""


def chains(annotation: str, *, starts: Sequence[int] = BACK_TO_BACK, offset_ns: int = 0) -> TraceBuilder:
    """One chain an iteration, from its start s in us: producer [s, s + 6), consumer [s + 4, s + 10)."""
    trace = TraceBuilder()
    for i, start in enumerate(starts):
        host = EPOCH_NS + offset_ns - 1000 * US + i * 10 * US
        trace.host_scope(annotation.format(i), host, 5 * US)
        begin = EPOCH_NS + offset_ns + start * US
        trace.kernel("producer", begin, 6 * US, correlation=trace.launch(host + US))
        trace.kernel("consumer", begin + 4 * US, 6 * US, correlation=trace.launch(host + 2 * US))
    return trace


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, starts: Sequence[int] = BACK_TO_BACK
) -> tuple[Outcome, Path]:
    bundle = write_bundle(
        tmp_path / "bundle",
        steps=[{"iter": i, "tokens": 1, "padded": 1} for i in range(len(starts))],
        routes=[[(i, 0, [[i % 8, (i + 3) % 8]]) for i in range(len(starts))]],
        traces=[chains("iteration I{}", starts=starts)],
    )
    capture = tmp_path / "capture"
    shown = moegauge(capsys, "capture", "import", "bundle", bundle, "--kind", KIND.name, "--out", capture, "--json")
    assert shown.status == 0
    return shown, capture


def test_the_union_of_all_chains_is_91_us() -> None:
    start = np.array([t for i in range(10) for t in (9 * i, 9 * i + 4)]) * US
    assert busy_union(start, start + 6 * US) == 91_000


def test_every_iteration_is_10_us_and_not_12_or_9(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, capture = imported(tmp_path, capsys)
    rows = pl.read_parquet(capture / "invocations.parquet")
    assert rows["busy_ns"].to_list() == [10_000] * 10
    assert rows["span_ns"].to_list() == [10_000] * 10
    assert shown.json["capture"]["coverage"]["busy_ns"] == 100_000


def test_nine_steps_that_overlap_by_1_us_are_flagged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = imported(tmp_path, capsys)
    (finding,) = shown.json["capture"]["findings"]
    assert (finding["code"], finding["num"], finding["ns"]) == ("CROSS_INVOCATION_OVERLAP", 9, 9_000)
    assert finding["examples"] == [
        "iteration 1, layer 0: 1000 ns before an earlier one ends",
        "iteration 2, layer 0: 1000 ns before an earlier one ends",
        "iteration 3, layer 0: 1000 ns before an earlier one ends",
        "iteration 4, layer 0: 1000 ns before an earlier one ends",
        "iteration 5, layer 0: 1000 ns before an earlier one ends",
    ]


@pytest.mark.parametrize("starts", [[0, 10, 20], [0, 12, 24]], ids=["touching", "apart"])
def test_chains_that_touch_or_lie_apart_are_not_flagged(
    starts: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(tmp_path, capsys, starts=starts)[0].json["capture"]["findings"] == []


def test_only_the_chain_that_starts_early_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = imported(tmp_path, capsys, starts=[0, 10, 18, 28])
    (finding,) = shown.json["capture"]["findings"]
    assert (finding["num"], finding["ns"]) == (1, 2_000)
    assert finding["examples"] == ["iteration 2, layer 0: 2000 ns before an earlier one ends"]


def test_an_overlapping_replay_gives_samples_of_10_us(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, capture = imported(tmp_path, capsys)
    db = import_passes(capsys, capture, lambda offset: [chains("exact L0 I{}", offset_ns=offset)])
    with open_profile_db(db) as database:
        assert database.samples()["busy_ns"].to_list() == [10_000] * 70
    answer = moegauge(capsys, "align", capture, "--db", db, "--out", tmp_path / "report", "--json")
    for rung in answer.json["rungs"][:2]:
        for pair, total in ((rung["selected"], 10_000), (rung["capture_wide"], 100_000)):
            assert (pair["status"], pair["left_ns"], pair["right_ns"]) == ("MATCH", total, total)
    text = moegauge(capsys, "report", tmp_path / "report").out
    assert "CROSS_INVOCATION_OVERLAP" in text
    for wrong in ("9.100 µs", "91.000 µs", "12.000 µs", "120.000 µs"):
        assert wrong not in text
