"""A grid over an experiment's keys: as a sweep to run, and the experiment with the values that were the best of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.reading import set_key
from testbed.experiment.validation import validated
from testbed.files.atomic import atomic_write


def key_of(values: str) -> str:
    """The key in ``KEY=V1,V2``; raises `ExperimentError` for another form."""
    key, equals, listed = values.partition("=")
    if not (key.strip() and equals and listed.strip()):
        raise ExperimentError(f"--grid {values}: not of the form KEY=V1,V2, e.g. workload.learning_rate=0.1,0.03")
    return key.strip()


def as_sweep(values: str) -> str:
    """``KEY=V1,V2`` as an override that adds it to the sweep of an experiment."""
    key, _, listed = values.partition("=")
    return f"sweep={{{json.dumps(key.strip())}: [{listed}]}}"


def require_searchable(experiment: Experiment, keys: Sequence[str], seeds: str | None = None) -> None:
    """Raise `ExperimentError` where a grid over `keys` would have no best value; known before hours of work.

    Args:
        experiment: as it was given, without the grid.
        keys: of the grid.
        seeds: to run each value with.
    """
    for key in keys:
        if keys.count(key) > 1:
            raise ExperimentError(f"--grid {key}: given twice; name all its values in one")
        if key == "seed":
            raise ExperimentError("--grid seed: a seed is not chosen; give --seeds")
        if key in experiment.sweep:
            raise ExperimentError(f"--grid {key}: the experiment sweeps over it, too; take it out of one of the two")
    if seeds and "seed" in experiment.sweep:
        raise ExperimentError("--seeds: the experiment sweeps over its seed; take it out of one of the two")


def write(experiment: Experiment, values: Mapping[str, Any], file: Path) -> None:
    """Write the experiment as it was given, but for these values; raises `ExperimentError`."""
    data = experiment.model_dump(mode="json", exclude_unset=True)
    for key, value in values.items():
        set_key(data, key, value, str(file))
    validated(data, str(file))
    chosen = ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
    text = f"# Chosen by `testbed tune`: {chosen}\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}"
    with atomic_write(file, lambda why: ExperimentError(f"--write {file}: cannot be written: {why}")) as written:
        written.write(text.encode())
