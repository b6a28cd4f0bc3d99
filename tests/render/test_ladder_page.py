"""The ladder as a page: what stands in it, and what cannot get out of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import polars as pl
import pytest

from cases.literal_bundle import moegauge
from moegauge.cli.main import run
from moegauge.jobs.report import read_report
from moegauge.jobs.report_page import page_tables
from moegauge.records.comparison import LadderReport
from moegauge.render.html.columns import MAX_BINS, PageTables, chart_columns, timeline_lanes
from moegauge.render.html.ladder_page import ladder_page

BUNDLED = Path(__file__).parents[2] / "src" / "moegauge" / "bundled" / "h200-qwen3-live"


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report"
    run(["align", str(BUNDLED / "capture"), "--db", str(next(BUNDLED.glob("*.db"))), "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def report(aligned: Path) -> LadderReport:
    return read_report(aligned)


def embedded(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    value = json.loads(found.group(1))
    assert isinstance(value, dict)
    return value


def test_the_page_says_the_verdict_and_every_number_of_the_record(aligned: Path, report: LadderReport) -> None:
    page = ladder_page(report, page_tables(aligned, report), report_path="report")
    heading = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)
    assert heading is not None
    assert heading.group(1) == report.verdict.sentence
    for rung in report.rungs:
        assert rung.capture_wide is not None
        assert f"<b>{rung.capture_wide.relative_ratio:+.3%}".replace("-", "−") in page
    assert report.evidence.capture.digest in page


def test_the_charts_add_up_to_the_totals_of_rung_two(aligned: Path, report: LadderReport) -> None:
    data = embedded(ladder_page(report, page_tables(aligned, report), report_path="report"))
    wide = report.rungs[1].capture_wide
    assert wide is not None
    bins, cells = data["bins"], data["cells"]
    assert isinstance(bins, dict)
    assert isinstance(cells, dict)
    assert (sum(bins["left_ns"]), sum(cells["left_ns"])) == (wide.left_ns, wide.left_ns)


def test_the_page_loads_nothing(aligned: Path, report: LadderReport) -> None:
    page = ladder_page(report, page_tables(aligned, report), report_path="report")
    assert "default-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?!#)', page) == []
    assert [line for line in page.splitlines() if "http" in line and "http-equiv" not in line] == [
        line for line in page.splitlines() if "http://www.w3.org/2000/svg" in line
    ]


def test_names_that_are_markup_stay_text(aligned: Path, report: LadderReport) -> None:
    hostile = "</script><img src=x onerror=alert(1)><!--"
    tables = page_tables(aligned, report)
    assert tables.intervals is not None
    assert tables.iterations is not None
    marked = PageTables(
        invocations=tables.invocations,
        ranks=tables.ranks,
        iterations=tables.iterations.with_columns(launch_mode=pl.lit(hostile)),
        intervals=tables.intervals.with_columns(name=pl.lit(hostile)),
        capture_note=None,
    )
    page = ladder_page(msgspec.structs.replace(report, subject=hostile), marked, report_path=hostile)
    assert "<img" not in page
    assert page.count("</script>") == 2
    facts = embedded(page)["facts"]
    assert isinstance(facts, dict)
    assert set(facts["mode"]) == {hostile}


def test_a_capture_that_is_gone_is_said_and_nothing_is_drawn_for_it(
    aligned: Path, report: LadderReport, tmp_path: Path
) -> None:
    moved = tmp_path / "a" / "b" / "c"
    moved.mkdir(parents=True)
    for file in aligned.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    tables = page_tables(moved, report)
    assert tables.iterations is None
    page = ladder_page(report, tables, report_path="report")
    assert "the capture is not where the report links to it" in page
    assert embedded(page)["facts"] is None


def rows(num_iterations: int, num_layers: int) -> pl.DataFrame:
    each = pl.DataFrame({"iteration": range(num_iterations)}).join(
        pl.DataFrame({"layer": range(num_layers)}), how="cross"
    )
    return each.with_columns(
        pl.col("iteration").cast(pl.Int32),
        pl.col("layer").cast(pl.Int32),
        covered=pl.col("iteration") != 1,
        left_ns=pl.lit(100, pl.Int64),
        right_ns=pl.lit(103, pl.Int64),
        beyond_invocation_tolerance=pl.lit(False),
    )


def test_a_long_capture_is_drawn_in_bins_that_lose_nothing() -> None:
    data = chart_columns(PageTables(rows(10_000, 60), pl.DataFrame(), None, None, "not read"))
    assert data["bin_size"] == 25
    assert len(data["bins"]["first"]) == 400 <= MAX_BINS
    assert sum(data["bins"]["left_ns"]) == 100 * 60 * 9_999
    assert sum(data["cells"]["right_ns"]) == 103 * 60 * 9_999


def test_an_iteration_that_a_side_lacks_is_none_and_not_zero() -> None:
    data = chart_columns(PageTables(rows(3, 2), pl.DataFrame(), None, None, "not read"))
    assert data["bins"]["left_ns"] == [200, None, 200]
    assert data["cells"]["right_ns"] == [103, None, 103, 103, None, 103]
    assert data["bins"]["num"] == [2, 0, 2]


def test_a_timeline_counts_from_each_ranks_first_kernel() -> None:
    kernels = pl.DataFrame(
        {
            "rank": [0, 0, 1],
            "stream": [7, 9, 7],
            "start_ns": [1_000, 1_040, 5_000],
            "end_ns": [1_030, 1_050, 5_060],
            "name": ["a", "b", "c"],
            "stage": ["experts", None, "experts"],
            "op_class": ["IN_BOUNDARY", "FOREIGN", "IN_BOUNDARY"],
        }
    )
    lanes = timeline_lanes(kernels)
    assert [(lane["rank"], lane["stream"]) for lane in lanes] == [(0, 7), (0, 9), (1, 7)]
    assert [(k["start_ns"], k["end_ns"]) for lane in lanes for k in lane["kernels"]] == [(0, 30), (40, 50), (0, 60)]


def test_a_page_is_written_once_and_only_where_it_was_asked_for(
    aligned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert moegauge(capsys, "report", aligned, "--format", "html", "--out", out).status == 0
    assert out.read_text().startswith("<!doctype html>")
    assert moegauge(capsys, "report", aligned, "--format", "html", "--out", out).status == 2
    assert moegauge(capsys, "report", aligned, "--format", "html").status == 2
    assert moegauge(capsys, "report", aligned, "--out", tmp_path / "other.html").status == 2
