"""The user's own modules that an experiment names: found beside it, together with what they import from there."""

import ast
import os
from collections.abc import Iterable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from testbed.errors import ExperimentError

_SENT_ANYWAY = ("testbed", "cluster", "workloads", "analysis")


def own_modules(names: Iterable[str], folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    """Where the modules of user-defined classes are, and those they import that lie in the same folders.

    Nothing is imported or run: the imports are read from the source.

    Args:
        names: ``package.module:Name``, as experiments name classes.
        folders: where to look, in this order, and then on PYTHONPATH. Installed modules are not looked for.

    Returns:
        Name in the working directory (``mine.py``, or a package's folder) and path of each; and the names that are
        nowhere there.

    Raises:
        ExperimentError: a module is no Python.
    """
    folders = [*folders, *(Path(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)]
    found: dict[str, Path] = {}
    missing = []
    seen = set(_SENT_ANYWAY)
    for name in names:
        wanted = [name.partition(":")[0].partition(".")[0]]
        if wanted[0] not in seen and _located(wanted[0], folders) is None:
            seen.add(wanted[0])
            missing.append(name)
        while wanted:
            top = wanted.pop()
            path = None if top in seen else _located(top, folders)
            seen.add(top)
            if path is not None:
                found[path.name] = path
                wanted.extend(_imported(path))
    return found, missing


def _located(module: str, folders: Sequence[Path]) -> Path | None:
    """The file or the folder of a top-level module in one of the folders."""
    spec = PathFinder.find_spec(module, [str(folder.absolute()) for folder in folders])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return None if spec.origin is None else Path(spec.origin)


def _imported(path: Path) -> set[str]:
    """The top-level names that the sources at `path` import, relative imports left out."""
    found: set[str] = set()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []:
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError) as error:
            raise ExperimentError(f"{file}: not valid Python: {error}") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found
