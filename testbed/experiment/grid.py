"""Grids of values to try (`testbed tune --grid KEY=V1,V2`) as sweeps of an experiment."""

from collections.abc import Sequence

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment


def key_of(values: str) -> str:
    """Return the key in ``KEY=V1,V2``; raises `ExperimentError` for another form.

    Example:
        >>> key_of("workload.learning_rate=0.1,0.03")
        'workload.learning_rate'
    """
    key, equals, listed = values.partition("=")
    if not (key.strip() and equals and listed.strip()):
        raise ExperimentError(f"--grid {values}: must be KEY=V1,V2, e.g. workload.learning_rate=0.1,0.03")
    return key.strip()


def as_sweep(values: str) -> str:
    """Return ``KEY=V1,V2`` as an override that adds the key to the sweep of an experiment.

    Example:
        >>> as_sweep("workload.learning_rate=0.1,0.03")
        'sweep.workload.learning_rate=[0.1,0.03]'
    """
    key, _, listed = values.partition("=")
    return f"sweep.{key.strip()}=[{listed}]"


def require_searchable(experiment: Experiment, keys: Sequence[str], seeds: str | None = None) -> None:
    """Raise `ExperimentError` if a grid over `keys` would have no best value, before hours of work.

    Args:
        experiment: the experiment, without the grid.
        keys: keys of the grid.
        seeds: the seeds to run each value with.
    """
    for key in keys:
        if keys.count(key) > 1:
            raise ExperimentError(f"--grid {key}: given twice; list all its values in one --grid")
        # The best seed is luck: it says nothing about another run.
        if key == "seed":
            raise ExperimentError("--grid seed: a seed cannot be tuned; give --seeds")
        if key in experiment.sweep:
            raise ExperimentError(f"--grid {key}: the experiment's sweep has this key, too; remove it from one of them")
    if seeds and "seed" in experiment.sweep:
        raise ExperimentError("--seeds: the experiment's sweep has the key seed, too; remove it from one of them")
