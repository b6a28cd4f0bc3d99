"""The report page in a real browser, opened from disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Page, sync_playwright

from moegauge.cli.main import run
from moegauge.jobs.report import read_report
from moegauge.jobs.report_page import page_tables
from moegauge.records.comparison import LadderReport
from moegauge.render.html.columns import PageTables
from moegauge.render.html.ladder_page import ladder_page
from moegauge.render.units import ratio_text

BUNDLED = Path(__file__).parents[2] / "src" / "moegauge" / "bundled" / "h200-qwen3-live"
HOSTILE = "</script><img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("browser") / "report"
    run(["align", str(BUNDLED / "capture"), "--db", str(next(BUNDLED.glob("*.db"))), "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def report(folder: Path) -> LadderReport:
    return read_report(folder)


@pytest.fixture
def opened() -> Iterator[tuple[Page, list[str]]]:
    """A page, and what it said or asked for that it should not have."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith("file:") else faults.append(sent.url))
        yield page, faults
        browser.close()


def show(page: Page, path: Path, text: str) -> None:
    path.write_text(text)
    page.goto(path.as_uri())


def test_numbers_on_the_screen_are_those_of_the_record(
    opened: tuple[Page, list[str]], folder: Path, report: LadderReport, tmp_path: Path
) -> None:
    page, faults = opened
    show(page, tmp_path / "page.html", ladder_page(report, page_tables(folder, report), report_path="report"))
    assert page.inner_text("h1") == report.verdict.sentence
    for rung in report.rungs:
        row = page.locator(f'tr[data-rung="{rung.rung}"]', has_text="whole capture")
        assert rung.capture_wide is not None
        assert row.locator("b").last.inner_text() == ratio_text(rung.capture_wide.relative_ratio)
        assert rung.capture_wide.status in row.locator(".status").inner_text()
    assert faults == []


def test_the_keyboard_and_the_mouse_tell_the_values_of_a_cell_and_of_an_iteration(
    opened: tuple[Page, list[str]], folder: Path, report: LadderReport, tmp_path: Path
) -> None:
    page, faults = opened
    tables = page_tables(folder, report)
    show(page, tmp_path / "page.html", ladder_page(report, tables, report_path="report"))
    page.focus("#heat")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    cell = tables.invocations.filter(pl.col("iteration") == 1, pl.col("layer") == 1).row(0, named=True)
    relative = ratio_text(cell["diff_ns"] / cell["left_ns"])
    assert page.inner_text("#heat-told").startswith("layer 1, iteration 1: ")
    assert page.inner_text("#heat-told").endswith(relative)
    page.focus("#chart")
    page.keyboard.press("End")
    assert page.inner_text("#chart-told").startswith("iteration 20, ")
    page.hover("#chart svg", position={"x": 100, "y": 60})
    assert page.inner_text("#chart-told").startswith("iteration 0, ")
    assert faults == []


def test_the_filter_keeps_one_launch_mode(
    opened: tuple[Page, list[str]], folder: Path, report: LadderReport, tmp_path: Path
) -> None:
    page, faults = opened
    tables = page_tables(folder, report)
    assert tables.iterations is not None
    show(page, tmp_path / "page.html", ladder_page(report, tables, report_path="report"))
    one_rank = tables.iterations.filter(pl.col("rank") == 0)
    assert page.locator("#chart svg circle").count() == one_rank.height
    page.select_option("#mode", "graph")
    graphs = one_rank.filter(pl.col("launch_mode") == "graph").height
    assert 0 < graphs < one_rank.height
    assert page.locator("#chart svg circle").count() == graphs
    assert faults == []


def test_a_name_that_is_markup_is_shown_as_text_and_does_nothing(
    opened: tuple[Page, list[str]], folder: Path, report: LadderReport, tmp_path: Path
) -> None:
    page, faults = opened
    tables = page_tables(folder, report)
    assert tables.intervals is not None
    marked = PageTables(
        invocations=tables.invocations,
        ranks=tables.ranks,
        iterations=tables.iterations,
        intervals=tables.intervals.with_columns(name=pl.lit(HOSTILE)),
        capture_note=None,
    )
    show(page, tmp_path / "page.html", ladder_page(report, marked, report_path="report"))
    page.locator("summary", has_text="Kernels").first.click()
    assert page.locator("section code").first.inner_text() == HOSTILE
    assert (page.locator("img").count(), page.title() != "owned") == (0, True)
    assert faults == []


def test_dark_and_narrow_and_long_pages_open_without_a_fault(
    opened: tuple[Page, list[str]], folder: Path, report: LadderReport, tmp_path: Path
) -> None:
    page, faults = opened
    numbers = pl.DataFrame({"iteration": range(10_000)}, schema={"iteration": pl.Int32})
    layers = pl.DataFrame({"layer": range(60)}, schema={"layer": pl.Int32})
    ns = {name: pl.lit(100_000, pl.Int64) for name in ("left_ns", "right_ns", "diff_ns")}
    ranks = {name: pl.lit(0, pl.Int32) for name in ("left_critical_rank", "right_critical_rank")}
    long = numbers.join(layers, how="cross").with_columns(
        covered=pl.lit(value=True), beyond_invocation_tolerance=pl.lit(value=False), **ns, **ranks
    )
    tables = PageTables(long, page_tables(folder, report).ranks, None, None, "not read")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, tmp_path / "page.html", ladder_page(report, tables, report_path="report"))
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert "Each column adds up 25 consecutive iterations" in page.inner_text("main")
    assert faults == []
