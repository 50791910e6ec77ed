"""Loading an experiment file: YAML, overrides, and errors of one line each that say where and what is allowed."""

import difflib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, but a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """The validated experiment in `path`, with overrides such as ``selection.participants=20`` applied.

    Every point of a sweep is validated too. Raises `ExperimentError`: one line per mistake, with file and key path.
    """
    from testbed.experiment.sweep import points

    data = read_yaml(path)
    for override in overrides:
        _apply(data, override)
    experiment = validated(data, str(path))
    for _ in points(experiment, str(path)):
        pass
    return experiment


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises `ExperimentError` with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = yaml.load(text, Loader=_Loader)  # a SafeLoader: builds plain data only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise ExperimentError(f"{path}{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ExperimentError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ExperimentError(f"{path}: an experiment is a mapping of keys to values; see `testbed schema`")
    return data


def validated(data: dict[str, Any], where: str) -> Experiment:
    """`data` as an experiment; `where` begins each line of the error."""
    try:
        return Experiment.model_validate(data)
    except ValidationError as error:
        lines = [f"{where}: {_line(problem)}" for problem in error.errors()]
        raise ExperimentError("\n".join(dict.fromkeys(lines))) from None


def _apply(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ExperimentError(f"--set {override}: expected key=value, e.g. selection.participants=20")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ExperimentError(f"--set {override}: the value is not valid YAML") from None
    set_key(data, key.strip(), value, f"--set {override}")


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key in nested mappings; a mapping is merged into the one that is there."""
    *sections, last = key.split(".")
    for section in sections:
        below = data.setdefault(section, {})
        if not isinstance(below, dict):
            raise ExperimentError(f"{where}: {section} is not a section, so it has no key {last}")
        data = below
    if isinstance(value, dict) and isinstance(data.get(last), dict):
        for name, inner in value.items():
            set_key(data[last], str(name), inner, where)
    else:
        data[last] = value


def _line(problem: Any) -> str:
    """One mistake as a line: key path, what is wrong, what is allowed."""
    location = [part for part in problem["loc"] if not _is_tag(problem["loc"], part)]
    path = ".".join(str(part) for part in location)
    given = problem.get("input")
    kind, context = problem["type"], problem.get("ctx") or {}
    if kind == "extra_forbidden":
        allowed = _allowed_keys(problem["loc"][:-1])
        close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{path}: unknown key; {hint}allowed: {', '.join(allowed)}"
    if kind == "union_tag_invalid":
        expected = context["expected_tags"].replace("'a class of your own'", "or package.module:Class")
        return f"{path}.protocol: unknown protocol {context['tag']!r}; allowed: {expected}"
    if kind == "value_error":
        message = str(problem["msg"]).removeprefix("Value error, ")
        return f"{path}: {message}" if path else message
    if kind == "missing":
        return f"{path}: is required"
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool | None) else ""
    return f"{path}: {_worded(str(problem['msg']))}{shown}"


def _worded(message: str) -> str:
    """Pydantic's message in the middle of a line."""
    return "should be " + message.removeprefix("Input should be ") if message.startswith("Input should") else message


def _is_tag(location: Sequence[Any], part: Any) -> bool:
    """Pydantic puts the tag of a union, or the type of an alternative, into the path; a person does not."""
    position = list(location).index(part)
    inside_union = position == 1 and location[0] in ("selection", "aggregation")
    return inside_union or (isinstance(part, str) and ("[" in part or part in ("float", "int", "constrained-float")))


def _allowed_keys(location: Sequence[Any]) -> list[str]:
    """The keys of the model at a validation error's location."""
    model: Any = Experiment
    for part in location:
        alternatives = [model, *_models_in(model)]
        found = None
        for alternative in alternatives:
            fields = getattr(alternative, "model_fields", {})
            if part in fields:
                found = fields[part].annotation
                break
            if part in _protocol_names(alternative):
                found = alternative
                break
        if found is None:
            break
        model = found
    for candidate in [model, *_models_in(model)]:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return sorted(candidate.model_fields)
    return []


def _models_in(annotation: Any) -> list[Any]:
    found = []
    for argument in get_args(annotation):
        found += [argument, *_models_in(argument)]
    return found


def _protocol_names(model: Any) -> list[Any]:
    field = getattr(model, "model_fields", {}).get("protocol")
    return [] if field is None else [field.default]
