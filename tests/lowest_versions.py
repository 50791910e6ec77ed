"""Prints pip constraints that hold every dependency in pyproject.toml at its lower bound: for `make test-lowest`.

The dependencies and the extras `hdf5`, `ray` and `torch` are held at the lowest version that they allow. The tests' own
packages (`dev`) are held at the version in constraints.txt, with which the project is developed. pip takes the newest
version that fits for the dependencies of these packages.

    python tests/lowest_versions.py > lowest.txt
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<version>[0-9][0-9A-Za-z.]*)")


def normalised(name: str) -> str:
    """The name by which package indexes know it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lowest(requirements: list[str]) -> dict[str, str]:
    """Name to the lowest version allowed.

    Raises:
        ValueError: if a requirement is written otherwise than ``name>=version``: then there is no one lowest.
    """
    versions = {}
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: {requirement!r} has no lower bound: write name>=version")
        versions[normalised(match["name"])] = match["version"]
    return versions


def pinned(constraints: str) -> dict[str, str]:
    """Name to version of the lines ``name==version`` of a constraints file."""
    lines = (line.split("==") for line in constraints.splitlines() if "==" in line and not line.startswith("#"))
    return {normalised(name): version for name, version in lines}


def constraints(project: dict, developed_with: dict[str, str]) -> dict[str, str]:
    """Name to version of everything that is held."""
    extras = project["optional-dependencies"]
    held = lowest([*project["dependencies"], *extras["hdf5"], *extras["ray"], *extras["torch"]])
    tools = (normalised(re.split(r"[\[><=]", tool)[0]) for tool in extras["dev"])
    return {tool: developed_with[tool] for tool in tools if tool in developed_with} | held


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    held = constraints(project, pinned((ROOT / "constraints.txt").read_text()))
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(held.items()))


if __name__ == "__main__":
    main()
