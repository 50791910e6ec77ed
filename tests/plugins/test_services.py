"""Services: each that the testbed asks for is registered, can be imported, and is asked for."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed
from testbed.errors import InstallationError
from testbed.plugins import entry_points
from testbed.plugins.entry_points import own_points
from testbed.plugins.services import GROUP, service
from tests.messages_named import naming
from tests.repository import ROOT


def asked_for() -> Iterator[str]:
    """The names that calls of `service` in the testbed have."""
    for file in (ROOT / "testbed").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "service":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{file}: {ast.unparse(node)}"
                yield str(name.value)
    yield from (f"library.{name}" for name in testbed._SERVICES)


def test_the_services_that_are_asked_for_are_those_that_are_registered() -> None:
    assert sorted(set(asked_for())) == sorted(own_points(GROUP))


@pytest.mark.parametrize("name", own_points(GROUP))
def test_a_service_can_be_imported(name: str) -> None:
    assert service(name) is not None


def test_a_name_that_the_installation_lacks_is_a_line() -> None:
    with pytest.raises(InstallationError, match=naming("workload.dreams")):
        service("workload.dreams")


def test_a_project_that_is_not_installed_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for ask in (lambda: own_points(GROUP), entry_points.own_text):
        with pytest.raises(InstallationError, match=naming("sortition-testbed", "not installed")):
            ask()
