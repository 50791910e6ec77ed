"""A grid of values to try (`testbed tune --grid KEY=V1,V2`) as a sweep of an experiment; imports nothing slow."""

from collections.abc import Sequence

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment


def key_of(values: str) -> str:
    """The key in ``KEY=V1,V2``; raises `ExperimentError` for another form."""
    key, equals, listed = values.partition("=")
    if not (key.strip() and equals and listed.strip()):
        raise ExperimentError(f"--grid {values}: not of the form KEY=V1,V2, e.g. workload.learning_rate=0.1,0.03")
    return key.strip()


def as_sweep(values: str) -> str:
    """``KEY=V1,V2`` as an override that adds it to the sweep of an experiment."""
    key, _, listed = values.partition("=")
    return f"sweep.{key.strip()}=[{listed}]"


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
