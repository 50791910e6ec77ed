"""The layers of `pyproject.toml` hold, no files import each other in a circle, and what is imported late is known."""

import ast
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.layers import circles, imports
from tests.repository import ROOT

# What `testbed` imports late of the packages above it. The command imports what each verb needs when it is called, so
# that the others answer at once, and where Ray and torch are not installed; so do these, and say why.
LATE = {
    ("running/execution.py", "analysis"),
    ("running/execution.py", "testbed.running.ray_workers"),
    ("running/explained.py", "analysis"),
    ("running/observers/csv_rounds.py", "analysis"),
    ("running/observers/export.py", "analysis"),
    ("running/report_server.py", "analysis"),
}
ABOVE = ("analysis", "cluster", "ray", "testbed.running.ray_workers", "torch", "workloads")


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


def test_what_is_imported_late_is_known() -> None:
    found = set()
    for file in sorted((ROOT / "testbed").rglob("*.py")):
        name = file.relative_to(ROOT / "testbed").as_posix()
        if name.startswith("cli/"):
            continue
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {(name, above) for module in imported(function) for above in ABOVE if within(module, above)}
    assert found == LATE


def imported(tree: ast.AST) -> set[str]:
    """The full names that the imports in a tree may stand for."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
