"""Strict validation of plain data as an experiment, with one line per mistake: the place and the allowed values.

An experiment is data that JSON can hold, and is validated strictly as JSON: `true` is not a number, nor is `"10"`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

import numpy as np
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import from_json, to_json

from testbed.aggregation.robust_rules import MISPLACED_KEY_HINT
from testbed.errors import ExperimentError
from testbed.spelling import did_you_mean, question, similar

_LONGEST_SHOWN = 60
_LARGEST_EXACT = 2**53  # every whole number up to it is a double
_NO_INTEGER = {"int_type", "int_from_float"}
_OTHER_TYPES = {"literal_error", "string_type", "list_type", "tuple_type", "dict_type", "model_type", "none_required"}
_ANY = "*"  # part of a location: any key of a mapping
_YAML_WORDS = {True: "true", False: "false", None: "null"}
_Kind = TypeVar("_Kind", bound=BaseModel)
_ELSEWHERE = {("aggregation", "robust"): MISPLACED_KEY_HINT}
"""Message for keys that belong elsewhere, by section and key, where a list of allowed keys would not help."""


def validated_as(kind: type[_Kind], data: dict[str, Any], where: str) -> _Kind:
    """Return `data` validated as `kind`.

    Args:
        kind: `testbed.experiment.schema.Experiment`.
        data: plain data.
        where: the file or another source; begins each line of the error.

    Raises:
        ExperimentError: one line per mistake.
    """
    try:
        text = to_json(data, inf_nan_mode="constants")
        plain = from_json(text)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).removeprefix("Error serializing to JSON: ").split())
        raise ExperimentError(f"{where}: an experiment cannot hold this value: {why}") from None
    lines = [f"{path}: must be a finite number" for path in _not_finite(plain, ())]
    if not lines:
        try:
            # As JSON: strictly validated Python data would refuse lists for tuples, and text for paths.
            return kind.model_validate_json(text, strict=True)
        except ValidationError as error:
            first = error
        if not _made_whole(first, plain):
            raise one_line_each(first, plain, kind, where) from None
        try:
            return kind.model_validate_json(to_json(plain), strict=True)
        except ValidationError as error:
            raise one_line_each(error, plain, kind, where) from None
    raise ExperimentError("\n".join(f"{where}: {line}" for line in lines))


def _made_whole(error: ValidationError, data: Any) -> bool:
    """Turn numbers such as 1000.0 (written 1e3) into integers, in place, where only an integer is allowed.

    Where a share is allowed as well, 1.0 is a share. Returns whether there were such numbers.
    """
    problems: dict[tuple[Any, ...], set[str]] = {}
    for problem in error.errors(include_url=False):
        problems.setdefault(tuple(_without_tags(problem["loc"], data)), set()).add(problem["type"])
    made = False
    for path, kinds in problems.items():
        section = data
        for part in path[:-1]:
            section = section[part]
        value = section[path[-1]] if path else None
        # Beyond 2**53 a float may stand for several whole numbers.
        if not isinstance(value, float) or not value.is_integer() or abs(value) > _LARGEST_EXACT:
            continue
        # A union that also takes a float keeps 1.0: there it is a share.
        if kinds & _NO_INTEGER and kinds <= _OTHER_TYPES | _NO_INTEGER:
            section[path[-1]], made = int(value), True
    return made


def as_plain_data(sections: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return sections given as Python objects as plain data; numpy's numbers become Python's.

    Args:
        sections: arguments of `Experiment`.
        where: begins the lines of errors.

    Raises:
        ExperimentError: one line for each value that no experiment can hold: a class, a function, an infinite number.
    """
    lines: list[str] = []

    def plain(value: Any, path: tuple[Any, ...]) -> Any:
        # numpy's numbers are no JSON; notebooks often pass them.
        if isinstance(value, np.generic | np.ndarray):
            value = value.tolist()
        if isinstance(value, Mapping):
            return {plain(key, path): plain(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset | range):
            return [plain(inner, (*path, at)) for at, inner in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            lines.append(f"{_dotted(path)}: must be a finite number")
        elif isinstance(value, type) or callable(value):
            name = getattr(value, "__qualname__", type(value).__name__)
            lines.append(f"{_dotted(path)}: should be a name, e.g. 'package.module:{name}', not a class or function")
        else:
            try:
                to_json(value)
            except ValueError:
                lines.append(f"{_dotted(path)}: an experiment cannot hold a value of type {type(value).__name__}")
        return value

    plain_sections = {key: plain(value, (key,)) for key, value in sections.items()}
    if lines:
        raise ExperimentError("\n".join(f"{where}: {line}" for line in lines))
    return plain_sections


def one_line_each(error: ValidationError, data: Any, kind: type[BaseModel], where: str) -> ExperimentError:
    """Return pydantic's error as an `ExperimentError` with one line per mistake.

    Args:
        error: pydantic's error.
        data: the data that were validated.
        kind: the model.
        where: begins each line.
    """
    return ExperimentError("\n".join(f"{where}: {line}" for line in _lines(error, data, kind)))


def _not_finite(value: Any, path: tuple[Any, ...]) -> Iterator[str]:
    """Yield the key paths of infinite numbers and NaN, which no setting allows."""
    if isinstance(value, float) and not math.isfinite(value):
        yield _dotted(path)
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _not_finite(inner, (*path, key))


def _lines(error: ValidationError, data: Any, model: type[BaseModel]) -> list[str]:
    """Return one line per key path; expectations of a union's alternatives share a line."""
    wordings_by_path: dict[str, list[str]] = {}
    shown_by_path: dict[str, str] = {}
    hints: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        kind = problem["type"]
        if kind == "default_factory_not_called":  # follows from another error, which has its own line
            continue
        location = _without_tags(problem["loc"], data)
        if kind == "missing":
            location.append(problem["loc"][-1])
        if kind == "union_tag_invalid":
            location.append(_discriminator(location))
        path = _dotted(location)
        wordings_by_path.setdefault(path, []).append(_wording(problem, model))
        if kind not in ("missing", "extra_forbidden", "union_tag_invalid", "value_error"):
            shown_by_path[path] = _shown(problem["input"])
        if kind in ("float_parsing", "float_type"):
            hints[path] = _share(problem["input"])
        elif kind == "model_type":
            keys = _keys_at(model, tuple(part for part in problem["loc"] if isinstance(part, str)))
            hints[path] = f"; its keys: {', '.join(keys)}" if keys else ""
    lines = []
    for path, wordings in wordings_by_path.items():
        first, *others = dict.fromkeys(wordings)
        line = " or ".join((first, *(other.removeprefix("should be ") for other in others)))
        line += shown_by_path.get(path, "") + hints.get(path, "")
        lines.append(f"{path}: {line}" if path else line)
    return lines


def _discriminator(location: Sequence[Any]) -> str:
    """Return the key that names the alternative of a section."""
    return "model" if location[0] == "availability" else "protocol"


def _without_tags(location: Sequence[Any], data: Any) -> list[Any]:
    """Return pydantic's location as a path in the data, without the names of a union's alternatives."""
    path = []
    for part in location:
        try:
            data = data[part]
        # The name of a union's alternative: pydantic has it in the location, the data have not.
        except (KeyError, IndexError, TypeError):
            continue
        path.append(part)
    return path


def _dotted(path: Sequence[Any]) -> str:
    return ".".join(part if isinstance(part, str) and part.isprintable() else repr(part) for part in path)


def _shown(value: Any) -> str:
    if not isinstance(value, str | int | float | None):
        return ""
    text = _YAML_WORDS[value] if value is None or isinstance(value, bool) else repr(value)
    return f", not {text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + '...'}"


def _share(value: Any) -> str:
    """Return a question whether a percentage such as 5% is meant as a share of 1; empty for other values."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value.strip())):
        return f"; did you mean {float(match[1]) / 100:g}?"
    return ""


def _nested(key: str, allowed: Sequence[str]) -> str:
    """Return advice how to nest a key with dots in a file, if its first part is a key of the section; else ""."""
    first, dot, rest = key.partition(".")
    if not dot or first not in allowed or not all(rest.split(".")):
        return ""
    inner = f"{first}: {{{rest.replace('.', ': {')}: ...{'}' * (rest.count('.') + 1)}"
    return f"keys with dots are for --set and sweep; in a file, nest it: {inner}"


def _wording(problem: Any, model: type[BaseModel]) -> str:
    """Return the mistake and the allowed values, without the path."""
    kind, context, message = problem["type"], problem.get("ctx") or {}, str(problem["msg"])
    if kind == "extra_forbidden":
        *section, key = problem["loc"]
        if (*section[:1], key) in _ELSEWHERE:
            return _ELSEWHERE[*section[:1], key]
        allowed = _keys_at(model, tuple(part for part in section if isinstance(part, str)))
        if nested := _nested(str(key), allowed):
            return f"unknown key; {nested}; allowed: {', '.join(allowed)}"
        hint = did_you_mean(str(key), allowed) or _other_alternatives(model, section, str(key))
        return f"unknown key; {hint}allowed: {', '.join(allowed)}"
    if kind == "union_tag_invalid":
        expected = context["expected_tags"].replace("'a user-defined class'", "or package.module:Class")
        tag = context["tag"]
        names = re.findall("'([^']+)'", expected)
        longer = [name for name in names if tag and name.startswith(f"{tag}-")]
        hint = question(longer or similar(tag, names))
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


def _other_alternatives(model: type[BaseModel], section: Sequence[Any], key: str) -> str:
    """Return which other protocols (or models) of a section have a key; empty if none has it."""
    if len(section) != 2:  # the section and the tag of its alternative
        return ""
    name, own = section
    others = [
        location[1]
        for location, keys in _keys(model).items()
        if len(location) == 2 and location[0] == name and location[1] != own and key in keys
    ]
    return f"it is a key of {', '.join(others)}, and not of {own}; " if others else ""


def _keys_at(model: type[BaseModel], section: tuple[str, ...]) -> list[str]:
    """Return the keys of the section at this location."""
    for location, keys in _keys(model).items():
        if len(location) == len(section) and all(
            part in (_ANY, own) for part, own in zip(location, section, strict=True)
        ):
            return keys
    return []


@cache
def _keys(model: type[BaseModel], section: tuple[str, ...] = ()) -> dict[tuple[str, ...], list[str]]:
    """Return the keys of each section by its location in pydantic's errors (tags of unions included)."""
    keys_by_section = {section: sorted(model.model_fields)}
    for name, field in model.model_fields.items():
        for tag, inner in _models_in(field.annotation):
            keys_by_section |= _keys(inner, (*section, name, *tag))
    return keys_by_section


def _models_in(annotation: Any, tag: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Yield the models that an annotation allows, each with its tags in unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, annotation
    elif get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        yield from _models_in(inner, (*tag, *(part.tag for part in extra if isinstance(part, Tag))))
    elif get_origin(annotation) is dict:
        yield from _models_in(get_args(annotation)[1], (*tag, _ANY))
    else:
        for argument in get_args(annotation):
            yield from _models_in(argument, tag)
