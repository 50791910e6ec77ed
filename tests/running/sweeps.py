"""A small sweep."""

from typing import Any

from testbed.experiment.schema import Experiment
from tests.former_defaults import with_former_defaults

SMALL: dict[str, Any] = with_former_defaults(
    {
        "name": "lanes",
        "seed": 11,
        "rounds": 2,
        "population": 12,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"participants": 5},
        "aggregation": {"protocol": "plain"},
        "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
        "time": {"compute": "modelled", "deadline_s": 10},
        "sweep": {"selection.protocol": ["random", "batch-partition", "lotto-server-centric"]},
    }
)


def small_sweep(**changes: Any) -> Experiment:
    """The small sweep with other values for some keys."""
    return Experiment.model_validate(SMALL | changes)
