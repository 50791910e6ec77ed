"""A workload class of the user's own, named ``package.module:ClassName`` in the experiment."""

import numpy as np

from testbed.errors import ExperimentError
from testbed.experiment.workload import WorkloadSection
from testbed.plugins import options as own_options
from testbed.plugins.classes import own_class
from workloads.contract import FederatedWorkload
from workloads.training.threads import one_thread


def load(section: WorkloadSection, population: int, seed: int) -> FederatedWorkload:
    """Import the class and construct it as ``ClassName(section, population, seed, **section.options)``.

    Raises:
        ExperimentError: the module or class is not there, does not take these options, or gives something that is
            not a `FederatedWorkload` of this population. Errors of the class's own are passed on unchanged.
    """
    name = section.dataset
    made_by = own_class(name, "workload.dataset")
    one_thread()  # of what the module has loaded, too
    workload = own_options.made(made_by, name, "workload", section, population, seed)
    if not isinstance(workload, FederatedWorkload):
        lacking = [part for part in _PARTS if not hasattr(workload, part)]
        raise ExperimentError(
            f"workload.dataset: {name} lacks {', '.join(lacking)}; see FederatedWorkload in workloads/contract.py"
        )
    counts = np.asarray(workload.sample_counts)
    if workload.population != population or counts.shape != (population,) or counts.dtype != np.int64:
        raise ExperimentError(
            f"workload.dataset: {name} must have population {population} and sample_counts of shape "
            f"({population},) and dtype int64, not {workload.population}, {counts.shape} and {counts.dtype}"
        )
    return workload


_PARTS = (
    "name",
    "model_name",
    "dimension",
    "population",
    "sample_counts",
    "initial_model",
    "train",
    "evaluate",
    "label_counts",
)
