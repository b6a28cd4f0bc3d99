"""The documentation is held against the code: codes, fields, columns, links, commands and their output."""

from __future__ import annotations

import re
import runpy
import shlex
import sqlite3
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl
import pytest

from moegauge.adapters.profile_db import open_profile_db
from moegauge.adapters.routes import bundle, serving
from moegauge.adapters.runners.registry import RUNNERS
from moegauge.adapters.runners.work import CACHE_STATES
from moegauge.cli.main import app, run
from moegauge.errors import EvidenceError, MisuseError, MoegaugeError
from moegauge.evidence import capture_tables, report_folder, serving_tables
from moegauge.evidence.tables import TableSchema
from moegauge.jobs import gate_stage0
from moegauge.jobs.explanation import CHANGEABLE
from moegauge.records import (
    adequacy,
    capture,
    comparison,
    counter_rules,
    decision,
    explanation,
    exploration,
    identity,
    kernel_compare,
    lane,
    measurement,
    observation,
    packet,
    profile,
    profile_spec,
    recording,
    registration,
    serving_run,
    subject,
    tuning,
    verdict,
)
from moegauge.routing.samplers import SAMPLERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FORMATS = ROOT / "docs" / "formats"
CODE = (ROOT, ROOT / "src" / "moegauge")

STRUCTS: list[tuple[str, str, type[msgspec.Struct]]] = [
    *(
        ("capture", struct.__name__, struct)
        for struct in (
            capture.CaptureRecord,
            capture.Coverage,
            capture.Finding,
            capture.RoutesCrossCheck,
            capture.FileDigest,
            identity.ModelShape,
            identity.KernelIdentity,
            identity.Topology,
            identity.RankIdentity,
            measurement.Fact,
        )
    ),
    *(
        ("ladder-report", struct.__name__, struct)
        for struct in (
            comparison.LadderReport,
            comparison.Settings,
            comparison.Verdict,
            comparison.Rung,
            comparison.Pair,
            comparison.Sides,
            comparison.Unmatched,
            comparison.Selection,
            comparison.InputLabel,
            comparison.Links,
            comparison.RankPair,
            comparison.ConditionRow,
            comparison.ServedTime,
            comparison.Evidence,
            comparison.EvidenceLink,
            decision.Reason,
            explanation.Explanation,
            explanation.Effect,
            explanation.PaddedRows,
        )
    ),
    *(
        ("profile-db", struct.__name__, struct)
        for struct in (
            profile.ProfileKey,
            profile.MatchKey,
            profile.Subject,
            profile.Setting,
            profile.InputLabel,
            profile.PassRecord,
        )
    ),
    ("bundle", "meta.json", serving.BundleMeta),
    ("bundle", "Step", serving.Step),
    ("bundle", "Parallel", serving.Parallel),
    *(
        ("recording", struct.__name__, struct)
        for struct in (
            recording.Head,
            recording.IterationFrame,
            recording.RequestPart,
            recording.Surroundings,
            recording.Problem,
            recording.ProfiledRange,
            recording.End,
            recording.RecorderStatus,
            serving_run.TimedRun,
        )
    ),
    ("recording", "overhead.json", serving_run.Overhead),
    *(
        ("tuning", struct.__name__, struct)
        for struct in (
            tuning.TuningRecord,
            tuning.TunedSize,
            tuning.Candidate,
            tuning.Trials,
            tuning.Place,
            tuning.LeftOut,
        )
    ),
    ("profile-spec", "ProfileSpec", profile_spec.ProfileSpec),
    ("profile-spec", "given_ids", profile_spec.IdsInput),
    ("profile-spec", "given_popularity", profile_spec.PopularityInput),
    *(
        ("gate-adequacy", struct.__name__, struct)
        for struct in (
            adequacy.Kill,
            adequacy.KillCheck,
            adequacy.MutationResult,
            adequacy.FamilyRow,
            adequacy.CoverageRow,
            adequacy.CorpusResult,
            adequacy.CorpusManifest,
            adequacy.FixtureDigest,
        )
    ),
    *(
        ("lane", struct.__name__, struct)
        for module in (registration, subject, counter_rules, lane, packet, observation, verdict, exploration)
        for struct in vars(module).values()
        if isinstance(struct, type)
        and issubclass(struct, msgspec.Struct)
        and struct.__module__ == module.__name__
        and struct not in {lane.Step, observation.Observation}
    ),
    ("lane", "Audit", gate_stage0.Audit),
    *(
        ("compare-report", struct.__name__, struct)
        for struct in vars(kernel_compare).values()
        if isinstance(struct, type) and struct.__module__ == kernel_compare.__name__
    ),
]

