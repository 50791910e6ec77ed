"""Inputs of an experiment: files, user-defined classes, and the digest of its settings from which secrets derive.

Two runs with one seed that differ in anything, such as the learning rate of two points of a sweep or the content of a
trace, must not use the same masks or noise: the difference of a client's two masked inputs would be the bare difference
of its updates. Exceptions are the source of user-defined classes, `workload.clients_at_once`, which changes only the
rounding, and `workload.client_accuracy`, which only measures.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from testbed.adversary.section import name_of
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.files import limits
from testbed.plugins.classes import IMPORTING_ADVICE, NotImportedError

_WRITTEN = ("output",)  # sections with paths that are written, not read
_DOMAIN = b"testbed/experiment/secrets/v1"
_WITHOUT_EFFECT = frozenset(  # on the rounds that are computed; stop_at changes only their number
    {"cluster", "output", "provenance", "records", "stop_at", "sweep", "targets"}
)
_SECRETS_ROUNDS = "secrets_rounds"
SECRETS, SECRETS_FORM = "secrets", "without rounds"
"""Key of a run's provenance for the derivation of secrets from the seed, and its value in new runs."""
_ABSENT = object()


def located(experiment: Experiment) -> Experiment:
    """Return the same experiment with absolute paths, for processes with another working directory."""
    data = experiment.model_dump(mode="python", exclude_unset=True)
    return Experiment.model_validate(_absolute(data))


