"""The ``availability`` section alone, for commands that generate traces from a model."""

from collections.abc import Sequence
from typing import Any

from testbed.emulation.availability.section import AvailabilityModel
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import validated


def availability_section(model: str, settings: Sequence[str] = ()) -> AvailabilityModel:
    """Return an `availability` section with this model and these settings.

    Args:
        model: name of the model.
        settings: e.g. ``mean_online_s=600``; values are YAML, as in an experiment.

    Raises:
        ExperimentError: one line per mistake.
    """
    data: dict[str, Any] = {"availability": {"model": model}}
    for setting in settings:
        apply_override(data, f"availability.{setting}")
    return validated(data, f"model {model}").availability
