"""Source files of user-defined classes: their location, their content at import, and files that they hide.

Nothing is imported here: modules are located as an import would locate them, and their own imports are read from their
source. `testbed.plugins.classes` notes here the content of the files that it has imported.
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
"""Packages of the testbed; a run's provenance names their version."""

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
"""Libraries with functions that an experiment may name, and their distributions.

Provenance records the version instead of thousands of files.
"""

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = Path(sysconfig.get_path("stdlib"))
_as_imported: dict[Path, str] = {}


def search_working_directory() -> None:
    """Let imports search the working directory, too, after all other folders."""
    if os.getcwd() not in sys.path:
        # Last: a file of the user's must not hide an installed package.
        sys.path.append(os.getcwd())


def source_of(module: str) -> Path | None:
    """Return the file of a module that an import would find; None if there is no module or it has no file."""
    spec = _spec(module)
    return None if spec is None or not spec.has_location or spec.origin is None else Path(spec.origin)


def sources(names: Iterable[str]) -> dict[str, Path]:
    """Return the files of the modules of user-defined classes, and of their imports from the same folder.

    A package's ``__init__.py`` files on the way to a module count. Of an installed package, only its own modules count.

    Args:
        names: ``package.module:Name``, as experiments name classes.

    Returns:
        Paths by their names relative to the import folder, e.g. ``mine/lottery.py``, sorted.
    """
    path_by_name: dict[str, Path] = {}
    for name in names:
        module = name.partition(":")[0]
        root = _root(module)
        if root is not None:
            _gather(module, root, path_by_name)
    return dict(sorted(path_by_name.items()))


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of `sources`, and the versions of the named `LIBRARIES`.

    Raises:
        ExperimentError: a file cannot be read, or differs from the code that this process has imported and would run.
    """
    names = list(names)
    digest_by_name = {}
    for top in sorted({name.partition(":")[0].partition(".")[0] for name in names} & LIBRARIES.keys()):
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest_by_name[top] = f"version {metadata.version(LIBRARIES[top])}"
    for relative, path in sources(names).items():
        digest_by_name[relative] = _digest(path)
        # Python does not import a module twice: the old code would run under the digest of the new one.
        if _as_imported.get(path, digest_by_name[relative]) != digest_by_name[relative]:
            raise ExperimentError(
                f"{path}: has changed since this process imported it, so the old code would run; start a new process"
            )
    return digest_by_name


def check_same(expected: Mapping[str, str], names: Iterable[str], place: str) -> None:
    """Raise `ExperimentError` if user-defined classes have other code here than where the run was started.

    Args:
        expected: `digests` where the run was started.
        names: names of the classes.
        place: this place, for the message.
    """
    here = digests(names)
    for relative in sorted({**expected, **here}):
        if expected.get(relative) != here.get(relative):
            how = "is missing" if relative not in here else "differs from the code where the run was started"
            raise ExperimentError(f"your own {relative} {how} on {place}; put the same file on every node")


def note_imported(name: str) -> None:
    """Store the digests of the files of `name`, which has just been imported."""
    for path in sources([name]).values():
        # The first content counts, as it is the imported one.
        _as_imported.setdefault(path, _digest(path))


def hidden(module: str) -> list[Path]:
    """Return other files that `module` may refer to, in the working directory or elsewhere on the path."""
    used = source_of(module)
    inside = Path(*module.split("."))
    candidates: list[Path] = []
    for folder in dict.fromkeys([Path.cwd(), *(Path(part) for part in sys.path if part)]):
        for candidate in (folder / inside.with_suffix(".py"), folder / inside / "__init__.py"):
            if candidate.is_file() and not any(_same(candidate, other) for other in (used, *candidates) if other):
                candidates.append(candidate)
    return candidates


def foreign_packages() -> list[str]:
    """Return a line for each of the testbed's packages that an import finds elsewhere than beside `testbed`."""
    beside = Path(__file__).resolve().parents[2]
    lines = []
    for package in PRODUCT:
        source = source_of(package)
        if source is not None and source.resolve().parent.parent != beside:
            hiding = source.parent if source.name == "__init__.py" else source
            lines.append(f"{hiding}: hides the testbed's own package {package}; rename it, or run elsewhere")
    return lines


def _same(candidate: Path, other: Path) -> bool:
    return other.exists() and candidate.samefile(other)


def _spec(module: str) -> ModuleSpec | None:
    """Return the module's spec as `importlib.util.find_spec`, without importing the packages around the module.

    The working directory is searched last, whether or not it is on the path yet.
    """
    top, _, rest = module.partition(".")
    try:
        # Part by part: `find_spec` of a whole name would import the packages around it.
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    except (ValueError, ImportError):  # a module without a spec
        return None
    name = top
    for part in rest.split(".") if rest else ():
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _root(module: str) -> Path | None:
    """Return the folder of the top level of `module`.

    None for modules of the product, of Python, of libraries, or without a file.
    """
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
    """Add the files of `module`, and of its imports from `root`, to `path_by_name`."""
    # In site-packages, other folders beside the package are other libraries.
    alone = root.name in _INSTALLED
    pending, visited = [module], set[str]()
    while pending:
        name = pending.pop()
        top, seen_before = name.partition(".")[0], name in visited
        visited.add(name)
        if seen_before or (alone and top != module.partition(".")[0]):
            continue
        parent = name.rpartition(".")[0]
        # The package's own `__init__.py` runs first, so it counts, too.
        if parent:
            pending.append(parent)
        path = source_of(name) if _root(name) == root else None
        if path is None:
            continue
        path_by_name[path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name] = path
        pending.extend(_imported(path, name))


def _imported(path: Path, module: str) -> Iterator[str]:
    """Yield absolute names that the source at `path` may import; some may not be modules."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, OSError):
        return  # the import itself reports the error
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
