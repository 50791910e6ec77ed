"""The points of a sweep: a grid over any keys of an experiment."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.errors import ExperimentError
from testbed.experiment.loading import set_key, validated
from testbed.experiment.schema import Experiment


@dataclass(frozen=True)
class Point:
    """One experiment of a sweep.

    Attributes:
        label: names it among the points, and its directory; empty when there is no sweep.
        values: the swept keys and their values here.
        experiment: without its sweep.
    """

    label: str
    values: dict[str, Any]
    experiment: Experiment


def points(experiment: Experiment, where: str) -> Iterator[Point]:
    """The experiment's points, in the order of the file; raises `ExperimentError` for one that does not hold."""
    if not experiment.sweep:
        yield Point("", {}, experiment)
        return
    keys = list(experiment.sweep)
    base = experiment.model_dump(mode="json", exclude_unset=True)
    base.pop("sweep")
    grid = list(itertools.product(*(experiment.sweep[key] for key in keys)))
    labels = [_label(dict(zip(keys, values, strict=True))) for values in grid]
    for values, label in zip(grid, labels, strict=True):
        unique = label
        if labels.count(label) > 1:
            unique = _full_label(dict(zip(keys, values, strict=True)))
        data = _copied(base)
        for key, value in zip(keys, values, strict=True):
            set_key(data, key, _copied(value), f"{where}: sweep.{key}")
        point = validated(data, f"{where}: sweep point {unique}")
        yield Point(unique, dict(zip(keys, values, strict=True)), point)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value


def _label(values: dict[str, Any]) -> str:
    """Short: the protocol's name, or key=value with the last part of the key."""
    return ",".join(_short(key, value) for key, value in values.items())


def _short(key: str, value: Any) -> str:
    name = key.rpartition(".")[2]
    if isinstance(value, dict):
        return str(value["protocol"]) if "protocol" in value else _full_label(value)
    return str(value) if name == "protocol" else f"{name}={value}"


def _full_label(values: dict[str, Any]) -> str:
    parts = []
    for key, value in values.items():
        if isinstance(value, dict):
            parts.append(_full_label(value))
        else:
            parts.append(_short(key, value))
    return ",".join(parts)


__all__ = ["ExperimentError", "Point", "points"]
