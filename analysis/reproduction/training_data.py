"""The data that a reproduction's clients learn from, in words."""

from collections.abc import Mapping
from typing import Any

import workloads
from testbed.workload.section import WorkloadSection


def describe_data(workload: Mapping[str, Any], population: int) -> str:
    """One line about the data of a built-in workload; raises `ExperimentError` as an experiment with it does.

    Args:
        workload: keys of an experiment's workload.
        population: clients who share the data.
    """
    built: Any = workloads.build(WorkloadSection.model_validate(workload), population, 1)
    return str(built.description)  # of built-in workloads; a federation needs no description of a user's own
