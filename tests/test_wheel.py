"""The wheel has the four packages and their data files, no tests, benchmarks or documentation."""

import tomllib

from setuptools import find_packages

from tests.repository import ROOT


def test_the_wheel_holds_the_four_packages_and_nothing_else() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = find_packages(str(ROOT), include=settings["packages"]["find"]["include"])
    assert {name.split(".")[0] for name in found} == {"testbed", "cluster", "workloads", "analysis"}


def test_every_folder_with_code_is_a_package_and_so_in_the_wheel() -> None:
    """A folder without `__init__.py` would be left out without a word."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = set(find_packages(str(ROOT), include=settings["packages"]["find"]["include"]))
    for package in ("testbed", "cluster", "workloads", "analysis"):
        for file in (ROOT / package).rglob("*.py"):
            assert ".".join(file.parent.relative_to(ROOT).parts) in found, file
