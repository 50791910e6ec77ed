"""``from testbed import ...`` has the names of its page, and no others."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed.plugins.entry_points import own_points
from testbed.plugins.services import GROUP
from tests.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "python.md"


def documented() -> list[str]:
    """The names in the first column of the page's tables."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_page_has_each_public_name_once() -> None:
    assert sorted(documented()) == sorted(testbed.__all__)


@pytest.mark.parametrize("name", testbed.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(testbed, name)
    assert name in dir(testbed)
    if inspect.isclass(found) or inspect.isfunction(found):
        assert found.__doc__
        assert found.__name__ == name


def test_types_are_known_of_the_same_names_from_the_same_modules() -> None:
    """Type checkers and the lazy import take names from the same modules."""
    tree = ast.parse(Path(testbed.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {one.names[0].asname: one.module for one in block.body if isinstance(one, ast.ImportFrom)}
    services = {name: own_points(GROUP)[f"library.{name}"].module for name in testbed._SERVICES}
    assert imported == testbed._FROM | services


def test_importing_the_package_imports_none_of_it() -> None:
    code = "import sys, testbed; print({'pydantic', 'numpy', 'ray', 'testbed.errors'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"


def test_another_name_is_none() -> None:
    with pytest.raises(AttributeError, match="module 'testbed' has no attribute 'selected'"):
        getattr(testbed, "selected")  # noqa: B009  # as an expression it would be useless
