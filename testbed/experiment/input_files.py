"""The files that an experiment reads: where they are for a process elsewhere, and what was in them."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment

_WRITTEN = ("output",)  # sections whose paths are not read


def located(experiment: Experiment) -> Experiment:
    """The same experiment with absolute paths, for processes that have another working directory."""
    data = experiment.model_dump(mode="python", exclude_unset=True)
    return Experiment.model_validate(_absolute(data))


def digests(experiment: Experiment) -> dict[str, str]:
    """SHA-256 of every file that `experiment` names, and of folders the digest of their files' names and digests.

    A path that does not exist is left out: whoever reads it says so.
    """
    found = {}
    for path in sorted(set(_paths(experiment.model_dump(mode="python")))):
        if path.exists():
            found[str(path)] = _digest(path)
    return found


def missing(experiment: Experiment) -> Iterator[str]:
    """A line, with its key, for each file or folder that `experiment` names and that is not here."""
    for key, path in _keyed_paths(experiment.model_dump(mode="python"), ()):
        if not path.exists():
            relative = "" if path.is_absolute() else " (relative paths count from the working directory)"
            yield f"{'.'.join(key)}: {path}: no such file or folder{relative}"


def check_unchanged(recorded: Mapping[str, str], experiment: Experiment, where: str) -> None:
    """Raise `ExperimentError` when a file is not what it was when the run began (`recorded`: its digests then)."""
    for path, digest in digests(experiment).items():
        if recorded.get(path, digest) != digest:
            raise ExperimentError(
                f"{where}: --resume: {path} has changed since this run began; put it back, or give another --out"
            )


def _absolute(value: Any) -> Any:
    if isinstance(value, Path):
        return value.absolute()
    if isinstance(value, dict):
        return {key: _absolute(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_absolute(inner) for inner in value]
    return value


def _paths(value: Any) -> Iterator[Path]:
    return (path for _, path in _keyed_paths(value, ()))


def _keyed_paths(value: Any, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Path]]:
    if isinstance(value, Path):
        yield key, value
    elif isinstance(value, dict):
        for inner, more in value.items():
            if inner not in _WRITTEN:
                yield from _keyed_paths(more, (*key, str(inner)))
    elif isinstance(value, list):
        for more in value:
            yield from _keyed_paths(more, key)


def _digest(path: Path) -> str:
    try:
        if path.is_dir():
            inside = (f"{file.relative_to(path)} {_digest(file)}" for file in sorted(path.rglob("*")) if file.is_file())
            return hashlib.sha256("\n".join(inside).encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None
