"""A job in one zip file: the submitting code, the experiment, and the files that it reads.

The job's working directory on the cluster is the unpacked zip: the packages ``testbed``, ``cluster``, ``workloads`` and
``analysis`` as they are imported here, with their entry points, the user's own modules, ``experiment.yaml``, and below
``inputs/`` the files that the experiment names, under names that depend on their base names and order alone. The same
experiment submitted from another directory is therefore the same experiment to ``--resume``, and a changed file is
noticed by its digest. The zip's bytes depend on its contents alone, so that Ray uploads a package once.
"""

import ast
import importlib.util
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from testbed.errors import ExperimentError, RunError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.reading import named_value
from testbed.experiment.schema import Experiment, Point, load, points, validated
from testbed.extras import PROJECT
from testbed.plugins.entry_points import own_text
from testbed.plugins.sources import LIBRARIES, PRODUCT
from testbed.version import VERSION

EXPERIMENT = "experiment.yaml"
INPUTS = "inputs"
METADATA = f"{PROJECT.replace('-', '_')}-{VERSION}.dist-info"
MAXIMUM_UPLOAD_BYTES = 100 * 1024**2  # limit of Ray's dashboard (ray_constants.DASHBOARD_CLIENT_MAX_SIZE)
MAXIMUM_UNPACKED_BYTES = 2 * 1024**3
"""Limit of the user's files before compression: nodes unpack them, and zeros compress to nothing."""
_LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_NAMED = 3  # largest files that an error names
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip
_COSTS = "time.costs"  # holds a file name only until the experiment is loaded


@dataclass(frozen=True)
class Packed:
    """A working directory to upload.

    Attributes:
        path: the zip file.
        experiment: the experiment in the zip, with paths relative to it.
        files: name in the zip and unpacked size in bytes of the user's files: inputs and own modules.
        notes: one line each, for the user: files that were not sent, and where they must be.
    """

    path: Path
    experiment: Experiment
    files: dict[str, int]
    notes: tuple[str, ...]


def pack(
    file: Path, overrides: Sequence[str], into: Path, on_cluster: Sequence[Path] = (), maximum: int | None = None
) -> Packed:
    """Pack the experiment in `file` into ``job.zip`` in the directory `into`.

    Args:
        file: the experiment.
        overrides: ``key=value``, applied before packing.
        into: an existing directory.
        on_cluster: paths in the experiment that are left as they are, because they are on the cluster (on every node).
        maximum: largest size of the zip in bytes; default: the limit of Ray's dashboard.

    Raises:
        ExperimentError: the experiment is invalid, a file is missing or not a regular file, or the files are too large.
    """
    experiment = load(file, overrides)
    inputs = _Inputs(str(file), {path.expanduser() for path in on_cluster})
    all_points = list(points(experiment, str(file)))
    plain = _rewritten(experiment, all_points, inputs, str(file))
    modules, missing = own_modules(_own_names(all_points), [Path.cwd(), file.absolute().parent])
    notes = [
        *inputs.notes,
        *(f"{name}: not beside the experiment; the cluster's nodes must have it" for name in missing),
    ]
    links: list[Path] = []
    user_files = {name: source for paths in (inputs.packed, modules) for name, source in _files(paths, links)}
    notes += [f"{link}: a symbolic link, not sent; replace it by the file itself" for link in links]
    packed = validated(plain, str(file))
    sizes = {name: _size(source) for name, source in user_files.items()}
    _check_unpacked(sizes)  # before minutes of compressing
    path = into / "job.zip"
    experiment_text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    _write(path, {**_code(), **user_files}, {EXPERIMENT: experiment_text, **_metadata()})
    _check_size(path.stat().st_size, MAXIMUM_UPLOAD_BYTES if maximum is None else maximum, sizes)
    return Packed(path, packed, sizes, tuple(notes))


def pack_code(into: Path) -> Path:
    """Pack the testbed's own packages alone as ``code.zip`` in `into`; return its path."""
    path = into / "code.zip"
    _write(path, _code(), _metadata())
    return path


