"""Experiments as plain data, before validation: YAML, overrides such as ``selection.participants=20``, sweeps.

A duplicate key is an error. Errors are one line, with file and line.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from testbed.aggregation import catalogue as aggregations
from testbed.emulation.availability.section import MODELS
from testbed.emulation.links import form_of
from testbed.errors import ExperimentError
from testbed.files import limits, plain_yaml
from testbed.records.point_names import leaves_of, names_of_points, value_names
from testbed.selection import catalogue as selections

MAXIMUM_POINTS = 10_000
_SWEEP = "sweep"
_NOT_SWEPT = (_SWEEP, "provenance")
# Raised by PyYAML for odd scalars, e.g. `2024-13-45`, `!!bool x`, numbers of 5000 digits.
_SCALAR_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class _Strict:
    """Mixin for safe loaders: a duplicate key is an error, and 1e-3 is a number (as in YAML 1.2)."""

    def construct_mapping(self: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            # `<<: *base` may stand several times, and its keys may be overridden.
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a single word", key_node.start_mark)
            if key in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} occurs twice", key_node.start_mark)
            keys.add(key)
        return dict(super().construct_mapping(node, deep))  # type: ignore[misc]  # defined by the loader


class _Loader(_Strict, yaml.SafeLoader):
    """Loader with the best positions of mistakes."""


class _QuickLoader(_Strict, plain_yaml.SAFE):  # type: ignore[misc]  # chosen at run time
    """Loader that is fast if PyYAML was built with libyaml."""


for _loader in (_Loader, _QuickLoader):
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; raises `ExperimentError` with file and line."""
    try:
        limits.check_regular(path)
        text = limits.text(path, limits.YAML_BYTES)
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: not a text file (UTF-8)") from None
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ExperimentError(f"{path}: cannot be read: {error}") from None
    data = parsed(text, str(path))
    if not isinstance(data, dict):
        raise ExperimentError(f"{path}: an experiment must be a mapping of keys to values; see `testbed schema`")
    return data


def parsed(text: str, where: str) -> Any:
    """Return the value of a YAML text; raises `ExperimentError` with `where` and line.

    Args:
        text: the YAML.
        where: the file or another source, for the error.
    """
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


def apply_override(data: dict[str, Any], override: str) -> None:
    """Apply the override ``key=value`` to `data`.

    A mapping is merged into the section; ``{}`` empties it. A mapping for ``sweep`` replaces the sweep, ``null`` drops
    it, and ``sweep.KEY=[...]`` adds a key to it or replaces the key's values.

    Args:
        data: the experiment as plain data; changed.
        override: ``key=value`` with a dotted key and a YAML value.

    Raises:
        ExperimentError: not of this form, or the key is invalid.

    Example:
        >>> data = {"selection": {"protocol": "random"}}
        >>> apply_override(data, "selection.participants=20")
        >>> data
        {'selection': {'protocol': 'random', 'participants': 20}}
    """
    where = f"--set {override if override.isprintable() else repr(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ExperimentError(f"{where}: must be key=value, e.g. selection.participants=20")
    key, value = key.strip(), parsed(text, where)
    sweep, dot, swept = key.partition(".")
    if sweep == _SWEEP and dot and swept:  # keys of the sweep contain dots
        set_key(data, _SWEEP, {swept: value}, where)
        return
    if value == {} or (key == _SWEEP and isinstance(value, dict | None)):  # an empty section, another sweep or none
        set_key(data, key, None, where)
        value = value or {}
    set_key(data, key, value, where)


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key in nested mappings; a mapping is merged into the existing one.

    Setting another `protocol` (or availability `model`) drops the keys of its section that the new one does not have.

    Args:
        data: nested mappings; changed.
        key: e.g. ``selection.participants``.
        value: the new value.
        where: the source of the value, for errors.

    Raises:
        ExperimentError: the key is invalid, or leads through a value that is not a section.
    """
    *sections, last = key.split(".")
    if not all((*sections, last)):
        raise ExperimentError(f"{where}: {key!r} is not a key, e.g. selection.participants")
    for section in sections:
        if data.get(section) is None:
            data[section] = {}
        if not isinstance(data[section], dict):
            remedy = f"; set links.{section}={{preset: {data[section]}, {last}: ...}}" if section == "transport" else ""
            raise ExperimentError(f"{where}: {section} is not a section and has no key {last}{remedy}")
        data = data[section]
    _merge(data, last, value)


def _merge(data: dict[str, Any], key: str, value: Any) -> None:
    if data.get(key, value) != value:
        # Another protocol or model: drop the keys that only the former one has.
        keys = _alternative_keys().get((key, str(value)))
        for other in [other for other in data if keys is not None and other not in keys]:
            del data[other]
    if isinstance(value, dict) and isinstance(data.get(key), dict) and not _another_form(data[key], value):
        for name, inner in value.items():
            _merge(data[key], name, inner)
    else:
        data[key] = value


def _another_form(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether two settings of the links have different forms (or distributions), with nothing to merge."""
    forms = form_of(old), form_of(new)
    return None not in forms and (forms[0] != forms[1] or old.get("distribution") != new.get("distribution"))