TABLES: list[tuple[str, TableSchema]] = [
    ("capture", capture_tables.ITERATIONS),
    ("capture", capture_tables.INVOCATIONS),
    ("capture", capture_tables.INTERVALS),
    ("capture", capture_tables.routed_inputs(8)),
    ("capture", serving_tables.REQUESTS),
    ("capture", serving_tables.STEPS),
    *(("ladder-report", table) for table in report_folder.TABLES),
]


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """Rows of the first table under a ``###`` heading of a format page: first cell -> the other cells."""
    text = (FORMATS / f"{page}.md").read_text()
    section = re.split(r"^#{2,3} ", text.split(f"\n### {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows}


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(decision.CODES))
def test_every_reason_code_stands_in_the_glossary_with_its_meaning(code: str) -> None:
    assert f"| `{code}` | {decision.CODES[code]} |" in (ROOT / "docs" / "glossary.md").read_text()


def test_every_finding_code_stands_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    codes = set(re.findall(r'Finding\(\s*code=f?"([A-Z_]+)', source))
    assert codes
    assert [code for code in sorted(codes) if f"`{code}" not in glossary] == []


def test_every_error_code_stands_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    kinds: list[type[MoegaugeError]] = [MisuseError, *EvidenceError.__subclasses__()]
    assert [kind.code for kind in kinds if f"| `{kind.code}` |" not in glossary] == []


# --- values -----------------------------------------------------------------------------------------------------------


def test_every_row_status_stands_on_the_profile_page_and_in_the_glossary() -> None:
    statuses = [str(status) for status in profile.RowStatus]
    assert list(table_rows("profile-db", "RowStatus")) == statuses
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert [status for status in statuses if f"`{status}`" not in glossary] == []


def test_the_measuring_page_lists_every_sampler_cache_state_and_runner() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text()
    samplers = [f"| `{one.name}` | {one.version} | {one.rule} |" for one in SAMPLERS.values()]
    states = [f"| `{name}` | {meaning} |" for name, meaning in CACHE_STATES.items()]
    assert [row for row in (*samplers, *states) if row not in page] == []
    assert [name for name in RUNNERS if f"`{name}`" not in page] == []


def test_the_measuring_page_lists_every_condition_that_can_be_changed() -> None:
    section = (ROOT / "docs" / "measuring.md").read_text().split("## Changed conditions", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE) == list(CHANGEABLE)


def test_every_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    rows = re.findall(r"^\| ([a-z0-9, -]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    justified = {name.strip() for row in rows for name in row.split(",")}
    assert [name for name in wanted if re.split(r"[^a-z0-9-]", name)[0] not in justified] == []


def test_every_status_of_a_lane_stands_on_the_gate_page_in_order_of_standing() -> None:
    page = (ROOT / "docs" / "gate.md").read_text()
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| (yes|no) \|", page, re.MULTILINE)
    assert rows == [(str(one), "yes" if one.terminal else "no") for one in verdict.LaneStatus]


# --- fields and columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "heading", "struct"), STRUCTS, ids=[f"{page}-{name}" for page, name, _ in STRUCTS])
def test_a_format_page_lists_exactly_the_fields_of_each_record(
    page: str, heading: str, struct: type[msgspec.Struct]
) -> None:
    assert sorted(table_rows(page, heading)) == sorted(field.encode_name for field in msgspec.structs.fields(struct))


@pytest.mark.parametrize(("page", "schema"), TABLES, ids=[f"{page}-{schema.name}" for page, schema in TABLES])
def test_a_format_page_lists_exactly_the_columns_of_each_table(page: str, schema: TableSchema) -> None:
    rows = table_rows(page, schema.name)
    assert list(rows) == list(schema.columns)
    for name, dtype in schema.columns.items():
        assert rows[name][0] == _type_name(dtype), name
        assert (rows[name][1] == "never") == (name not in schema.nullable), name


def test_the_profile_page_lists_exactly_the_columns_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "profile.db"
    with open_profile_db(path, create=True):
        pass
    database = sqlite3.connect(path)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert tables
    for table in tables:
        rows = table_rows("profile-db", table)
        columns = database.execute(f"PRAGMA table_info({table})").fetchall()
        assert list(rows) == [column[1] for column in columns], table
        for _, name, kind, not_null, _, key in columns:
            assert rows[name][0] == kind, (table, name)
            assert (rows[name][1] == "never") == bool(not_null or key), (table, name)
    database.close()


def _type_name(dtype: pl.DataType | type[pl.DataType]) -> str:
    if isinstance(dtype, pl.Array):
        return f"Array({dtype.inner}, top_k)"
    return str(dtype)


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [target.split("#")[0] for target in targets if not target.startswith(("http:", "https:", "#"))]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_of_the_code_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`", page.read_text()))
    assert [path for path in sorted(named) if not any((base / path).is_file() for base in CODE)] == []


def test_every_decision_stands_in_the_list_of_decisions() -> None:
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text()
    assert [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in listed] == []


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """One command of a console block: its words, its stated exit status, and the output shown below it."""

    words: list[str]
    status: int
    shown: str


@dataclass(frozen=True)
class Block:
    """One fenced console block. ``runs``: marked ``console run``."""

    where: str
    runs: bool
    commands: list[Command]


def console_blocks() -> list[Block]:
    """Every ```console block of README.md and docs."""
    blocks = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```console(?P<run> run)?\n(?P<body>.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            where = f"{page.relative_to(ROOT)}:{line}"
            blocks.append(Block(where, match["run"] is not None, _commands(match["body"])))
    return blocks


def _commands(body: str) -> list[Command]:
    commands = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        status = re.search(r"# exit (\d+)$", line)
        words = shlex.split(line, comments=True)
        if words == ["./scripts/demo"]:  # what the script ends in
            words = ["moegauge", "demo"]
        commands.append(Command(words, int(status[1]) if status else 0, shown))
    return commands


BLOCKS = console_blocks()
RUNNABLE = [block for block in BLOCKS if block.runs]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_every_documented_command_line_parses(block: Block) -> None:
    for command in block.commands:
        if command.words[0] == "moegauge":
            app.parse_args(command.words[1:], exit_on_error=False, print_error=False)
        elif command.words[0] == "python":
            assert (ROOT / command.words[1]).is_file(), command.words
        else:
            assert (ROOT / command.words[0]).is_file(), command.words


def test_every_command_of_the_workflow_example_parses() -> None:
    text = (ROOT / "examples" / "ci" / "compare.yml").read_text()
    commands = re.findall(r"^ *- run: moegauge (.*?)(?: >> .*)?$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["compare", "verify"]
    for command in commands:
        app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("block", RUNNABLE, ids=[block.where for block in RUNNABLE])
def test_every_runnable_example_gives_its_status_and_the_words_shown(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("src", "evidence", "examples", "lanes"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("MOEGAUGE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for command in block.commands:
        status = _status_of(command.words, monkeypatch)
        printed = capsys.readouterr()
        assert status == command.status, printed.err
        assert [word for word in command.shown.split() if word not in printed.out.split()] == [], command.words


def _status_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process."""
    if words[0] == "moegauge":
        return run(words[1:])
    assert words[0] == "python", words
    monkeypatch.setattr(sys, "argv", words[1:])
    runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    return 0


def test_the_spec_example_is_measured_and_verified_as_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (FORMATS / "profile-spec.md").read_text()
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    Path("spec.json").write_text(example[1])
    (block,) = [one for one in BLOCKS if one.where.startswith("docs/formats/profile-spec.md")]
    assert [_status_of(command.words, monkeypatch) for command in block.commands] == [0, 0, 0]
    out = capsys.readouterr().out
    # The given ids are one row for both layers; the two popularities are drawn for each.
    assert "5 rows wanted, 42 samples added in 7 passes, 0 rows still missing" in out
    assert "everything was derived again" in out


def test_the_times_of_given_inputs_are_read_as_the_measuring_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [one for one in RUNNABLE if "shapes.db" in one.commands[0].words]
    code = re.search(r"```python\n(.*?shapes.db.*?)```", (ROOT / "docs" / "measuring.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    _status_of(block.commands[0].words, monkeypatch)
    capsys.readouterr()
    exec(compile(code[1], "measuring.md", "exec"), {})  # noqa: S102 - the page's own example
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" rows: mean ")[0] for line in lines] == ["1", "8", "64", "65", "66"]
    assert all(line.endswith("over 6 samples") for line in lines)


def test_the_bundle_example_writes_a_bundle_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (FORMATS / "bundle.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "bundle.md", "exec"), {})  # noqa: S102 - the page's own example
    opened = bundle.open_bundle(tmp_path / "my-bundle")
    routing = opened.ranks[0].routing
    assert routing is not None
    table = bundle.read_routed_table(routing, opened.shape, {})
    assert (len(table.iteration), len(table.topk_ids), opened.ranks[0].trace) == (4, 20, None)
