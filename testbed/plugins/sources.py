"""The files that user-defined classes come from: where they are, what was in them, and what they hide.

Nothing here imports anything: modules are looked for as an import would look for them, and what they import in turn is
read from their source. Whoever has imported a module (`testbed.plugins.classes`) notes here what its files held then.
"""

import ast
import contextlib
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from testbed.errors import ExperimentError, reason

PRODUCT = ("testbed", "cluster", "workloads", "analysis")
"""Packages whose versions a run's provenance names anyway."""

LIBRARIES = {
    "datasets": "datasets",
    "flwr_datasets": "flwr-datasets",
    "numpy": "numpy",
    "pandas": "pandas",
    "peft": "peft",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "torch": "torch",
    "torchvision": "torchvision",
    "transformers": "transformers",
}
"""Of which an experiment may name functions: their versions, by distribution, stand for their thousands of files."""

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = Path(sysconfig.get_path("stdlib"))
_as_imported: dict[Path, str] = {}


def search_working_directory() -> None:
    """Let imports look in the working directory, too, and there last."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def source_of(module: str) -> Path | None:
    """The file of a module that an import would find; None where there is none (also for what no file holds)."""
    spec = _spec(module)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)


def sources(names: Iterable[str]) -> dict[str, Path]:
    """The files of the modules of user-defined classes, and of what these import from the same folder.

    A package's ``__init__.py`` files on the way to a module count. Of what is installed, only the package itself does.

    Args:
        names: ``package.module:Name``, as experiments name classes.

    Returns:
        Paths by their names relative to the folder that they were found in, e.g. ``mine/lottery.py``, sorted.
    """
    path_by_name: dict[str, Path] = {}
    for name in names:
        module = name.partition(":")[0]
        root = _root(module)
        if root is not None:
            _gather(module, root, path_by_name)
    return dict(sorted(path_by_name.items()))


def digests(names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file of `sources`, and the versions of the libraries (`LIBRARIES`) that are named.

    Raises:
        ExperimentError: a file cannot be read, or is not what this process has imported: that is what would run.
    """
    names = list(names)
    digest_by_name = {}
    for top in sorted({name.partition(":")[0].partition(".")[0] for name in names} & LIBRARIES.keys()):
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest_by_name[top] = f"version {metadata.version(LIBRARIES[top])}"
    for relative, path in sources(names).items():
        digest_by_name[relative] = _digest(path)
        if _as_imported.get(path, digest_by_name[relative]) != digest_by_name[relative]:
            raise ExperimentError(
                f"{path}: has changed since this process imported it, and the old code would run; start a new process"
            )
    return digest_by_name


def check_same(expected: Mapping[str, str], names: Iterable[str], place: str) -> None:
    """Raise `ExperimentError` when user-defined classes have other code here than where the run was started.

    Args:
        wanted: `digests` there.
        names: of the classes.
        place: says where this is.
    """
    here = digests(names)
    for relative in sorted({**expected, **here}):
        if expected.get(relative) != here.get(relative):
            how = "is missing" if relative not in here else "is other code than where the run was started"
            raise ExperimentError(f"your own {relative} {how} on {place}; put the same file on every node")


def note_imported(name: str) -> None:
    """Remember what the files of `name` hold, which has just been imported."""
    for path in sources([name]).values():
        _as_imported.setdefault(path, _digest(path))


def hidden(module: str) -> list[Path]:
    """Other files that somebody may have meant by `module`: in the working directory, or elsewhere on the path."""
    used = source_of(module)
    inside = Path(*module.split("."))
    candidates: list[Path] = []
    for folder in dict.fromkeys([Path.cwd(), *(Path(part) for part in sys.path if part)]):
        for candidate in (folder / inside.with_suffix(".py"), folder / inside / "__init__.py"):
            if candidate.is_file() and not any(_same(candidate, other) for other in (used, *candidates) if other):
                candidates.append(candidate)
    return candidates


def foreign_packages() -> list[str]:
    """A line for each of the testbed's packages that an import finds elsewhere than beside `testbed`."""
    beside = Path(__file__).resolve().parents[2]
    lines = []
    for package in PRODUCT:
        source = source_of(package)
        if source is not None and source.resolve().parent.parent != beside:
            hiding = source.parent if source.name == "__init__.py" else source
            lines.append(f"{hiding}: hides the testbed's own package {package}; rename it, or run elsewhere")
    return lines


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _spec(module: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`, which would import the packages around `module`.

    Last in the working directory, whether or not anything has made imports look there yet.
    """
    top, _, rest = module.partition(".")
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    except (ValueError, ImportError):  # made by hand, without a spec
        return None
    name = top
    for part in rest.split(".") if rest else ():
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _root(module: str) -> Path | None:
    """The folder that the top level of `module` lies in; None for what is nobody's own, and for what no file holds."""
    top = module.partition(".")[0]
    spec = None if top in PRODUCT else _spec(top)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations))).parent
    elif spec.has_location and spec.origin is not None:
        root = Path(spec.origin).parent
    else:
        return None
    is_library = top in LIBRARIES and root.name in _INSTALLED
    return None if is_library or root == _STANDARD else root


def _gather(module: str, root: Path, path_by_name: dict[str, Path]) -> None:
    """Add the files of `module`, and of what it imports from `root`, to `path_by_name`."""
    alone = root.name in _INSTALLED
    pending, visited = [module], set[str]()
    while pending:
        name = pending.pop()
        top, seen_before = name.partition(".")[0], name in visited
        visited.add(name)
        if seen_before or (alone and top != module.partition(".")[0]):
            continue
        parent = name.rpartition(".")[0]
        if parent:
            pending.append(parent)
        path = source_of(name) if _root(name) == root else None
        if path is None:
            continue
        path_by_name[path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name] = path
        pending.extend(_imported(path, name))


def _imported(path: Path, module: str) -> Iterator[str]:
    """The modules that the source at `path` may import, by their absolute names; names of no module are among them."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, OSError):
        return  # whoever imports it says so
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {reason(error)}") from None
