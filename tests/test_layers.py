"""The layers of `pyproject.toml` hold, no files import each other in a circle, the testbed names nothing above it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.sections import Cluster
from tests.layers import circles, imports
from tests.repository import ROOT

ABOVE = ("analysis", "cluster", "workloads")
IMPORTING = re.compile(r"import_module|__import__|find_spec|run_module")
NAMED = re.compile(rf"\b(?:{'|'.join(ABOVE)})(?:\.\w+)+")
UNFINISHED = re.compile(r"\b(?:analysis|workloads)\.$")  # the beginning of a module's name; `cluster.` begins keys, too


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(imports()) == []


def test_the_layers_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@given(st.dictionaries(st.integers(0, 7), st.frozensets(st.integers(0, 7), max_size=4), max_size=8))
def test_circles_are_the_modules_that_reach_each_other(arrows: dict[int, frozenset[int]]) -> None:
    graph = {str(one): {str(other) for other in others} for one, others in arrows.items()}
    for other in set().union(*graph.values()):
        graph.setdefault(other, set())
    reached = {one: set(others) for one, others in graph.items()}
    for _ in graph:
        reached = {one: others.union(*(reached[other] for other in others)) for one, others in reached.items()}
    expected = {
        frozenset(other for other in reached if other in reached[one] and one in reached[other]) for one in reached
    }
    assert {frozenset(circle) for circle in circles(graph)} == expected - {frozenset()}


def test_the_testbed_names_no_module_above_it() -> None:
    """Imports are import-linter's to find; these are the strings by which a module could be imported."""
    keys = {f"cluster.{name}" for name in Cluster.model_fields}
    found = {}
    for file in sorted((ROOT / "testbed").rglob("*.py")):
        name = file.relative_to(ROOT / "testbed").as_posix()
        if modules := set(named_modules(ast.parse(file.read_text()))) - keys:
            found[name] = modules
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "load('workloads.data')",
        "TARGET = 'analysis.library:compare'",
        "import_module('cluster')",
        "import_module(f'workloads.{name}')",
        "def f():\n    'Documented.'\n    return find_spec('workloads')",
    ],
)
def test_a_module_that_is_named_by_a_string_is_noticed(code: str) -> None:
    assert list(named_modules(ast.parse(code)))


def named_modules(tree: ast.AST) -> Iterator[str]:
    """The modules above the testbed that strings in a tree name, but for docstrings."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from (one for one in NAMED.findall(node.value) if is_module(one))
            yield from UNFINISHED.findall(node.value)
        if isinstance(node, ast.Call) and IMPORTING.search(ast.unparse(node.func)):
            words = [one.value for one in node.args if isinstance(one, ast.Constant)]
            yield from (str(word) for word in words if word in ABOVE)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
