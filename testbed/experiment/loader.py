"""Loading an experiment file: YAML and overrides, every point of its sweep validated.

The `Experiment` here is the public one: the schema's, which knows of no files, and `Experiment.load`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from testbed.emulation.availability.section import AvailabilityModel
from testbed.experiment import schema
from testbed.experiment.reading import apply_override, read_yaml
from testbed.experiment.stages import check_points
from testbed.experiment.sweep import points
from testbed.experiment.validation import validated


class Experiment(schema.Experiment):
    """A federation and what to do with it."""

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Self:
        """The validated experiment in a YAML file, with overrides such as ``selection.participants=20`` applied.

        Every point of a sweep is validated too. Raises `ExperimentError`: one line per mistake, with file and key path.
        """
        where = str(path)
        data = read_yaml(Path(path))
        for override in overrides:
            apply_override(data, override)
        experiment = validated(data, where, cls)
        check_points([(point.where(where), point.experiment) for point in points(experiment, where)])
        return experiment


load = Experiment.load


def availability_section(model: str, settings: Sequence[str] = ()) -> AvailabilityModel:
    """The `availability` section by itself that has this model and these settings.

    Args:
        model: its name.
        settings: e.g. ``mean_online_s=600``; values are YAML, as in an experiment.

    Raises:
        ExperimentError: one line per mistake.
    """
    data: dict[str, Any] = {"availability": {"model": model}}
    for setting in settings:
        apply_override(data, f"availability.{setting}")
    return validated(data, f"model {model}").availability
