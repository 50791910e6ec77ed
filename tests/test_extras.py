"""Every package that the code imports is declared: as a dependency, or in the extra that `testbed.extras` names."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testbed.errors import ExperimentError
from testbed.extras import MODULES, MissingExtraError, extra_of, first_missing, install_command, naming_extras
from tests.repository import ROOT

PACKAGES = ("testbed", "cluster", "workloads", "analysis")
AT_IMPORT = {"testbed": set(), "cluster": {"ray"}, "workloads": {"torch"}, "analysis": {"torch"}}
"""The extras of which a module of each package may import something when it is itself imported."""
BROUGHT = {
    "PIL": "matplotlib",
    "aiohttp": "ray",
    "annotated_types": "pydantic",
    "click": "typer",
    "grpc": "ray",
    "markupsafe": "jinja2",
    "packaging": "matplotlib",
    "pydantic_core": "pydantic",
    "requests": "ray",
    "typing_extensions": "pydantic",
}
"""Modules of distributions that another one, which is declared, always brings: its name."""
ELSEWHERE = {"IPython", "flwr"}
"""Modules of a notebook's environment, and of a Flower app's."""

INSTALLED = packages_distributions()  # takes seconds
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(requirements: list[str]) -> set[str]:
    """The names of the distributions in some requirements."""
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def imports(tree: ast.AST, always: bool) -> Iterator[str]:
    """The top-level modules that a file imports; `always`: those alone that are imported with it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif not (always and is_late(node)):
            yield from imports(node, always)


def is_late(node: ast.AST) -> bool:
    """Whether a node's body does not run when its file is imported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def foreign(always: bool) -> Iterator[tuple[Path, str]]:
    """Each file of the packages, with each module that it imports and that is neither Python's nor ours."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for module in sorted(set(imports(ast.parse(file.read_text()), always))):
                if module not in {*sys.stdlib_module_names, *PACKAGES, *ELSEWHERE, "flower_bridge"}:
                    yield file.relative_to(ROOT), module


def distributions_of(module: str) -> set[str]:
    """The distributions that bring a module, or the one that always brings it along."""
    names = [BROUGHT[module]] if module in BROUGHT else INSTALLED.get(module, [module])
    return {canonicalize_name(name) for name in names}


def test_every_import_is_declared() -> None:
    plain = declared(PROJECT["dependencies"])
    undeclared = [
        f"{file}: {module}"
        for file, module in foreign(always=False)
        if extra_of(module) is None and not plain & distributions_of(module)
    ]
    assert not undeclared, undeclared


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_declares_what_it_brings(extra: str) -> None:
    named = declared(PROJECT["optional-dependencies"][extra])
    assert [module for module in MODULES[extra] if not named & distributions_of(module)] == []


def test_extras_are_imported_where_they_may_be() -> None:
    wrong = [
        f"{file}: {module}"
        for file, module in foreign(always=True)
        if (extra := extra_of(module)) is not None and extra not in AT_IMPORT[file.parts[0]]
    ]
    assert wrong == []


def test_all_is_torch_and_ray_and_the_tests_need_all() -> None:
    (all_,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert (all_.name, all_.extras) == (PROJECT["name"], {"ray", "torch"})
    assert f"{PROJECT['name']}[all]" in PROJECT["optional-dependencies"]["dev"]


def test_the_error_names_the_extra_and_others_pass() -> None:
    with pytest.raises(MissingExtraError, match="mine needs ") as raised, naming_extras("mine"):
        raise ModuleNotFoundError("no torch", name="torch.nn")
    assert install_command("torch") in str(raised.value)
    with pytest.raises(ModuleNotFoundError), naming_extras("mine"):
        raise ModuleNotFoundError("no such", name="no_such_module")
    with pytest.raises(ExperimentError, match=r"\[flower-datasets\]"), naming_extras("mine", extra="flower-datasets"):
        raise ModuleNotFoundError("no datasets", name="datasets")


def test_a_folder_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_a_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert first_missing("numpy", "not_a_package") == "not_a_package"
