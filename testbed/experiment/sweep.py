"""The points of a sweep: a grid over any keys of an experiment."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from testbed.errors import ExperimentError
from testbed.experiment.reading import set_key
from testbed.experiment.schema import Experiment
from testbed.experiment.validation import validated

MAXIMUM_POINTS = 10_000
_NOT_SWEPT = ("sweep", "provenance")


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

    def where(self, file: str) -> str:
        """What errors of this point begin with."""
        return f"{file}: sweep point {self.label}" if self.label else file


def points(experiment: Experiment, where: str) -> Iterator[Point]:
    """The experiment's points, in the order of the file.

    A value that is a mapping is merged into the section that its key names; any other value replaces what is there.

    Raises:
        ExperimentError: for a point that does not hold, a grid of too many points, or the same point twice.
    """
    if not experiment.sweep:
        yield Point("", {}, experiment)
        return
    _check_grid(experiment.sweep, where)
    base = experiment.model_dump(mode="json", exclude_unset=True)
    base.pop("sweep")
    grid = [
        dict(zip(experiment.sweep, values, strict=True)) for values in itertools.product(*experiment.sweep.values())
    ]
    for values, label in zip(grid, _labels(grid, where), strict=True):
        data = deepcopy(base)
        for key, value in values.items():
            set_key(data, key, deepcopy(value), f"{where}: sweep.{key}")
        yield Point(label, values, validated(data, f"{where}: sweep point {label}", type(experiment)))


def _check_grid(sweep: dict[str, list[Any]], where: str) -> None:
    for key in sweep:
        if key.partition(".")[0] in _NOT_SWEPT:
            raise ExperimentError(f"{where}: sweep.{key}: cannot be swept over; name a setting of the experiment")
    count = math.prod(len(values) for values in sweep.values())
    if count > MAXIMUM_POINTS:
        raise ExperimentError(f"{where}: sweep: a grid of {count} points; at most {MAXIMUM_POINTS}")


def _labels(grid: list[dict[str, Any]], where: str) -> list[str]:
    """A label for each point: the shortest form in which all differ."""
    forms: list[Callable[[str, Any], str]] = [_short, _all_values, _all_keys]
    for form in forms:
        labels = [",".join(form(key, value) for key, value in values.items()) for values in grid]
        label, times = Counter(labels).most_common(1)[0]
        if times == 1:
            return labels
    raise ExperimentError(f"{where}: sweep: the point {label} stands {times} times")


def _short(key: str, value: Any) -> str:
    """The protocol's name alone, or key=value with the last part of the key."""
    if isinstance(value, dict) and "protocol" in value:
        return _one_line(value["protocol"])
    return _all_values(key, value)


def _all_values(key: str, value: Any) -> str:
    """key=value for every value in a mapping, with the last parts of the keys."""
    if isinstance(value, dict) and value:
        return ",".join(_all_values(str(inner), part) for inner, part in value.items())
    name = key.rpartition(".")[2]
    return _one_line(value) if name == "protocol" and value else f"{name}={_one_line(value)}"


def _all_keys(key: str, value: Any) -> str:
    """key=value for every value in a mapping, with the whole keys."""
    if isinstance(value, dict) and value:
        return ",".join(_all_keys(f"{key}.{inner}", part) for inner, part in value.items())
    return f"{key}={_one_line(value)}"


def _one_line(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() else repr(text)
