"""A user-defined workload class, named ``package.module:ClassName`` in the experiment."""

import numpy as np

from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import plugin_class
from testbed.workload.contract import Workload
from testbed.workload.section import WorkloadSection
from workloads.training.threads import one_thread


def load(section: WorkloadSection, population: int, seed: int) -> Workload:
    """Import the class and construct it as ``ClassName(section, population, seed, **section.options)``.

    Raises:
        ExperimentError: the module or class is not there, does not take these options, or gives something that is
            not a `Workload` of this population. Errors of the class's own are passed on unchanged.
    """
    name = section.dataset
    made_by = plugin_class(name, "workload.dataset")
    one_thread()  # of what the module has loaded, too
    workload = plugin_options.made(made_by, name, "workload", section, population, seed)
    if not isinstance(workload, Workload):
        lacking = [part for part in vars(Workload) if not part.startswith("_") and not hasattr(workload, part)]
        raise ExperimentError(f"workload.dataset: {name} lacks {', '.join(lacking)}; see workloads/contract.py")
    counts = np.asarray(workload.sample_counts)
    if counts.shape != (population,) or counts.dtype != np.int64:
        raise ExperimentError(
            f"workload.dataset: {name} must have sample_counts of shape ({population},) and dtype int64, not "
            f"{counts.shape} and {counts.dtype}"
        )
    return workload
