"""What an experiment depends on: the files that it reads, the user-defined classes that it names, its own settings.

The digest of the settings tells experiments apart whose secrets must be unrelated. Two runs with one seed that differ
in anything, be it the learning rate of two points of one sweep, must not mask (or add noise) alike: the difference of a
client's two inputs would be that of its updates, bare, for anybody to see.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from testbed.adversary.section import name_of
from testbed.aggregation.plain import robust_of
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.plugins.classes import IMPORT_CLASSES, NotImportedError

_WRITTEN = ("output",)  # sections whose paths are not read
_DOMAIN = b"testbed/experiment/secrets/v1"
_WITHOUT_EFFECT = frozenset(  # on what is computed; with stop_at it is the same, and less of it
    {"cluster", "output", "provenance", "records", "stop_at", "sweep", "targets"}
)
_ABSENT = object()


def located(experiment: Experiment) -> Experiment:
    """The same experiment with absolute paths, for processes that have another working directory."""
    data = experiment.model_dump(mode="python", exclude_unset=True)
    return Experiment.model_validate(_absolute(data))


def digests(experiment: Experiment) -> dict[str, str]:
    """SHA-256 of every file that `experiment` names, and of folders the digest of their files' names and digests.

    Files that options of user-defined code name are among them. A path that does not exist is left out: whoever reads
    it says so.
    """
    found = {}
    plain = experiment.model_dump(mode="python")
    for path in sorted({*_paths(plain), *_files_in_options(plain)}):
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


def _files_in_options(value: Any, inside: bool = False) -> Iterator[Path]:
    """Texts within `options`, `model_options` and the like that are the names of files."""
    if isinstance(value, dict):
        for key, more in value.items():
            yield from _files_in_options(more, inside or str(key).endswith("options"))
    elif isinstance(value, list | tuple):
        for more in value:
            yield from _files_in_options(more, inside)
    elif inside and isinstance(value, str):
        with suppress(OSError, ValueError):  # of a text that no file can be called
            if Path(value).is_file():
                yield Path(value)


def _digest(path: Path) -> str:
    try:
        if path.is_dir():
            inside = (f"{file.relative_to(path)} {_digest(file)}" for file in sorted(path.rglob("*")) if file.is_file())
            return hashlib.sha256("\n".join(inside).encode()).hexdigest()
        if path.exists() and not path.is_file():  # a pipe would wait, a device need not end
            raise ExperimentError(f"{path}: is not a regular file but a pipe or a device; name a file")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None


def plugin_classes(experiment: Experiment) -> list[tuple[str, str]]:
    """The key and the name, ``package.module:Name``, of each; of an experiment without a sweep."""
    named = [
        ("selection.protocol", experiment.selection.protocol),
        ("aggregation.protocol", experiment.aggregation.protocol),
        ("aggregation.server_optimizer.name", getattr(experiment.aggregation.server_optimizer, "name", "")),
        ("aggregation.robust.rule", getattr(robust_of(experiment.aggregation), "rule", "")),
        *experiment.workload.own,
        ("devices.model", experiment.devices.model),
        ("links.model", experiment.links.model or ""),
        ("availability.model", experiment.availability.model),
    ]
    for name, kind in experiment.classes.items():
        if kind.devices is not None:
            named.append((f"classes.{name}.device.model", kind.devices.model))
    if experiment.adversary is not None:
        named += [("adversary.server", name_of(one)) for one in experiment.adversary.server]
        named += [("adversary.clients", name_of(one)) for one in experiment.adversary.clients]
    return [(key, name) for key, name in named if ":" in name]


def named_code(experiment: Experiment) -> list[tuple[str, str]]:
    """The key and the name of all code that an experiment names: `plugin_classes`, and a Flower app.

    Args:
        experiment: a point of a sweep, or an experiment without one.
    """
    flower = experiment.workload.flower
    return [*plugin_classes(experiment), *([] if flower is None else [("workload.flower", flower.named)])]


def refuse_unless_imported(experiments: Iterable[Experiment], where: str, import_classes: bool) -> None:
    """Raise `NotImportedError` for user-defined classes, and Flower apps, whose code may not run."""
    named = [one for experiment in experiments for one in named_code(experiment)]
    if named and not import_classes:
        kinds = "user-defined classes, whose modules this command imports"
        if any(key == "workload.flower" for key, _ in named):
            kinds = "user-defined classes or a Flower app, whose code this command runs"
        names = ", ".join(dict.fromkeys(name for _, name in named))
        raise NotImportedError(f"{where}: names {kinds} only when asked: {names}; give {IMPORT_CLASSES}")


def secrets_context(experiment: Experiment) -> bytes:
    """32 bytes, the same wherever and whenever this point of an experiment is run, or resumed.

    What is left at its default does not count, so that a key that a later version adds changes nothing; nor do paths,
    which differ from machine to machine. Runs that differ in nothing but where their files lie have the same secrets.
    """
    if isinstance(experiment.aggregation, SecAggParameters):  # how masks are emulated has no effect either
        as_usual = experiment.aggregation.model_copy(update={"masks": None})
        experiment = experiment.model_copy(update={"aggregation": as_usual})
    one_by_one = experiment.workload.model_copy(update={"clients_at_once": 1})  # but for rounding, nor has this
    experiment = experiment.model_copy(update={"workload": one_by_one})
    plain = {name: _plain(value) for name, value in _chosen(experiment) if name not in _WITHOUT_EFFECT}
    return hashlib.sha256(_DOMAIN + json.dumps(_without_paths(plain), sort_keys=True).encode()).digest()


def _chosen(model: BaseModel) -> list[tuple[str, Any]]:
    """The fields that are not at their default, and those that say which of several sections this is."""
    fields = type(model).model_fields
    values = dict(model)
    found = [(name, values[name]) for name in fields]
    kept = [
        (name, value)
        for name, value in found
        if _names_section(fields[name].annotation) or value != fields[name].get_default(call_default_factory=True)
    ]
    return [*kept, *(model.model_extra or {}).items()]


def _names_section(annotation: Any) -> bool:
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(inner) for name, inner in _chosen(value)}
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return _ABSENT if isinstance(value, PurePath) else value


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(inner) for name, inner in value.items() if inner is not _ABSENT}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value if inner is not _ABSENT]
    return value
