"""The examples in docstrings run, and print what they say."""

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository import ROOT

PACKAGES = ("testbed", "cluster", "workloads", "analysis")


def modules_with_examples() -> Iterator[str]:
    """Yield the names of the modules whose text contains an example."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if ">>> " in path.read_text():
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each docstring's example begins with the names of its module, in an empty directory."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    output: list[str] = []
    examples = [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]
    for test in examples:
        (tmp_path / test.name).mkdir()
        monkeypatch.chdir(tmp_path / test.name)
        runner.run(test, out=output.append)
    assert examples, f"{name}: no example in a docstring"
    assert not runner.failures, "".join(output)
