"""The check of plain English notices each kind of finding, and passes over questions, code and proper sentences."""

import ast
from pathlib import Path

import pytest

from tests import language
from tests.repository import ROOT

PATH = ROOT / "testbed" / "example.py"


def kinds(source: str) -> list[str]:
    """List the kinds of findings in a source text, in order."""
    tree = ast.parse(source)
    found = [
        *language.language_findings(PATH, language.python_texts(source)),
        *language.docstring_findings(PATH, tree),
        *language.argument_findings(PATH, tree),
        *language.name_findings(PATH, tree),
        *language.match_findings(PATH, tree),
    ]
    return [finding.kind for finding in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('raise ValueError("what the server sends is wrong")', ["relative"]),
        ("x = 1  # clients whose answer is late", ["relative"]),
        ('print("What is the threshold?")', []),
        ('raise ValueError("the threshold is too low")', []),
        ('print("so many clients")', ["idiom"]),
        ('def mean():\n    """The mean of all."""', ["not imperative"]),
        ('def mean():\n    """Returns the mean."""', ["not imperative"]),
        ('def mean():\n    """Return the mean."""', []),
        ('class A:\n    @property\n    def mean(self):\n        """The mean."""', []),
        ('def mean():\n    """Return the mean\n    of all."""', ["first line goes on"]),
        ('def mean(a, b):\n    """Return the mean."""', ["no Args"]),
        ('def _mean(a, b):\n    """Return the mean."""', []),
        ("found = 1", ["vague name"]),
        ("class C:\n    def f(self, told): ...", ["vague name"]),
        ('raises(E, match="this is a whole sentence")', ["pinned wording"]),
        ('raises(E, match=naming("aggregation.threshold", 1.5))', []),
    ],
)
def test_a_source(source: str, expected: list[str]) -> None:
    assert kinds(source) == expected


def test_classes_with_one_name() -> None:
    trees = [(Path(name), ast.parse("class A: ...")) for name in ("a.py", "b.py")]
    assert [finding.kind for finding in language.class_findings(trees)] == ["class defined twice"] * 2
    assert list(language.class_findings(trees[:1])) == []


def test_a_page_without_its_code() -> None:
    page = "# Who selects?\n\nWhat comes back is a sum.\n\n```python\nx = what\n```\n"
    (finding,) = language.language_findings(Path("page.md"), language.page_texts(page))
    assert (finding.kind, finding.line) == ("relative", 3)
