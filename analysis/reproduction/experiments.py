"""Experiments of reproductions: sections in YAML, with values that a reproduction computes.

Values for training and time are set here or by the reproduction, so that a change of a default does not change a kept
result.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from testbed.experiment.schema import Experiment, validated

WORKLOAD: Mapping[str, Any] = {"epochs": 1, "batch_size": 20, "learning_rate": 0.05, "momentum": 0.9}
"""Keys of `workload`; a reproduction replaces those that its paper states."""

TIME: Mapping[str, Any] = {"disconnects": "invisible", "deadline_s": 60.0, "compute": "modelled"}
"""Keys of `time`; a reproduction may replace them."""


def declared(name: str, text: str, values: Mapping[str, Any]) -> Experiment:
    """Validate an experiment with the pinned values for training and time.

    Args:
        name: name of the experiment.
        text: sections in YAML.
        values: values by key of the experiment (``rounds``) or of a section (``workload.model``); a mapping is merged
            into its section, any other value replaces the value in the text.

    Raises:
        ExperimentError: the experiment is not valid.

    Example:
        >>> declared("one round", "{population: 10, selection: {protocol: random}}", {"rounds": 1}).rounds
        1
    """
    data: dict[str, Any] = {"name": name, "workload": {}, "time": {}, **yaml.safe_load(text)}
    for key, value in values.items():
        section, _, of_section = key.partition(".")
        if of_section:
            data.setdefault(section, {})[of_section] = value
        elif isinstance(value, Mapping):
            data[section] = {**data.get(section, {}), **value}
        else:
            data[section] = value
    # Last, so that these keys yield to the text and to the values.
    data["workload"], data["time"] = {**WORKLOAD, **data["workload"]}, {**TIME, **data["time"]}
    return validated(data, name)