def alternative_keys(section: str, name: str) -> frozenset[str]:
    """Return the keys of a built-in protocol (or availability model) of a section; empty for other names.

    Args:
        section: ``selection``, ``aggregation`` or ``availability``.
        name: name of the protocol or model.
    """
    kinds: dict[str, tuple[type[BaseModel], ...]] = {
        "selection": tuple(selections.PROTOCOLS),
        "aggregation": tuple(aggregations.PROTOCOLS),
        "availability": tuple(MODELS),
    }
    named_by = "model" if section == "availability" else "protocol"
    is_built_in = any(kind.model_fields[named_by].default == name for kind in kinds[section])
    return _alternative_keys()[named_by, name] if is_built_in else frozenset()


@cache
def _alternative_keys() -> dict[tuple[str, str], frozenset[str]]:
    """Return the keys of each built-in alternative of a section by its key and name, e.g. ("protocol", "secagg")."""
    keys_by_name = {}
    kinds: tuple[type[BaseModel], ...] = (*selections.PROTOCOLS, *aggregations.PROTOCOLS)
    for kind in kinds:
        keys_by_name["protocol", str(kind.model_fields["protocol"].default)] = frozenset(kind.model_fields)
    for model in MODELS:
        keys_by_name["model", str(model.model_fields["model"].default)] = frozenset(model.model_fields) - model.unread
    return keys_by_name


@dataclass(frozen=True)
class GridPoint:
    """A point of a sweep.

    Attributes:
        label: name among the points.
        values: values by swept key.
        names: names of the values that have one (``label:``), by key.
    """

    label: str
    values: dict[str, Any]
    names: dict[str, str]


def grid(sweep: dict[str, list[Any]], where: str) -> list[GridPoint]:
    """Return the points of a sweep, in the order of the file.

    Args:
        sweep: values by dotted key.
        where: the file or another source; begins the lines of errors.

    Raises:
        ExperimentError: a key that cannot be swept, an invalid label, a grid of too many points, or the same point
            twice.
    """
    _check_grid(sweep, where)
    choices = [[named_value(value, f"{where}: sweep.{key}") for value in values] for key, values in sweep.items()]
    combinations = []
    for choice in itertools.product(*choices):
        values = {key: value for key, (_, value) in zip(sweep, choice, strict=True)}
        combinations.append((values, {key: name for key, (name, _) in zip(sweep, choice, strict=True) if name}))
    labels = _labels(combinations, where)
    return [GridPoint(label, values, names) for label, (values, names) in zip(labels, combinations, strict=True)]


def named_value(value: Any, where: str) -> tuple[str, Any]:
    """Return the name of a sweep's value, empty if it has none, and the value itself.

    A mapping is named by a key ``label`` beside its other keys; any other value by ``{label: ..., value: ...}``.

    Args:
        value: as the sweep lists it.
        where: the file and key, for the error.

    Raises:
        ExperimentError: the label is not a name, or names nothing.

    Example:
        >>> named_value({"label": "slow", "value": 3}, "sweep.rounds")
        ('slow', 3)
    """
    if not isinstance(value, dict) or "label" not in value:
        return "", value
    name = value["label"]
    if not isinstance(name, str | int | float) or isinstance(name, bool) or not str(name).strip():
        raise ExperimentError(f"{where}: label: must be a name, not {name!r}")
    rest = {key: part for key, part in value.items() if key != "label"}
    if not rest:
        raise ExperimentError(f"{where}: label: {name} names no value; add value: or the keys that it stands for")
    return _one_line(name).strip(), rest["value"] if rest.keys() == {"value"} else rest


def _check_grid(sweep: dict[str, list[Any]], where: str) -> None:
    for key in sweep:
        if key.partition(".")[0] in _NOT_SWEPT:
            raise ExperimentError(f"{where}: sweep.{key}: cannot be swept; name a setting of the experiment")
    # Counted before the points are built: a few lists can stand for billions of points.
    count = math.prod(len(values) for values in sweep.values())
    if count > MAXIMUM_POINTS:
        raise ExperimentError(f"{where}: sweep: a grid of {count} points; at most {MAXIMUM_POINTS} are allowed")


def _labels(grid: list[tuple[dict[str, Any], dict[str, str]]], where: str) -> list[str]:
    """Return a label for each point, in the shortest form in which all differ; named values appear by name."""
    label, times = "", 0
    # Short labels first; the whole keys only if two points have the same short label.
    for form in (_differences, _all_keys):
        labels = form(grid)
        label, times = Counter(labels).most_common(1)[0]
        if times == 1:
            return labels
    raise ExperimentError(f"{where}: sweep: the point {label} occurs {times} times; remove the duplicates")


def _differences(grid: list[tuple[dict[str, Any], dict[str, str]]]) -> list[str]:
    """Return the differences between the points; for a single point all swept values."""
    points, names = [values for values, _ in grid], [names_of_values for _, names_of_values in grid]
    if len(grid) == 1:
        return [",".join(value_names(key, [value], [names[0].get(key, "")])[0] for key, value in points[0].items())]
    return [",".join(parts.values()) for parts in names_of_points(points, names)]


def _all_keys(grid: list[tuple[dict[str, Any], dict[str, str]]]) -> list[str]:
    """Return key=value for every value in a mapping, with the whole keys."""
    return [
        ",".join(
            names.get(key)
            or ",".join(f"{leaf}={_one_line(part)}" for leaf, part in leaves_of(key, value).items())
            or f"{key}={{}}"
            for key, value in values.items()
        )
        for values, names in grid
    ]


def _one_line(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
