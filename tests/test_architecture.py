"""What the house plan promises of the code: no engine is loaded, reason codes are known, pieces are small."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moegauge
from moegauge.records.decision import CODES

SOURCE = Path(moegauge.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 300

LAYERS = (
    "records",
    "evidence",
    "timing",
    "routing",
    "numerics",
    "kernels",
    "ladder",
    "gate",
    "comparison",
    "lanes",
    "render",
    "cli",
)
ENGINES = ("torch", "triton", "vllm", "sglang", "ray", "cupti", "pynvml")

IMPORT_ALL = """
import importlib, pkgutil, sys
name = sys.argv[1]
package = importlib.import_module(name)
for module in pkgutil.walk_packages(package.__path__, name + "."):
    importlib.import_module(module.name)
print(" ".join(sorted(set(sys.argv[2:]) & {module.partition(".")[0] for module in sys.modules})))
"""


@pytest.mark.parametrize("layer", LAYERS)
def test_importing_a_layer_loads_no_engine(layer: str) -> None:
    command = [sys.executable, "-c", IMPORT_ALL, f"moegauge.{layer}", *ENGINES]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.split(), found.stderr) == (0, [], "")


def test_an_engine_that_was_loaded_would_be_seen() -> None:
    command = [sys.executable, "-c", f"import msgspec\n{IMPORT_ALL}", "moegauge.records", "msgspec"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["msgspec"]


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    """Last part of the name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def codes_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, code) of every literal reason code in a call that gives one."""
    for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
        given: list[ast.expr] = []
        if called(call) == "reason":
            given += call.args[:1]
        if called(call) in {"_fail", "fail"}:
            given += call.args[1:2]
        given += [keyword.value for keyword in call.keywords if keyword.arg in {"code", "why"}]
        if called(call) == "Finding":
            continue  # findings have codes of their own
        for expression in given:
            for literal in ast.walk(expression):
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str) and literal.value.isupper():
                    yield literal.lineno, literal.value


def test_every_reason_code_that_is_given_stands_in_the_table() -> None:
    found = [(f"{name}:{line}", code) for name, tree in parsed() for line, code in codes_in(tree)]
    assert len({code for _, code in found}) > 10
    assert [(where, code) for where, code in found if code not in CODES] == []


def test_a_reason_is_built_by_reason_or_copied_from_one() -> None:
    """``Reason(...)`` itself is called only to give another sentence to a code that a reason already has."""
    direct = [
        f"{name}:{call.lineno}"
        for name, tree in parsed()
        if name != "records/decision.py"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and called(call) == "Reason"
        for keyword in call.keywords
        if keyword.arg == "code" and not (isinstance(keyword.value, ast.Attribute) and keyword.value.attr == "code")
    ]
    assert direct == []


def test_every_reason_code_of_the_table_has_a_meaning_and_is_used() -> None:
    text = {name: (SOURCE / name).read_text() for name, _ in parsed() if name != "records/decision.py"}
    unused = [code for code in CODES if not any(f'"{code}"' in source for source in text.values())]
    assert unused == []
    assert all(meaning and meaning == meaning.strip() for meaning in CODES.values())


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = {
        f"{name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 100
    assert {where: length for where, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}


def test_no_module_is_longer_than_300_lines() -> None:
    lengths = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > MAX_MODULE_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in parsed() if not ast.get_docstring(tree)] == []


def test_nothing_is_unpickled() -> None:
    """No pickle module, no torch.load without weights_only, no numpy.load that allows pickles."""
    suspects = []
    for name, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                if names & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}:
                    suspects.append(f"{name}:{node.lineno}")
            # tl.load is Triton's load of device memory; there is no file in it.
            if isinstance(node, ast.Call) and called(node) == "load" and ast.unparse(node.func) != "tl.load":
                options = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
                if options.get("allow_pickle") is not False and options.get("weights_only") is not True:
                    suspects.append(f"{name}:{node.lineno}")
    assert suspects == []