def digests(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of every file that `experiment` names.

    A folder has the digest of its files' names and digests. Files named in options of user-defined code count, too.
    Missing paths are left out; the code that reads them reports the error.

    Returns:
        hexadecimal digests by path.
    """
    digest_by_path = {}
    plain = experiment.model_dump(mode="python")
    in_options = (path for _, path in _texts_in_options(plain, ()) if _is_file(path))
    for path in sorted({*_paths(plain), *in_options}):
        # The code that reads a missing file reports it, with its own advice.
        if path.exists():
            digest_by_path[str(path)] = _digest(path)
    return digest_by_path


def with_digests(experiment: Experiment, files: Mapping[str, str], former_rounds: int | None = None) -> Experiment:
    """Return the experiment with these digests in its provenance, on which `secrets_context` depends.

    Args:
        experiment: one point, with absolute paths or as it was written.
        files: `digests` at the beginning of the run, as recorded.
        former_rounds: number of rounds with which the run began, if its secrets depend on it (`secrets_rounds`).
    """
    absolute = {str(Path(path).absolute()): digest for path, digest in files.items()}
    more: dict[str, Any] = {"files": absolute | dict(files)} if files else {}
    if former_rounds is not None:
        more[_SECRETS_ROUNDS] = former_rounds
    return experiment.model_copy(update={"provenance": (experiment.provenance or {}) | more})


def secrets_rounds(provenance: Mapping[str, Any], rounds: int) -> int | None:
    """Return the number of rounds on which a recorded run's secrets depend; None: they depend on none.

    Until version 0.2 secrets depended on the number with which the run began, and such runs keep their secrets.

    Args:
        provenance: provenance of the run.
        rounds: the run's number of rounds, as recorded now.
    """
    if provenance.get(SECRETS) == SECRETS_FORM:
        return None
    history = provenance.get("more_rounds") or []
    return int(history[0]["rounds"]) if history else rounds


def missing(experiment: Experiment) -> Iterator[str]:
    """Yield a line, with its key, for each file or folder that `experiment` names and that does not exist."""
    for key, path in _keyed_paths(experiment.model_dump(mode="python"), ()):
        if not path.exists():
            relative = "" if path.is_absolute() else " (relative paths count from the working directory)"
            yield f"{'.'.join(key)}: {path}: no such file or folder{relative}"


def check_unchanged(recorded: Mapping[str, str], experiment: Experiment, where: str) -> None:
    """Raise `ExperimentError` if a file has changed since the run began.

    Args:
        recorded: digests at the beginning of the run.
        experiment: the experiment.
        where: the run, for the message.
    """
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


def _texts_in_options(value: Any, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield texts within `options`, `model_options` and the like, which may be names of files, with their keys."""
    if isinstance(value, dict):
        for inner, more in value.items():
            yield from _texts_in_options(more, (*key, str(inner)))
    elif isinstance(value, list | tuple):
        for more in value:
            yield from _texts_in_options(more, key)
    elif isinstance(value, str) and any(name.endswith("options") for name in key):
        yield key, Path(value)


def _is_file(path: Path) -> bool:
    with suppress(OSError, ValueError):  # raised for texts that cannot be file names
        return path.is_file()
    return False


def _digest(path: Path) -> str:
    try:
        if path.is_dir():
            inside = (f"{file.relative_to(path)} {_digest(file)}" for file in sorted(path.rglob("*")) if file.is_file())
            return hashlib.sha256("\n".join(inside).encode()).hexdigest()
        limits.check_regular(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None


def plugin_classes(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the key and the name, ``package.module:Name``, of each user-defined class.

    Args:
        experiment: a point of a sweep, or an experiment without one.
    """
    named = [
        ("selection.protocol", experiment.selection.protocol),
        ("aggregation.protocol", experiment.aggregation.protocol),
        *((f"aggregation.{key}", name) for key, name in experiment.aggregation.named_classes()),
        *experiment.workload.own,
        ("devices.model", experiment.devices.model),
        ("links.model", experiment.links.model or ""),
        ("availability.model", experiment.availability.model),
    ]
    for name, kind in experiment.classes.items():
        if kind.devices is not None:
            named.append((f"classes.{name}.device.model", kind.devices.model))
    if experiment.adversary is not None:
        named += [("adversary.server", name_of(misbehaviour)) for misbehaviour in experiment.adversary.server]
        named += [("adversary.clients", name_of(misbehaviour)) for misbehaviour in experiment.adversary.clients]
    return [(key, name) for key, name in named if ":" in name]


def named_code(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the key and the name of all code that an experiment names: `plugin_classes`, and a Flower app.

    Args:
        experiment: a point of a sweep, or an experiment without one.
    """
    flower = experiment.workload.flower
    return [*plugin_classes(experiment), *([] if flower is None else [("workload.flower", flower.named)])]


def refuse_unless_imported(experiments: Iterable[Experiment], where: str, import_classes: bool) -> None:
    """Raise `NotImportedError` if experiments name code that the user has not allowed to run.

    Args:
        experiments: points, each without a sweep.
        where: the file or run, for the message.
        import_classes: whether the user has allowed it.
    """
    named = [code for experiment in experiments for code in named_code(experiment)]
    if named and not import_classes:
        kinds, action = "user-defined classes", "import their modules"
        if any(key == "workload.flower" for key, _ in named):
            kinds, action = "user-defined classes or a Flower app", "run their code"
        names = ", ".join(dict.fromkeys(name for _, name in named))
        raise NotImportedError(
            f"{where}: names {kinds}: {names}; this command does not {action} unless you allow it: give "
            f"{IMPORTING_ADVICE}"
        )


def secrets_context(experiment: Experiment) -> bytes:
    """Return 32 bytes that identify this point of an experiment wherever and whenever it runs or resumes.

    Keys at their defaults do not count, so that a key added by a later version changes nothing. Paths do not count, as
    they differ between machines; the content of files counts if the run has recorded digests (`with_digests`).

    The number of rounds counts only if a misbehaviour depends on it. Other effects of the number, such as noise planned
    for an epsilon, are in sections that count. So a run of more rounds begins as the shorter one does, and a finished
    run can be extended.
    """
    recorded = (experiment.provenance or {}).get(_SECRETS_ROUNDS)
    by_rounds = experiment.adversary is not None and bool(experiment.adversary.depending_on_rounds())
    # Without the number of rounds, a run of more rounds begins as the shorter one, and a finished run can be extended.
    without = _WITHOUT_EFFECT if by_rounds or recorded is not None else _WITHOUT_EFFECT | {"rounds"}
    if recorded is not None:
        experiment = experiment.model_copy(update={"rounds": recorded})
    if experiment.aggregation.supports_symbolic_masks:  # how masks are emulated has no effect either
        as_usual = experiment.aggregation.model_copy(update={"masks": None})
        experiment = experiment.model_copy(update={"aggregation": as_usual})
    # clients_at_once changes only the rounding, and client_accuracy only measures.
    with_effect = experiment.workload.model_copy(update={"clients_at_once": 1, "client_accuracy": False})
    experiment = experiment.model_copy(update={"workload": with_effect})
    plain = {name: _plain(value) for name, value in _chosen(experiment) if name not in without}
    # Sorted: the order of keys in a file must not change the secrets.
    content = json.dumps(_without_paths(plain), sort_keys=True)
    if files := _recorded_files(experiment):
        content += "\0" + json.dumps(files)
    return hashlib.sha256(_DOMAIN + content.encode()).digest()


def _recorded_files(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the key and the recorded digest of each file that results depend on, in the order of the keys."""
    recorded = (experiment.provenance or {}).get("files")
    if not isinstance(recorded, dict):
        return []
    plain = experiment.model_dump(mode="python", exclude=set(_WITHOUT_EFFECT))
    named = [*_keyed_paths(plain, ()), *_texts_in_options(plain, ())]
    files = [(".".join(key), str(recorded[str(path)])) for key, path in named if str(path) in recorded]
    return sorted(files, key=lambda file: file[0])  # files of one key stay in their order


def _chosen(model: BaseModel) -> list[tuple[str, Any]]:
    """Return the fields that differ from their defaults, and those that name the kind of a section.

    A default that has changed counts as in earlier versions (`former_defaults` of the section), so that the same values
    give the same secrets in every version.
    """
    fields = type(model).model_fields
    values = dict(model)
    former = _former_defaults(model)
    chosen = []
    for name, declared in fields.items():
        # A default that has changed counts as before: the same values give the same secrets in every version.
        default = former[name] if name in former else declared.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            default = default.model_copy(update=dict(_former_defaults(default)))
        # The kind of a section always counts: two kinds may otherwise have the same keys at their defaults.
        if _names_section(declared.annotation) or values[name] != default:
            chosen.append((name, values[name]))
    return [*chosen, *(model.model_extra or {}).items()]


def _former_defaults(model: BaseModel) -> Mapping[str, Any]:
    return getattr(type(model), "former_defaults", {})


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
    # A path differs between machines; the digest of its content counts instead.
    return _ABSENT if isinstance(value, PurePath) else value


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(inner) for name, inner in value.items() if inner is not _ABSENT}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value if inner is not _ABSENT]
    return value