class _Inputs:
    """The files to ship, and the name of each in the zip."""

    def __init__(self, where: str, on_cluster: set[Path]) -> None:
        self._where = where
        self._on_cluster = on_cluster
        self.packed: dict[str, Path] = {}
        self.notes: list[str] = []
        self._names: dict[Path, str] = {}

    def shipped(self, path: Path) -> str:
        """Return the name of `path` in the packed experiment."""
        if path in self._names:
            return self._names[path]
        if path in self._on_cluster or (path.is_absolute() and not path.exists()):
            self.notes.append(f"{path}: not sent; it must be at this path on every node")
            name = str(path)
        elif not path.exists():
            raise ExperimentError(
                f"{self._where}: {path}: no such file; for a file on the cluster's nodes give its absolute path"
            )
        else:
            name = self._free_name(path)
            self.packed[name] = path
        self._names[path] = name
        return name

    def _free_name(self, path: Path) -> str:
        base = path.resolve().name or "data"
        name, number = f"{INPUTS}/{base}", 2
        while name in self.packed and self.packed[name].resolve() != path.resolve():
            name = f"{INPUTS}/{number}-{base}"
            number += 1
        return name


def _rewritten(experiment: Experiment, all_points: Sequence[Point], inputs: _Inputs, where: str) -> dict[str, Any]:
    """Return the experiment as plain data, with paths replaced by their names in the zip."""
    plain = experiment.model_dump(mode="json", exclude_unset=True)
    typed = experiment.model_dump(mode="python", exclude_unset=True)
    plain.pop("output", None)  # the command sets the destination of the records
    sweep = plain.pop("sweep", {})
    plain = dict(_with_names(plain, typed, inputs))
    if sweep:
        plain["sweep"] = _rewritten_sweep(all_points, sweep, inputs, where)
    return plain


def _rewritten_sweep(
    all_points: Sequence[Point], sweep: dict[str, list[Any]], inputs: _Inputs, where: str
) -> dict[str, list[Any]]:
    """Return the grid with paths replaced; its values have no types, so the points decide which values are paths."""
    shipped_values: dict[tuple[str, str], Any] = {}
    for point in all_points:
        typed: Any = None
        for key, value in point.values.items():
            # As JSON, since values may be lists, and 1, 1.0 and true are equal in Python.
            identity = (key, json.dumps(value))
            if identity not in shipped_values:
                typed = point.experiment.model_dump(mode="python") if typed is None else typed
                shipped_values[identity] = _swept(key, value, typed, inputs)

    def rewritten(key: str, value: Any) -> Any:
        name, plain_value = named_value(value, where)
        shipped = shipped_values[key, json.dumps(plain_value)]
        return {"label": name, "value": shipped} if name else shipped

    return {key: [rewritten(key, value) for value in values] for key, values in sweep.items()}


def _swept(key: str, value: Any, typed: Any, inputs: _Inputs) -> Any:
    section, _, last = _COSTS.partition(".")
    if key == _COSTS and isinstance(value, str):
        return inputs.shipped(Path(value))
    if key == section and isinstance(value, dict) and isinstance(value.get(last), str):
        value = value | {last: inputs.shipped(Path(value[last]))}
    for part in key.split("."):
        typed = typed.get(part) if isinstance(typed, dict) else None
    return _with_names(value, typed, inputs)


def _with_names(plain: Any, typed: Any, inputs: _Inputs) -> Any:
    """Return `plain` with new names wherever `typed`, which has the same shape, holds a path."""
    if isinstance(typed, Path) and isinstance(plain, str):
        return inputs.shipped(typed)
    if isinstance(typed, dict) and isinstance(plain, dict):
        return {key: _with_names(value, typed.get(key), inputs) for key, value in plain.items()}
    if isinstance(typed, list | tuple) and isinstance(plain, list) and len(typed) == len(plain):
        return [_with_names(value, inner, inputs) for value, inner in zip(plain, typed, strict=True)]
    return plain


def _own_names(all_points: Sequence[Point]) -> Iterator[str]:
    """Yield the names of the user's own code in the points, as package.module:Name; a name may occur several times."""
    for point in all_points:
        yield from (name for _, name in plugin_classes(point.experiment))
        if (flower := point.experiment.workload.flower) is not None:
            yield from filter(None, (flower.client, flower.server))


def _code() -> dict[str, Path]:
    """Return the files of the testbed's own packages, by their names in the zip."""
    folders = {}
    for package in PRODUCT:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise RunError(f"package {package} cannot be imported here, so it cannot be sent; install the testbed")
        folders[package] = Path(spec.origin).parent
    return dict(_files(folders))


def _metadata() -> dict[str, str]:
    """Return texts that make the packages in the zip an installed distribution, with this one's entry points.

    They take precedence over an installation on the node, which may have the entry points of another version.
    """
    about = f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {VERSION}\n"
    return {f"{METADATA}/METADATA": about, f"{METADATA}/entry_points.txt": own_text()}


