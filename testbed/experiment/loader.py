"""Loading an experiment file: YAML, overrides, and errors of one line each that say where and what is allowed.

An experiment is data that JSON could hold; it is validated as JSON would be, strictly: `true` is no number, and
`"10"` is none either.
"""

import difflib
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import from_json, to_json

from testbed.emulation.links import form_of
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, alternative_keys
from testbed.files import limits, plain_yaml

_LONGEST_SHOWN = 60
_YAML_WORDS = {True: "true", False: "false", None: "null"}
# What PyYAML lets through for odd scalars, e.g. `2024-13-45`, `!!bool x`, numbers of 5000 digits.
_SCALAR_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class _Strict:
    """For a safe loader: a key that stands twice is an error, and 1e-3 is a number (as in YAML 1.2)."""

    def construct_mapping(self: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be one word", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return dict(super().construct_mapping(node, deep))  # type: ignore[misc]  # of the loader mixed into


class _Loader(_Strict, yaml.SafeLoader):
    """Says best where a mistake is."""


class _QuickLoader(_Strict, plain_yaml.SAFE):  # type: ignore[misc]  # chosen at run time
    """Is quick where PyYAML was built with libyaml."""


for _loader in (_Loader, _QuickLoader):
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """The validated experiment in `path`, with overrides such as ``selection.participants=20`` applied.

    Every point of a sweep is validated too. Raises `ExperimentError`: one line per mistake, with file and key path.
    """
    from testbed.experiment.stages import check_points
    from testbed.experiment.sweep import points

    data = read_yaml(path)
    for override in overrides:
        apply_override(data, override)
    experiment = validated(data, str(path))
    check_points([(point.where(str(path)), point.experiment) for point in points(experiment, str(path))])
    return experiment


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises `ExperimentError` with file and line."""
    try:
        text = limits.text(path, limits.YAML_BYTES)
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: not a text file (UTF-8)") from None
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    data = _parsed(text, str(path))
    if not isinstance(data, dict):
        raise ExperimentError(f"{path}: an experiment is a mapping of keys to values; see `testbed schema`")
    return data


def _parsed(text: str, where: str) -> Any:
    try:
        try:
            return plain_yaml.parsed(text, _QuickLoader)
        except (yaml.YAMLError, *_SCALAR_ERRORS):
            return plain_yaml.parsed(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            where = f"{where}:{mark.line + 1}:{mark.column + 1}"
        problem = error.problem or error.context
    except (yaml.YAMLError, *_SCALAR_ERRORS) as error:
        problem = f"{error}" if isinstance(error, yaml.YAMLError | ValueError) else "a value cannot be read"
    raise ExperimentError(f"{where}: not valid YAML: {' '.join(str(problem).split())}")


def validated(data: dict[str, Any], where: str) -> Experiment:
    """`data` as an experiment; `where` begins each line of the error."""
    try:
        text = to_json(data, inf_nan_mode="constants")
        plain = from_json(text)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).removeprefix("Error serializing to JSON: ").split())
        raise ExperimentError(f"{where}: a value that an experiment cannot hold: {why}") from None
    lines = [f"{path}: must be a finite number" for path in _not_finite(plain, ())]
    if not lines:
        try:
            return Experiment.model_validate_json(text, strict=True)
        except ValidationError as error:
            lines = _lines(error, plain)
    raise ExperimentError("\n".join(f"{where}: {line}" for line in lines))


def _not_finite(value: Any, path: tuple[Any, ...]) -> Iterator[str]:
    """The key paths of infinite numbers and NaN, which no setting can mean."""
    if isinstance(value, float) and not math.isfinite(value):
        yield _dotted(path)
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _not_finite(inner, (*path, key))


# -- overrides ----------------------------------------------------------------------------------------------------


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set what ``key=value`` says in `data`; raises `ExperimentError`."""
    where = f"--set {override if override.isprintable() else repr(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ExperimentError(f"{where}: expected key=value, e.g. selection.participants=20")
    value = _parsed(text, where)
    if value == {}:  # nothing to merge: the section is emptied
        set_key(data, key.strip(), None, where)
    set_key(data, key.strip(), value, where)


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key in nested mappings; a mapping is merged into the one that is there.

    Setting another `protocol` (or availability `model`) drops the keys of its section that the new one does not have.
    """
    *sections, last = key.split(".")
    if not all((*sections, last)):
        raise ExperimentError(f"{where}: {key!r} is not a key, e.g. selection.participants")
    for section in sections:
        if data.get(section) is None:
            data[section] = {}
        if not isinstance(data[section], dict):
            raise ExperimentError(f"{where}: {section} is not a section, so it has no key {last}")
        data = data[section]
    _merge(data, last, value)


def _merge(data: dict[str, Any], key: str, value: Any) -> None:
    if data.get(key, value) != value:
        # Another protocol or model: what only the one before knew goes with it.
        keys = alternative_keys().get((key, str(value)))
        for other in [other for other in data if keys is not None and other not in keys]:
            del data[other]
    if isinstance(value, dict) and isinstance(data.get(key), dict) and not _another_form(data[key], value):
        for name, inner in value.items():
            _merge(data[key], name, inner)
    else:
        data[key] = value


def _another_form(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the two are different forms (or distributions) of a setting of the links, with nothing to merge."""
    forms = form_of(old), form_of(new)
    return None not in forms and (forms[0] != forms[1] or old.get("distribution") != new.get("distribution"))


# -- what pydantic found, one line per mistake --------------------------------------------------------------------


def _lines(error: ValidationError, data: Any) -> list[str]:
    """One line per key path; what the alternatives of a union expect is said in one line."""
    found: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        kind = problem["type"]
        location = _without_tags(problem["loc"], data)
        if kind == "missing":
            location.append(problem["loc"][-1])
        if kind == "union_tag_invalid":
            location.append(_discriminator(location))
        path = _dotted(location)
        found.setdefault(path, []).append(_wording(problem))
        if kind not in ("missing", "extra_forbidden", "union_tag_invalid", "value_error"):
            given[path] = _shown(problem["input"])
    lines = []
    for path, wordings in found.items():
        first, *others = dict.fromkeys(wordings)
        line = " or ".join((first, *(other.removeprefix("should be ") for other in others))) + given.get(path, "")
        lines.append(f"{path}: {line}" if path else line)
    return lines


def _discriminator(location: Sequence[Any]) -> str:
    """The key that names the alternative of a section."""
    return "model" if location[0] == "availability" else "protocol"


def _without_tags(location: Sequence[Any], data: Any) -> list[Any]:
    """The location as a path in the data: pydantic puts the names of a union's alternatives in between."""
    path = []
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(part)
    return path


def _dotted(path: Sequence[Any]) -> str:
    return ".".join(part if isinstance(part, str) and part.isprintable() else repr(part) for part in path)


def _shown(given: Any) -> str:
    if not isinstance(given, str | int | float | None):
        return ""
    text = _YAML_WORDS[given] if given is None or isinstance(given, bool) else repr(given)
    return f", not {text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + '...'}"


def _wording(problem: Any) -> str:
    """What is wrong and what is allowed, without the path."""
    kind, context, message = problem["type"], problem.get("ctx") or {}, str(problem["msg"])
    if kind == "extra_forbidden":
        *section, key = problem["loc"]
        allowed = _KEYS.get(tuple(part for part in section if isinstance(part, str)), [])
        close = difflib.get_close_matches(str(key), allowed, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"unknown key; {hint}allowed: {', '.join(allowed)}"
    if kind == "union_tag_invalid":
        expected = context["expected_tags"].replace("'a class of your own'", "or package.module:Class")
        tag = context["tag"]
        close = difflib.get_close_matches(tag, re.findall("'([^']+)'", expected), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return (
            f"unknown {_discriminator(problem['loc'])} {_shown(tag).removeprefix(', not ')}; {hint}allowed: {expected}"
        )
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "missing":
        return "is required"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "should be a mapping of keys to values"
    if kind == "too_short" and context.get("actual_length") == 0:
        return "should not be empty"
    if kind == "string_pattern_mismatch":
        return "should be package.module:Class"
    return message.replace("Input should be", "should be").replace("valid array", "list")


def _keys(model: type[BaseModel], section: tuple[str, ...] = ()) -> dict[tuple[str, ...], list[str]]:
    """The keys of each section, by the section's location in pydantic's errors (tags of unions included)."""
    found = {section: sorted(model.model_fields)}
    for name, field in model.model_fields.items():
        for tag, inner in _models_in(field.annotation):
            found |= _keys(inner, (*section, name, *tag))
    return found


def _models_in(annotation: Any, tag: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """The models that an annotation allows, each with the tag it has in a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, annotation
    elif get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        yield from _models_in(inner, tuple(part.tag for part in extra if isinstance(part, Tag)))
    else:
        for argument in get_args(annotation):
            yield from _models_in(argument, tag)


_KEYS = _keys(Experiment)
