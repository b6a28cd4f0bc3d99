"""docs/gate-refusals.md names tests that exist and words that they assert."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `?(.+?)`? \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_every_listed_refusal_has_its_test_with_its_sentence() -> None:
    rows = ROW.findall((ROOT / "docs" / "gate-refusals.md").read_text())
    assert len(rows) >= 40
    assert len({test for _, _, test in rows}) == len(rows)
    for words, file, test in rows:
        source = (ROOT / file).read_text()
        found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == test]
        assert len(found) == 1, test
        asserted = ast.get_source_segment(source, found[0]) or ""
        asserted += "".join(ast.get_source_segment(source, one) or "" for one in found[0].decorator_list)
        plain = asserted.replace("`", "").replace("\\", "")
        assert words.replace("`", "") in plain, f"{test}: {words}"