def _files(paths: dict[str, Path], links: list[Path] | None = None) -> Iterator[tuple[str, Path]]:
    """Yield all files in the folders of `paths` (name in the zip, path), in a fixed order.

    Args:
        paths: files and folders, by their names in the zip; these may be symbolic links themselves.
        links: collects the symbolic links inside the folders, which are left out because they may lead to files that
            should not leave this machine. None: links are followed (the testbed's own code, as some installers link
            it).
    """
    for name, path in sorted(paths.items()):
        if not path.is_dir():
            yield name, path
            continue
        for file in sorted(path.rglob("*")):
            inside = file.relative_to(path)
            if _LEFT_OUT.intersection(inside.parts):
                continue
            if links is not None and file.is_symlink():
                links.append(file)
            elif file.is_file():
                yield f"{name}/{inside.as_posix()}", file


def _write(path: Path, files: dict[str, Path], texts: dict[str, str]) -> None:
    """Write a zip file that depends on names and contents alone."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, text in sorted(texts.items()):
            archive.writestr(_entry(name), text)
        for name, source in sorted(files.items()):
            try:
                # Zip64, as the size of a stream is not known beforehand.
                with source.open("rb") as reader, archive.open(_entry(name), "w", force_zip64=True) as writer:
                    while block := reader.read(1 << 20):
                        writer.write(block)
            except OSError as error:
                raise ExperimentError(f"{source}: cannot be read: {error.strerror or error}") from None


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Fixed, as the zip must not depend on the modes of the files here (Unix permissions, in the upper 16 bits).
    entry.external_attr = 0o644 << 16
    return entry


def _size(path: Path) -> int:
    """Return the bytes of a regular file; raise `ExperimentError` for anything else, such as a pipe or a device."""
    try:
        if not path.is_file():
            raise ExperimentError(f"{path}: is not a regular file but a pipe or a device; name a file")
        return path.stat().st_size
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None


def _check_unpacked(sizes: dict[str, int]) -> None:
    total = sum(sizes.values())
    if total > MAXIMUM_UNPACKED_BYTES:
        raise _too_large(f"{_mebibytes(total)}, and at most {_mebibytes(MAXIMUM_UNPACKED_BYTES)} is sent", sizes)


def _check_size(size: int, maximum: int, sizes: dict[str, int]) -> None:
    if size >= maximum:
        raise _too_large(f"{_mebibytes(size)} packed, and Ray takes less than {_mebibytes(maximum)}", sizes)


def _too_large(problem: str, sizes: dict[str, int]) -> ExperimentError:
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_NAMED]
    listed = ", ".join(f"{name.removeprefix(f'{INPUTS}/')} ({_mebibytes(bytes_)})" for name, bytes_ in largest)
    return ExperimentError(
        f"too much to upload: {problem}; largest: {listed}; put them on the cluster's nodes at the same path and "
        "name them with --on-cluster PATH"
    )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


def own_modules(names: Iterable[str], folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    """Return the modules of user-defined classes, and the modules that they import from the same folders.

    Nothing is imported or run: the imports are read from the source.

    Args:
        names: ``package.module:Name``, as in experiments.
        folders: folders to search, in this order, before PYTHONPATH. Installed modules are not searched.

    Returns:
        Name in the working directory (``mine.py``, or a package's folder) and path of each; and the names that were not
        found.

    Raises:
        ExperimentError: a module is not valid Python.
    """
    folders = [*folders, *(Path(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)]
    modules: dict[str, Path] = {}
    missing = []
    visited = {*PRODUCT, *LIBRARIES}
    for name in names:
        pending = [name.partition(":")[0].partition(".")[0]]
        if pending[0] not in visited and _located(pending[0], folders) is None:
            visited.add(pending[0])
            missing.append(name)
        while pending:
            module = pending.pop()
            path = None if module in visited else _located(module, folders)
            visited.add(module)
            if path is not None:
                modules[path.name] = path
                pending.extend(_imported_names(path))
    return modules, missing


def _located(module: str, folders: Sequence[Path]) -> Path | None:
    """Return the file or the folder of a top-level module in one of the folders; None if there is none."""
    spec = PathFinder.find_spec(module, [str(folder.absolute()) for folder in folders])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return None if spec.origin is None else Path(spec.origin)


def _imported_names(path: Path) -> set[str]:
    """Return the top-level names that the sources at `path` import, without relative imports."""
    names: set[str] = set()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []:
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError) as error:
            raise ExperimentError(f"{file}: not valid Python: {error}") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.partition(".")[0])
    return names
