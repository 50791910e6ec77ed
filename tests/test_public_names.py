"""``from testbed import ...`` has the names of its page, and no others."""

import ast
import doctest
import importlib
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
EXAMPLES = doctest.DocTestParser()


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


@pytest.mark.parametrize("name", sorted({*testbed.__all__} - {"__version__"}))
def test_each_public_name_has_an_example(name: str) -> None:
    """A docstring's example uses or prints each public name; `tests.test_docstring_examples` runs it.

    A type without a docstring of its own, such as `Count`, is in an example of its module.
    """
    value = getattr(testbed, name)
    module = importlib.import_module(testbed._FROM.get(name) or value.__module__)
    documented_by_itself = inspect.isclass(value) or inspect.isfunction(value)
    sources = [value] if documented_by_itself else vars(module).values()
    docstrings = [getattr(source, "__doc__", None) or "" for source in sources]
    examples = [example for docstring in docstrings for example in EXAMPLES.get_examples(docstring)]
    texts = [example.source + example.want for example in examples]
    assert any(re.search(rf"\b{name}\b", text) for text in texts), f"{name}: no example in the docstring"
