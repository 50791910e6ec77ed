"""Availability models from the keys of their section."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from testbed.emulation.availability import Availability, AvailabilitySection, availability_model
from testbed.randomness import Randomness


def model_of(
    population: int,
    *,
    seed: int = 1,
    stages: Sequence[str] = ("train", "first", "second"),
    labels: Any = None,
    **section: Any,
) -> Availability:
    """The model of a section.

    Args:
        population: number of clients.
        seed: of the experiment.
        stages: those after selection.
        labels: result of the workload's `label_counts`.
        section: the keys.
    """

    def label_counts() -> np.ndarray:
        assert labels is not None, "a model asks for labels that it should not need"
        return np.asarray(labels)

    parsed = TypeAdapter(AvailabilitySection).validate_python(section)
    return availability_model(parsed, population, stages, Randomness(seed), label_counts)
